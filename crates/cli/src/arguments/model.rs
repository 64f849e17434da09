//! Arguments that commands share: the model, the device, input texts.

use std::path::PathBuf;

use attentive::checkpoint::LoadOptions;
use clap::Args;

/// A model, and what its folder does not say.
#[derive(Args, Debug)]
pub struct ModelArguments {
    /// A model folder, a .gguf file, or a hub model: owner/name, or owner/name@revision
    pub model: PathBuf,
    /// The model_type of a config.json that does not say it, such as bert
    #[arg(long, value_name = "TYPE", help_heading = "Model")]
    pub model_type: Option<String>,
    /// The config.json of a folder that has none
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub device: DeviceArgument,
}

/// The tokenizer of a model.
#[derive(Args, Debug)]
pub struct TokenizerArgument {
    /// A folder with the tokenizer's files, or a tokenizer.json
    #[arg(long, value_name = "PATH", help_heading = "Model")]
    pub tokenizer: Option<PathBuf>,
    /// Whether the tokenizer lower-cases text, for a folder that does not say it
    #[arg(long, value_name = "BOOL", help_heading = "Model", action = clap::ArgAction::Set)]
    pub lower_case: Option<bool>,
}

impl ModelArguments {
    /// What the folder does not say, as `checkpoint` takes it.
    pub fn load_options(&self) -> LoadOptions {
        LoadOptions {
            model_type: self.model_type.clone(),
            config: self.config.clone(),
            ..LoadOptions::default()
        }
    }
}

/// The device.
#[derive(Args, Debug)]
pub struct DeviceArgument {
    /// Device: cpu, or cuda, metal, rocm, vulkan, webgpu in builds with that feature
    #[arg(long, value_name = "D", default_value = "cpu", help_heading = "Model")]
    pub device: String,
}

/// Input texts and batch size.
#[derive(Args, Debug)]
pub struct TextArguments {
    /// The texts [default: the lines of standard input]
    #[arg(value_name = "TEXT", conflicts_with = "file")]
    pub texts: Vec<String>,
    /// A file of texts, one per line
    #[arg(short, long, value_name = "FILE", help_heading = "Input")]
    pub file: Option<PathBuf>,
    /// Batch size
    #[arg(long, value_name = "N", default_value_t = 32, allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..), help_heading = "Input")]
    pub batch_size: u16,
    /// Truncate texts that exceed the model's length, or a folder's max_seq_length, instead of refusing them
    #[arg(long, help_heading = "Input")]
    pub truncate: bool,
    /// Print one JSON object per text; offsets are UTF-8 bytes
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
