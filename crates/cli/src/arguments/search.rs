//! Arguments of beam search, and of `translate`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::DeviceArgument;

/// Beam search; defaults come from the model's generation_config.json.
#[derive(Args, Debug)]
pub struct SearchArguments {
    /// Beam width; 1 disables beam search [default: the model's, or 1, or 4 to translate]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub beams: Option<usize>,
    /// Exponent of the length by which a beam's score is divided; larger favours longer texts [default: the model's, or 1]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub length_penalty: Option<f64>,
    /// Stop when as many texts as beams are finished (true), when no beam is likely to improve (false), or when none can
    /// (never) [default: the model's, or false]
    #[arg(long, value_name = "WHEN")]
    pub early_stopping: Option<EarlyStopping>,
}

/// When beam search stops.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum EarlyStopping {
    True,
    False,
    Never,
}

/// Translate texts with an encoder-decoder.
#[derive(Args, Debug)]
#[command(after_help = "\
One line per translation; an empty input line stays empty.

Examples:
  attentive translate opus-mt-en-de \"The fox is small.\" \"It sleeps.\"
  attentive translate t5-small --prefix \"translate English to German: \" --file lines.txt
  echo \"The fox is small.\" | attentive translate opus-mt-en-de --beams 8 --json")]
pub struct Translate {
    /// The folder of an encoder-decoder, such as Marian, T5 or BART
    pub model: PathBuf,
    /// The texts [default: the lines of standard input]
    #[arg(value_name = "TEXT", conflicts_with = "file")]
    pub texts: Vec<String>,
    /// A file of texts, one per line
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Prefix of every text, for models whose task is part of the input (T5)
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub prefix: String,
    #[command(flatten)]
    pub search: SearchArguments,
    /// Maximum number of new tokens [default: the model's, or 200]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_new_tokens: Option<usize>,
    /// Batch size
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        allow_negative_numbers = true
    )]
    pub batch_size: usize,
    #[command(flatten)]
    pub device: DeviceArgument,
    /// Print one JSON object per text, with its score
    #[arg(long)]
    pub json: bool,
}
