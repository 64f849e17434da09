//! Pixel values equal those of transformers' ViT and DeiT processors, with configs read from a folder.

use attentive_images::{Image, ImageError, PixelValues, Preprocessor, Size};
use attentive_testing::{Scale, assert_close};

use crate::golden::{Golden, open};
use crate::settings::preprocessor;

#[test]
fn values_equal_those_of_transformers() {
    let golden = Golden::load();
    let cases = golden.cases("processed");
    assert!(cases.len() > 30);
    for case in cases {
        let key = case["key"].as_str().unwrap();
        let preprocessor = preprocessor(&case["config"]).unwrap();
        let image = open(case["file"].as_str().unwrap());
        let ours = preprocessor.pixel_values(&image).unwrap();
        let step = case["step"].as_u64().unwrap() as usize;
        let (shape, expected) = golden.array(key);
        let sizes = [ours.height, ours.width].map(|size| size.div_ceil(step));
        assert_eq!(shape, [ours.channels, sizes[0], sizes[1]], "{key}");
        let ours: Vec<f32> = every(&ours, step).collect();
        assert_close(key, &ours, &expected, Scale::One, 1e-6);
    }
}

/// Every `step`th row and column of each channel.
fn every(image: &PixelValues, step: usize) -> impl Iterator<Item = f32> {
    let PixelValues { height, width, .. } = *image;
    let plane = height * width;
    (0..image.channels).flat_map(move |channel| {
        let rows = (0..height).step_by(step);
        rows.flat_map(move |row| {
            let columns = (0..width).step_by(step);
            columns.map(move |column| image.values[channel * plane + row * width + column])
        })
    })
}

#[test]
fn a_batch_is_its_images_stacked() {
    let preprocessor = Preprocessor::default_vit(6);
    let images = [open("rgb.png"), open("noise_7_1.png")];
    let batch = preprocessor.batch(&images).unwrap();
    assert_eq!(
        [batch.batch, batch.channels, batch.height, batch.width],
        [2, 3, 6, 6]
    );
    let each = images.map(|image| preprocessor.pixel_values(&image).unwrap().values);
    assert_eq!(batch.values, each.concat());
}

#[test]
fn a_batch_of_several_sizes_or_of_nothing_is_refused() {
    let preprocessor = Preprocessor {
        resize: None,
        ..Preprocessor::default_vit(6)
    };
    let images = [open("rgb.png"), open("noise_7_1.png")];
    assert_eq!(
        preprocessor.batch(&images).unwrap_err().to_string(),
        "image 1 of the batch is 1 by 7 pixels, the first is 23 by 17; let the preprocessor resize or crop all to one size, \
         or take them one by one"
    );
    assert!(matches!(
        preprocessor.batch(&[]),
        Err(ImageError::EmptyBatch)
    ));
}

#[test]
fn a_shortest_edge_of_an_extreme_aspect_ratio_is_refused_before_allocating() {
    let config = serde_json::json!({
        "image_processor_type": "ViTImageProcessor",
        "size": {"shortest_edge": 1_000_000_000_000u64},
    });
    let narrow = Image::from_rgb(
        Size {
            height: 100_000,
            width: 1,
        },
        vec![7; 300_000],
    );
    let error = preprocessor(&config)
        .unwrap()
        .pixel_values(&narrow)
        .unwrap_err();
    assert!(matches!(error, ImageError::Unresizable { .. }), "{error}");
}
