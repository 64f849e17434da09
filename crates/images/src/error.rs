//! What can be wrong with an image or its settings, each as one sentence: what, where, what to do.

use std::path::PathBuf;

/// Every error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The system would not read it.
    #[error("{path}: {source}; check the path", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's word.
        source: std::io::Error,
    },
    /// Its first bytes are of no format that is read here.
    #[error(
        "{name} is not an image of a kind that is read here; give a PNG, JPEG, GIF, BMP or WebP file"
    )]
    UnknownFormat {
        /// The file, or what the caller called it.
        name: String,
    },
    /// It began like an image, but a decoder gave up.
    #[error("{name} cannot be decoded ({problem}); fetch or save it again, or convert it to PNG")]
    Broken {
        /// The file, or what the caller called it.
        name: String,
        /// What the decoder said.
        problem: String,
    },
    /// It would take more memory than an image may.
    #[error("{name} is too large ({size}; at most {limit}); make it smaller first")]
    TooLarge {
        /// The file, or what the caller called it.
        name: String,
        /// How large it is.
        size: String,
        /// How large it may be.
        limit: String,
    },
    /// Resizing or cropping it would make an image that is too large, or one without pixels.
    #[error(
        "an image of {width} by {height} pixels cannot be resized to {new_width} by {new_height} \
         (at least 1, at most {limit} pixels in all); crop it first, or choose another size"
    )]
    Unresizable {
        /// Its width.
        width: usize,
        /// Its height.
        height: usize,
        /// The width asked for.
        new_width: usize,
        /// The height asked for.
        new_height: usize,
        /// The most pixels an image may have.
        limit: usize,
    },
    /// A file of settings is not JSON, or not an object.
    #[error("{path} cannot be read ({problem}); fetch or save it again", path = path.display())]
    BrokenConfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The settings are of another model's processor.
    #[error(
        "{path} is of type {found}, which is not supported; supported are {supported}",
        path = path.display(),
        found = found.escape_debug()
    )]
    UnsupportedType {
        /// The file.
        path: PathBuf,
        /// The type it names.
        found: String,
        /// The types that are supported.
        supported: String,
    },
    /// A setting has a value that cannot be honoured.
    #[error("{path}: {key} = {value} is not supported; expected is {expected}", path = path.display())]
    Setting {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Its value, as JSON.
        value: String,
        /// What would be.
        expected: String,
    },
    /// A batch of nothing.
    #[error("a batch needs at least one image; give some")]
    EmptyBatch,
    /// Images of a batch that do not fit into one block of numbers.
    #[error(
        "image {index} of the batch is {width} by {height} pixels, the first is {first_width} by {first_height}; \
         let the preprocessor resize or crop all to one size, or take them one by one"
    )]
    UnequalBatch {
        /// Which image, counted from 0.
        index: usize,
        /// Its width.
        width: usize,
        /// Its height.
        height: usize,
        /// The first one's width.
        first_width: usize,
        /// The first one's height.
        first_height: usize,
    },
}
