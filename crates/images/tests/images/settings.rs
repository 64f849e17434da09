//! Every setting of preprocessor_config.json is honored, or refused with an error that names key and value.

use attentive_images::{ImageError, Preprocessor};
use serde_json::{Value, json};

/// The preprocessor of a folder with this config.
pub fn preprocessor(config: &Value) -> Result<Preprocessor, ImageError> {
    let folder = tempfile::tempdir().unwrap();
    let text = serde_json::to_string(config).unwrap();
    std::fs::write(folder.path().join("preprocessor_config.json"), text).unwrap();
    Preprocessor::from_folder(folder.path())
}

/// A ViT config with one more key.
fn with(key: &str, value: Value) -> Value {
    json!({"image_processor_type": "ViTImageProcessor", key: value})
}

/// The error message, without the folder.
fn message(config: &Value) -> String {
    let error = preprocessor(config).unwrap_err().to_string();
    let (_, message) = error.split_once("preprocessor_config.json").unwrap();
    message.to_owned()
}

#[test]
fn defaults_are_those_of_the_type() {
    for name in [
        "ImageProcessor",
        "ImageProcessorFast",
        "ImageProcessorPil",
        "FeatureExtractor",
    ] {
        let vit = preprocessor(&json!({"image_processor_type": format!("ViT{name}")}));
        assert_eq!(vit.unwrap(), Preprocessor::default_vit(224));
        let deit = preprocessor(&json!({"feature_extractor_type": format!("DeiT{name}")}));
        assert_eq!(deit.unwrap(), Preprocessor::default_deit());
    }
}

#[test]
fn a_file_without_a_type_uses_the_model_type() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("preprocessor_config.json", r#"{"size": 384}"#);
    let error = Preprocessor::from_folder(folder.path())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("it names none, nor does config.json"),
        "{error}"
    );
    write("config.json", r#"{"model_type": "vit"}"#);
    let read = Preprocessor::from_folder(folder.path()).unwrap();
    assert_eq!(read, Preprocessor::default_vit(384));
    write("config.json", r#"{"model_type": "clip"}"#);
    let error = Preprocessor::from_folder(folder.path())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("is of type clip, which is not supported"),
        "{error}"
    );
}

#[test]
fn an_unsupported_type_is_named() {
    assert_eq!(
        message(&json!({"image_processor_type": "CLIPImageProcessor"})),
        " is of type CLIPImageProcessor, which is not supported; supported are ViTImageProcessor, ViTImageProcessorFast, \
         ViTImageProcessorPil, ViTFeatureExtractor, DeiTImageProcessor, DeiTImageProcessorFast, DeiTImageProcessorPil, \
         DeiTFeatureExtractor"
    );
}

#[test]
fn keys_without_effect_on_pixel_values_are_ignored() {
    let config = json!({
        "image_processor_type": "ViTImageProcessorFast",
        "crop_size": null, "do_pad": null, "pad_size": null, "do_reduce_labels": false, "offset": false,
        "data_format": "channels_first", "input_data_format": null, "device": null, "disable_grouping": null,
        "return_tensors": null, "do_convert_rgb": true, "processor_class": "anything", "do_rescale": null,
    });
    assert_eq!(
        preprocessor(&config).unwrap(),
        Preprocessor::default_vit(224)
    );
}

#[test]
fn unsupported_values_are_named() {
    let size = "a number of pixels, {\"height\": …, \"width\": …} or {\"shortest_edge\": …}";
    let crop = "a number of pixels or {\"height\": …, \"width\": …}";
    let filter = "0 (nearest), 1 (Lanczos), 2 (bilinear) or 3 (bicubic)";
    let absent = "false, or no such key";
    for (key, value, expected) in [
        ("size", json!(0), size),
        ("size", json!(-3), size),
        ("size", json!("large"), size),
        ("size", json!(99999), size),
        ("size", json!([1, 2, 3]), size),
        ("size", json!({"longest_edge": 12}), size),
        (
            "size",
            json!({"shortest_edge": 12, "longest_edge": 20}),
            size,
        ),
        ("size", json!({"height": 12}), size),
        ("resample", json!(4), filter),
        ("resample", json!("bicubic"), filter),
        ("rescale_factor", json!("1/255"), "a number above zero"),
        (
            "image_mean",
            json!([0.5, 0.5]),
            "one number, or three for red, green and blue",
        ),
        (
            "image_mean",
            json!([0.5, 0.5, 1e300]),
            "one number, or three for red, green and blue",
        ),
        (
            "image_std",
            json!([1, 1, 0]),
            "one number above zero, or three for red, green and blue",
        ),
        ("do_resize", json!("yes"), "true or false"),
        ("do_pad", json!(true), absent),
        ("do_flip_channel_order", json!(true), absent),
        ("offset", json!(true), absent),
        ("crop_pct", json!(0.9), absent),
        ("data_format", json!("channels_last"), "\"channels_first\""),
        ("image_processor_type", json!(3), "a name"),
    ] {
        let expected = format!(": {key} = {value} is not supported; expected {expected}");
        assert_eq!(message(&with(key, value)), expected);
    }
    for value in [json!({"shortest_edge": 12}), json!(0), json!(0.5)] {
        let config = json!({"image_processor_type": "DeiTImageProcessor", "crop_size": value});
        let expected = format!(": crop_size = {value} is not supported; expected {crop}");
        assert_eq!(message(&config), expected);
    }
    assert_eq!(
        message(&with("do_center_crop", json!(true))),
        ": crop_size = null is not supported; expected a size, since do_center_crop is true"
    );
}

#[test]
fn a_broken_or_missing_file_is_an_error() {
    assert_eq!(
        message(&json!([])),
        " cannot be read (it is not a JSON object); download or save it again"
    );
    let error = Preprocessor::from_folder("no/such/folder".as_ref()).unwrap_err();
    assert!(matches!(error, ImageError::Io { .. }));
    assert!(error.to_string().ends_with("; check the path"), "{error}");
}

/// As in transformers, nothing is guessed: the message says what is missing and what would do.
#[test]
fn a_folder_without_the_file_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    for (model_type, processor) in [("vit", "ViTImageProcessor"), ("deit", "DeiTImageProcessor")] {
        let config = json!({"model_type": model_type}).to_string();
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        let error = Preprocessor::from_folder(folder.path()).unwrap_err();
        assert!(matches!(error, ImageError::NoConfig { .. }), "{error}");
        let example = json!({"image_processor_type": processor, "size": 224});
        assert_eq!(
            error.to_string(),
            format!(
                "{} has no preprocessor_config.json, which says how images become the model's input; download it, \
                 or write one, such as {{\"image_processor_type\": \"{processor}\", \"size\": 224}}",
                folder.path().display()
            )
        );
        // The example can be used.
        preprocessor(&example).unwrap();
    }
    std::fs::remove_file(folder.path().join("config.json")).unwrap();
    let error = Preprocessor::from_folder(folder.path()).unwrap_err();
    assert!(matches!(error, ImageError::NoConfig { .. }), "{error}");
}
