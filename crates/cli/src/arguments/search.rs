//! The arguments of searches for the likeliest text.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::DeviceArgument;

/// How to search; what is left out comes from the model's generation_config.json.
#[derive(Args, Debug)]
pub struct SearchArguments {
    /// Follow N beginnings of a text at once and take the likeliest text; 1 is no search [default: the model's, or 1, or 4
    /// to translate]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub beams: Option<usize>,
    /// A text's score is divided by this power of its length: more favours longer texts [default: the model's, or 1]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub length_penalty: Option<f64>,
    /// End a search when as many texts as beams have ended (true), when none seems to become better (false), or when none
    /// can (never) [default: the model's, or false]
    #[arg(long, value_name = "WHEN")]
    pub early_stopping: Option<EarlyStopping>,
}

/// When a search ends, in Hugging Face's words.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum EarlyStopping {
    True,
    False,
    Never,
}

/// Translate texts, or whatever an encoder-decoder was trained to make of them.
#[derive(Args, Debug)]
#[command(after_help = "\
A translation is a line; an empty line of a file or of standard input stays empty.

Examples:
  attentive translate opus-mt-en-de \"The fox is small.\" \"It sleeps.\"
  attentive translate t5-small --prefix \"translate English to German: \" --file lines.txt --batch 16
  echo \"The fox is small.\" | attentive translate opus-mt-en-de --beams 8 --json")]
pub struct Translate {
    /// The folder of an encoder-decoder, such as Marian, T5 or BART
    pub model: PathBuf,
    /// The texts [default: the lines of standard input]
    #[arg(value_name = "TEXT", conflicts_with = "file")]
    pub texts: Vec<String>,
    /// A file whose lines to translate, instead of texts
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// What stands before every text, for models that are told their task in words
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
    /// The most tokens of a translation [default: the model's, or 200]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_tokens: Option<usize>,
    /// How many texts are translated at once
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        allow_negative_numbers = true
    )]
    pub batch: usize,
    #[command(flatten)]
    pub device: DeviceArgument,
    /// Print a JSON object per text, with its score
    #[arg(long)]
    pub json: bool,
}
