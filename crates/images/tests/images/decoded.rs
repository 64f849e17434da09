//! Every file decodes as with transformers' `load_image`: Pillow's decoder, EXIF orientation, RGB.

use crate::golden::{Golden, files, open};

/// The largest difference of a byte from Pillow's.
///
/// Most formats are decoded exactly, WebP included. JPEG decoders round the inverse DCT and the conversion from YCbCr differently
/// (two units), and upsample chroma in another order (one more). These images have no sharp edges: drawings with edges
/// differ by up to 4, and single pixels of pure noise with subsampled chroma by up to 20.
fn bound(name: &str) -> u8 {
    match name {
        "subsampled.jpg" | "subsampled_across.jpg" | "larger.jpg" => 3,
        name if name.ends_with(".jpg") => 2,
        _ => 0,
    }
}

#[test]
fn files_decode_as_in_pillow() {
    let golden = Golden::load();
    let mut failures = Vec::new();
    for path in files() {
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("drawing_") {
            continue;
        }
        let image = open(name);
        let (shape, expected) = golden.image(&format!("decoded.{name}"));
        let size = image.size();
        assert_eq!(vec![size.height, size.width, 3], shape, "{name}");
        let pairs = image.pixels().iter().zip(&expected);
        let largest = pairs
            .map(|(ours, theirs)| ours.abs_diff(*theirs))
            .max()
            .unwrap();
        if largest > bound(name) {
            failures.push(format!("{name}: {largest} above {}", bound(name)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
