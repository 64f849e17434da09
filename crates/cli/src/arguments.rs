//! The command line, as clap reads it.

mod generate;
mod model;
mod tasks;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

pub use generate::{Generate, Translate};
pub use model::{DeviceArgument, ModelArguments, TextArguments, TokenizerArgument};
pub use tasks::{Answer, Classify, Embed, Fill, Forward};

/// The largest integer of TOML, since recipes hold seeds.
const MAX_SEED: u64 = i64::MAX as u64;

/// The whole transformer family: train, use and inspect.
#[derive(Debug, Parser)]
#[command(name = "attentive", version)]
#[command(after_help = "\
Examples:
  attentive train
  attentive generate runs/stories \"Once upon a time\"
  attentive help train")]
pub struct Arguments {
    /// What to do; without a command, the first steps are printed
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub global: Global,
}

/// Options of every command.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Print no progress and no notes
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print times and tokens per second to standard error
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Number of threads [default: ATTENTIVE_THREADS, or all cores]
    #[arg(long, global = true, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a model on built-in stories or on your own text.
    Train(Train),
    /// Generate text from a prompt.
    Generate(Generate),
    /// Translate texts with an encoder-decoder.
    Translate(Translate),
    /// Describe a model: architecture, sizes, parameters, memory, FLOPs.
    Info(Info),
    /// Run one forward pass on tensors from a safetensors file.
    Forward(Forward),
    /// Predict masked tokens.
    Fill(Fill),
    /// Classify texts or images, or label tokens.
    Classify(Classify),
    /// Answer a question from a text.
    Answer(Answer),
    /// Embed texts as vectors.
    Embed(Embed),
    /// Tokenize texts, or decode token ids.
    Tokenize(Tokenize),
    /// Convert a model to another format, dtype or shard size.
    Convert(Convert),
    /// List the built-in recipes, or print one.
    Recipes(Recipes),
    /// Print shell completions.
    Completions(Completions),
    /// Print the manual page of the program, or of a command.
    Man(Man),
}

/// Train a model on built-in stories or on your own text.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive train
  attentive train --resume --out runs/stories --steps 1200
  attentive train --dry-run --set model.width=256 --out runs/wide
  attentive train shakespeare-char --data plays.txt --out runs/plays
  attentive recipes stories > mine.toml
  attentive train mine.toml --set optimizer.learning_rate=1e-3")]
pub struct Train {
    /// A built-in recipe (see `attentive recipes`) or a TOML file [default: stories]
    pub recipe: Option<String>,
    /// Text files to train on, instead of the recipe's data
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub data: Vec<PathBuf>,
    /// The run's folder [default: runs/RECIPE]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Number of optimizer steps, instead of the recipe's (training.steps)
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    /// Check the recipe and the data, describe the run, and train nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Override a value of the recipe; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub changes: Vec<String>,
    /// Resume the run in the folder; with RECIPE, start it if there is none
    #[arg(long, conflicts_with = "overwrite")]
    pub resume: bool,
    /// Remove the run in the folder and start over
    #[arg(long)]
    pub overwrite: bool,
    /// Random seed, instead of the recipe's
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(..=MAX_SEED))]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub device: DeviceArgument,
    /// Print events as JSON lines
    #[arg(long)]
    pub json: bool,
}

