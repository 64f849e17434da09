//! Resizing is bit-exact with Pillow, for every filter.

use attentive_images::{Image, Resampling, Size};
use proptest::prelude::*;

use crate::golden::{Golden, open};

const FILTERS: [Resampling; 4] = [
    Resampling::Nearest,
    Resampling::Lanczos,
    Resampling::Bilinear,
    Resampling::Bicubic,
];

#[test]
fn every_byte_equals_that_of_pillow() {
    let golden = Golden::load();
    let cases = golden.cases("resized");
    assert!(cases.len() > 150);
    for case in cases {
        let key = case["key"].as_str().unwrap();
        let number = |value: &serde_json::Value| value.as_u64().unwrap() as usize;
        let size = Size {
            height: number(&case["size"][0]),
            width: number(&case["size"][1]),
        };
        let filter = FILTERS[number(&case["resample"])];
        let ours = open(case["file"].as_str().unwrap())
            .resize(size, filter)
            .unwrap();
        let (shape, expected) = golden.image(key);
        assert_eq!(shape, [size.height, size.width, 3]);
        assert_eq!(ours.pixels(), expected, "{key}");
    }
}

#[test]
fn a_size_without_pixels_or_with_too_many_is_refused() {
    let image = Image::from_rgb(Size::square(2), vec![0; 12]);
    for size in [
        Size::square(0),
        Size::square(1 << 14),
        Size::square(usize::MAX),
    ] {
        let error = image.resize(size, Resampling::Bilinear).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("an image of 2 by 2 pixels cannot be resized to")
        );
    }
}

proptest! {
    /// Adjacent black and white maximize the sums of filters with negative lobes; overflow would panic, as tests are built
    /// with overflow checks.
    #[test]
    fn extremes_do_not_overflow(
        (height, width) in (1usize..60, 1usize..60),
        (new_height, new_width) in (1usize..60, 1usize..60),
        filter in 0usize..4,
        bits in prop::collection::vec(any::<bool>(), 60 * 60),
    ) {
        let pixels = bits.iter().take(height * width).flat_map(|&bit| [u8::from(bit) * 255; 3]).collect();
        let image = Image::from_rgb(Size { height, width }, pixels);
        let size = Size { height: new_height, width: new_width };
        prop_assert_eq!(image.resize(size, FILTERS[filter]).unwrap().size(), size);
    }

    /// Weights sum to one: an image of one color keeps it.
    #[test]
    fn a_uniform_color_is_preserved(
        (height, width) in (1usize..40, 1usize..40),
        (new_height, new_width) in (1usize..40, 1usize..40),
        filter in 0usize..4,
        color: [u8; 3],
    ) {
        let image = Image::from_rgb(Size { height, width }, color.repeat(height * width));
        let size = Size { height: new_height, width: new_width };
        let resized = image.resize(size, FILTERS[filter]).unwrap();
        prop_assert_eq!(resized.pixels(), color.repeat(new_height * new_width));
    }
}
