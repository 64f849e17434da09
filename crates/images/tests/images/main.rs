//! The room is held to Pillow's bytes and transformers' numbers (`fixtures/images`, made by `reference/images`), and to its
//! promises about files and settings that are broken.

mod decoded;
mod golden;
mod hostile;
mod processed;
mod resized;
mod settings;