/// Describe a model.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  attentive info runs/stories\n  attentive info openai-community/gpt2"
)]
pub struct Info {
    /// A model folder, a .gguf file, or a hub model: owner/name, or owner/name@revision
    pub model: PathBuf,
    /// The model_type of a config.json that does not say it, such as bert
    #[arg(long, value_name = "TYPE", help_heading = "Model")]
    pub model_type: Option<String>,
    /// The config.json of a folder that has none
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    pub config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Tokenize texts, or decode token ids.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive tokenize runs/stories \"Once upon a time\"
  attentive tokenize google-bert/bert-base-uncased \"a text\" --pair \"another\"
  attentive tokenize runs/stories --ids 0,17,42")]
pub struct Tokenize {
    /// A model folder, a .gguf file, or a hub model: owner/name, or owner/name@revision
    pub model: PathBuf,
    /// The model_type of a config.json that does not say it, such as bert
    #[arg(long, value_name = "TYPE", help_heading = "Model")]
    pub model_type: Option<String>,
    /// Whether the tokenizer lower-cases text, for a folder that does not say it
    #[arg(long, value_name = "BOOL", help_heading = "Model", action = clap::ArgAction::Set)]
    pub lower_case: Option<bool>,
    /// The texts [default: the lines of standard input]
    #[arg(value_name = "TEXT", conflicts_with = "ids")]
    pub texts: Vec<String>,
    /// The second text of a pair
    #[arg(
        long,
        value_name = "TEXT",
        conflicts_with = "ids",
        allow_hyphen_values = true
    )]
    pub pair: Option<String>,
    /// Token ids to decode
    #[arg(long, value_name = "ID,…", value_delimiter = ',')]
    pub ids: Vec<u32>,
    /// Leave special tokens out of the decoded text
    #[arg(long, requires = "ids", conflicts_with = "texts")]
    pub skip_special_tokens: bool,
    /// Print one JSON object per text; offsets are UTF-8 bytes
    #[arg(long)]
    pub json: bool,
}

/// Convert a model to another format, dtype or shard size.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive convert runs/stories --out stories-hf
  attentive convert openai-community/gpt2 --out gpt2-bf16 --dtype bfloat16
  attentive convert openai-community/gpt2 --out gpt2-shards --shard-size 200MB")]
pub struct Convert {
    #[command(flatten)]
    pub model: ModelArguments,
    /// Output folder; new or empty
    #[arg(short, long, value_name = "DIR")]
    pub out: PathBuf,
    /// Format
    #[arg(long, value_enum, default_value_t = ConvertTo::Hf)]
    pub to: ConvertTo,
    /// Dtype of the weights
    #[arg(long, value_enum, default_value_t = DtypeArgument::Float32)]
    pub dtype: DtypeArgument,
    /// Maximum size of a file of weights: bytes, or with a unit (kB, MB, GB, TB, KiB, MiB, GiB, TiB)
    #[arg(long, value_name = "SIZE", default_value = "50GB", allow_hyphen_values = true, value_parser = parse_size)]
    pub shard_size: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The format of a model folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ConvertTo {
    /// The Hugging Face format, if it has an architecture for the model
    Hf,
    /// This library's own format
    Attentive,
}

/// Dtype of saved weights.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum DtypeArgument {
    /// 32-bit float
    Float32,
    /// 16-bit float
    Float16,
    /// 16-bit float with the range of float32
    Bfloat16,
}

/// List the built-in recipes, or print one.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive recipes
  attentive recipes stories > mine.toml")]
pub struct Recipes {
    /// The recipe to print
    pub name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Print shell completions.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  mkdir -p ~/.local/share/bash-completion/completions
  attentive completions bash > \\
    ~/.local/share/bash-completion/completions/attentive")]
pub struct Completions {
    /// The shell
    pub shell: Shell,
}

/// Print the manual page of the program, or of a command.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive man | man -l -
  attentive man train > attentive-train.1")]
pub struct Man {
    /// The command [default: the program]
    pub command: Option<String>,
}

/// A size in bytes, such as 500MB or 2GiB.
fn parse_size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 9] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1_000),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
    ];
    let unit = UNITS.iter().find(|(unit, _)| text.ends_with(unit));
    let (number, factor) = match unit {
        Some((unit, factor)) => (text.trim_end_matches(unit).trim_end(), *factor),
        None => (text, 1),
    };
    let number: Option<f64> = number.parse().ok();
    let bytes = number.map(|number| number * factor as f64);
    match bytes.filter(|bytes| *bytes >= 1.0 && *bytes < 1e18) {
        Some(bytes) => Ok(bytes as u64),
        None => Err("give a number of bytes, or one with a unit such as 500MB or 2GB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("2GB"), Ok(2_000_000_000));
        assert_eq!(parse_size("1.5 MiB"), Ok(3 << 19));
        assert_eq!(parse_size("700"), Ok(700));
        for wrong in ["", "GB", "-1", "0", "2 parsecs", "nan"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
