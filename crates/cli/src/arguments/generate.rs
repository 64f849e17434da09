//! Arguments of `generate` and `translate`.

use std::path::PathBuf;

use attentive::generation::{self, GenerateOptions};
use clap::{Args, ValueEnum};

use super::{MAX_SEED, ModelArguments, TokenizerArgument};

/// Generate text from a prompt.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive generate runs/stories \"Once upon a time\"
  echo \"The little fox\" | attentive generate runs/stories -t 0.7 -k 20
  attentive generate runs/stories --ids 0,17,42 --temperature 0 --json
  attentive generate openai-community/gpt2 \"The meaning of life is\" -n 50
  attentive generate HuggingFaceTB/SmolLM2-135M-Instruct -t 0 -c \"Who was Ada?\"
  echo \"A long article …\" | attentive generate facebook/bart-large-cnn --beams 4")]
pub struct Generate {
    #[command(flatten)]
    pub model: ModelArguments,
    #[command(flatten)]
    pub tokenizer: TokenizerArgument,
    /// The prompt, or the source of an encoder-decoder [default: standard input, unless it is a terminal]
    #[arg(value_name = "PROMPT", conflicts_with_all = ["ids", "prompt_option"])]
    pub prompt: Option<String>,
    /// The prompt, as an option
    #[arg(
        id = "prompt_option",
        short,
        long = "prompt",
        value_name = "TEXT",
        conflicts_with = "ids",
        allow_hyphen_values = true,
        help_heading = "Input"
    )]
    pub prompt_option: Option<String>,
    /// Prompt as token ids
    #[arg(
        long,
        value_name = "ID,…",
        value_delimiter = ',',
        help_heading = "Input"
    )]
    pub ids: Vec<u32>,
    /// Send the prompt as a user message in the model's chat template
    #[arg(short, long, conflicts_with = "ids", help_heading = "Input")]
    pub chat: bool,
    /// System message of the chat
    #[arg(
        short,
        long,
        value_name = "TEXT",
        requires = "chat",
        conflicts_with = "ids",
        allow_hyphen_values = true,
        help_heading = "Input"
    )]
    pub system: Option<String>,
    #[command(flatten)]
    pub sampling: SamplingArguments,
    #[command(flatten)]
    pub search: SearchArguments,
    /// Number of beams to return, best first [default: the model's, or 1]
    #[arg(
        long = "return",
        value_name = "N",
        allow_negative_numbers = true,
        help_heading = "Search"
    )]
    pub returned: Option<usize>,
    /// Maximum number of new tokens [default: the model's, or 200]
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        allow_negative_numbers = true,
        help_heading = "Output"
    )]
    pub max_new_tokens: Option<usize>,
    /// Stop string; repeatable
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        help_heading = "Output"
    )]
    pub stop: Vec<String>,
    /// Print one JSON object at the end instead of streaming text
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// Sampling; defaults come from the model's generation_config.json.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArguments {
    /// Sampling temperature; 0 is greedy decoding [default: the model's, or 0.8, or 0 for an encoder-decoder if neither the
    /// model nor --top-k or --top-p asks for sampling]
    #[arg(short, long, value_name = "T", allow_negative_numbers = true)]
    pub temperature: Option<f64>,
    /// Sample from the K most likely tokens [default: the model's]
    #[arg(short = 'k', long, value_name = "K", allow_negative_numbers = true)]
    pub top_k: Option<usize>,
    /// Nucleus sampling: the most likely tokens with total probability P [default: the model's]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub top_p: Option<f64>,
    /// Repetition penalty; 1 disables it [default: the model's, or 1]
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    pub repetition_penalty: Option<f64>,
    /// Random seed for sampling [default: random]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(..=MAX_SEED))]
    pub seed: Option<u64>,
}

/// Beam search; defaults come from the model's generation_config.json.
#[derive(Args, Debug)]
#[command(next_help_heading = "Search")]
pub struct SearchArguments {
    /// Beam width; 1 disables beam search [default: the model's, or 1, or 4 to translate]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
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
  attentive translate Helsinki-NLP/opus-mt-en-de \"The fox sleeps.\" \"Why?\"
  printf 'A fox.\\nIt sleeps.\\n' > lines.txt
  attentive translate Helsinki-NLP/opus-mt-en-de -f lines.txt --beams 8 --json
  attentive translate google-t5/t5-small \"The fox sleeps.\" \\
    --prefix \"translate English to German: \"")]
pub struct Translate {
    #[command(flatten)]
    pub model: ModelArguments,
    #[command(flatten)]
    pub tokenizer: TokenizerArgument,
    /// The texts [default: the lines of standard input]
    #[arg(value_name = "TEXT", conflicts_with = "file")]
    pub texts: Vec<String>,
    /// A file of texts, one per line
    #[arg(short, long, value_name = "FILE", help_heading = "Input")]
    pub file: Option<PathBuf>,
    /// Prefix of every text, for models whose task is part of the input (T5)
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true,
        help_heading = "Input"
    )]
    pub prefix: String,
    /// Batch size
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        allow_negative_numbers = true,
        help_heading = "Input"
    )]
    pub batch_size: usize,
    #[command(flatten)]
    pub search: SearchArguments,
    /// Maximum number of new tokens [default: the model's, or 200]
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        allow_negative_numbers = true,
        help_heading = "Output"
    )]
    pub max_new_tokens: Option<usize>,
    /// Print one JSON object per text, with its score
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

impl Generate {
    /// The options, as the library takes them.
    pub fn options(&self) -> GenerateOptions {
        let sampling = &self.sampling;
        GenerateOptions {
            max_new_tokens: self.max_new_tokens,
            temperature: sampling.temperature,
            top_k: sampling.top_k,
            top_p: sampling.top_p,
            repetition_penalty: sampling.repetition_penalty,
            num_return_sequences: self.returned,
            stop_strings: self.stop.clone(),
            seed: sampling.seed,
            ..self.search.options()
        }
    }
}

impl Translate {
    /// The options, as the library takes them.
    pub fn options(&self) -> GenerateOptions {
        GenerateOptions {
            max_new_tokens: self.max_new_tokens,
            ..self.search.options()
        }
    }
}

impl SearchArguments {
    fn options(&self) -> GenerateOptions {
        GenerateOptions {
            num_beams: self.beams,
            length_penalty: self.length_penalty,
            early_stopping: self.early_stopping.map(|when| match when {
                EarlyStopping::True => generation::EarlyStopping::True,
                EarlyStopping::False => generation::EarlyStopping::False,
                EarlyStopping::Never => generation::EarlyStopping::Never,
            }),
            ..GenerateOptions::default()
        }
    }
}
