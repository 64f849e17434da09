//! Files of tensors: which tensors there are, of which shape and kind, and their numbers.
//!
//! Every parser here takes bytes and gives [`Entry`]s: where in the file each tensor lies. None of them believes a number of
//! the file before it is checked, takes memory that the file's own size does not justify, or runs anything.
//!
//! ```text
//! model.safetensors ──┐                               ┌─ names, shapes, kinds
//! …index.json, shards ├─ parse ─ entries ─ TensorSet ─┤
//! pytorch_model.bin ──┤          (byte ranges)        └─ numbers, read from the mapped file when asked for
//! model.gguf ─────────┘
//! ```

mod cursor;
mod entry;
mod error;
mod kind;
mod mapped;
mod quantized;
mod shards;
mod shown;
mod tensor_set;

pub mod gguf;
pub mod pickle;
pub mod safetensors;

pub use entry::Entry;
pub use error::FileError;
pub use kind::Kind;
pub use mapped::Mapped;
pub use shown::shown;
pub use tensor_set::TensorSet;
