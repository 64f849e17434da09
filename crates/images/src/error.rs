//! Errors of images and their preprocessing, each as one sentence: what, where, what to do.

use std::path::PathBuf;

/// Every error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// An I/O error.
    #[error("{path}: {source}; check the path", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The format is not supported.
    #[error(
        "{name} is not an image of a supported format; give a PNG, JPEG, GIF, BMP or WebP file"
    )]
    UnknownFormat {
        /// The name of the image.
        name: String,
    },
    /// The decoder failed.
    #[error(
        "{name} cannot be decoded ({problem}); download or save it again, or convert it to PNG"
    )]
    Broken {
        /// The name of the image.
        name: String,
        /// The cause.
        problem: String,
    },
    /// The image may be valid, and the decoder does not read this form of its format.
    #[error("{name} is not supported ({problem}); convert it to PNG")]
    Unsupported {
        /// The name of the image.
        name: String,
        /// What is not supported.
        problem: String,
    },
    /// The image is too large.
    #[error("{name} is too large ({size}; at most {limit}); make it smaller first")]
    TooLarge {
        /// The name of the image.
        name: String,
        /// Its size.
        size: String,
        /// The limit.
        limit: String,
    },
    /// The image would be too large or empty after resizing or cropping.
    #[error(
        "an image of {width} by {height} pixels cannot be resized to {new_width} by {new_height} \
         (at least 1, at most {limit} pixels in all); crop it first, or choose another size"
    )]
    Unresizable {
        /// Its width.
        width: usize,
        /// Its height.
        height: usize,
        /// The target width.
        new_width: usize,
        /// The target height.
        new_height: usize,
        /// The limit in pixels.
        limit: usize,
    },
    /// The folder has no preprocessor_config.json.
    #[error(
        "{folder} has no preprocessor_config.json, which says how images become the model's input; \
         download it, or write one, such as {{\"image_processor_type\": \"{processor}\", \"size\": 224}}",
        folder = folder.display()
    )]
    NoConfig {
        /// The model folder.
        folder: PathBuf,
        /// A processor that the model may have been trained with.
        processor: &'static str,
    },
    /// A config is not a JSON object.
    #[error("{path} cannot be read ({problem}); download or save it again", path = path.display())]
    BrokenConfig {
        /// The file.
        path: PathBuf,
        /// The cause.
        problem: String,
    },
    /// The processor type is not supported.
    #[error(
        "{path} is of type {found}, which is not supported; supported are {supported}",
        path = path.display(),
        found = excerpt(found)
    )]
    UnsupportedType {
        /// The file.
        path: PathBuf,
        /// The type.
        found: String,
        /// The supported types.
        supported: String,
    },
    /// A value is not supported.
    #[error(
        "{path}: {key} = {value} is not supported; expected {expected}",
        path = path.display(),
        key = excerpt(key),
        value = excerpt(value)
    )]
    Setting {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Its value, as JSON.
        value: String,
        /// The supported values.
        expected: String,
    },
    /// The batch is empty.
    #[error("a batch needs at least one image; give some")]
    EmptyBatch,
    /// The images of a batch differ in size.
    #[error(
        "image {index} of the batch is {width} by {height} pixels, the first is {first_width} by {first_height}; \
         let the preprocessor resize or crop all to one size, or take them one by one"
    )]
    UnequalBatch {
        /// The index of the image.
        index: usize,
        /// Its width.
        width: usize,
        /// Its height.
        height: usize,
        /// The width of the first image.
        first_width: usize,
        /// The height of the first image.
        first_height: usize,
    },
}

/// Text of a file in a message: control characters escaped, truncated to 160 characters.
fn excerpt(text: &str) -> String {
    let escaped = |character: char| match character.is_control() {
        true => character.escape_debug().to_string(),
        false => character.to_string(),
    };
    text.chars().take(160).map(escaped).collect()
}
