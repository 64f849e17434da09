//! Tensor files: names, shapes, dtypes and data.
//!
//! Every parser takes bytes and returns [`TensorInfo`]s: the location of each tensor in the file. None trusts a value of the
//! file before validating it, allocates more than the file's size justifies, or executes anything.
//!
//! ```text
//! model.safetensors ──┐                                   ┌─ names, shapes, dtypes
//! …index.json, shards ├─ parse ─ TensorInfos ─ TensorSet ─┤
//! pytorch_model.bin ──┤         (byte ranges)             └─ data, read lazily from the mapped file
//! model.gguf ─────────┘
//! ```

mod cursor;
mod dtype;
mod error;
mod mapped;
mod quantized;
mod shards;
mod tensor_info;
mod tensor_set;

pub mod error_text;
pub mod gguf;
pub mod json;
pub mod pickle;
pub mod safetensors;

pub use dtype::DType;
pub use error::{FileError, ParseError};
pub use mapped::MappedFile;
pub use tensor_info::TensorInfo;
pub use tensor_set::TensorSet;
