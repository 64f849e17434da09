//! Parity with Pillow's bytes and transformers' pixel values (`fixtures/images`, made by `reference/images`), and handling of
//! broken files and configs.

mod decoded;
mod golden;
mod hostile;
mod processed;
mod resized;
mod settings;
