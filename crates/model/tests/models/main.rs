//! Models of Hugging Face, from folder to numbers and back: each file of tests is a family, and holds its models to what
//! transformers computed from the same weights (`fixtures/models`, made by `reference/models`).

mod architectures;
mod decoders;
mod gguf;
mod long;
mod losses;
mod output_names;
mod recurrent;
mod recurrent_folders;
mod support;
mod words;
