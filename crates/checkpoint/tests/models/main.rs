//! Hugging Face's models, loaded, run and saved. Each file tests a family, against what transformers computed from the same
//! weights (`fixtures/models`, made by `reference/models`).

mod architectures;
mod decoder_configs;
mod decoders;
mod gguf;
mod load_options;
mod long;
mod losses;
mod output_names;
mod presets;
mod recurrent;
mod recurrent_folders;
mod support;
