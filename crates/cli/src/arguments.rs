//! The command line, as clap reads it.

mod search;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

pub use search::{EarlyStopping, SearchArguments, Translate};

/// The largest number that a recipe, which is TOML, can hold.
const LARGEST_SEED: u64 = i64::MAX as u64;

/// The whole transformer family: train, use and look inside.
#[derive(Debug, Parser)]
#[command(name = "attentive", version, disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  attentive train
  attentive generate runs/stories --prompt \"Once upon a time\"")]
pub struct Arguments {
    /// What to do; without a command, what to try first is printed.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a model on built-in stories or on your own text.
    Train(Train),
    /// Continue a text, or answer one with an encoder-decoder.
    Generate(Generate),
    /// Translate texts with an encoder-decoder.
    Translate(Translate),
    /// Describe a model: architecture, sizes, parameters, memory, operations.
    Info(Info),
    /// One forward pass, from tensors to tensors, named as Hugging Face names them.
    Forward(Forward),
    /// Show the tokens of a text, or the text of tokens.
    Tokenize(Tokenize),
    /// List the built-in recipes, or print one.
    Recipes(Recipes),
    /// Print the completions of a shell.
    Completions(Completions),
}

/// Train a model on built-in stories or on your own text.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive train
  attentive train shakespeare-char --data tinyshakespeare.txt --out runs/plays
  attentive train my-recipe.toml --set training.steps=500 --set model.width=256
  attentive train --resume --out runs/stories")]
pub struct Train {
    /// A built-in recipe (see `attentive recipes`) or a TOML file [default: stories]
    pub recipe: Option<String>,
    /// Text files to train on, instead of the recipe's data
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub data: Vec<PathBuf>,
    /// The run's folder [default: runs/RECIPE]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Change a value of the recipe; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub changes: Vec<String>,
    /// Go on with the run in the folder; if RECIPE is given and there is none, begin
    #[arg(long, conflicts_with = "overwrite")]
    pub resume: bool,
    /// Remove the run in the folder and start anew
    #[arg(long)]
    pub overwrite: bool,
    /// Where all randomness starts, instead of the recipe's seed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=LARGEST_SEED))]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub device: DeviceArgument,
    /// Print events as lines of JSON
    #[arg(long)]
    pub json: bool,
}

/// Continue a text, or answer one with an encoder-decoder.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive generate runs/stories --prompt \"Once upon a time\"
  attentive generate bart-large-cnn --beams 4 < article.txt
  echo \"The little fox\" | attentive generate runs/stories --temperature 0.7 --top-k 20
  attentive generate runs/stories --ids 0,17,42 --temperature 0 --json")]
pub struct Generate {
    /// A model folder
    pub model: PathBuf,
    /// The text to continue, or the encoder's source [default: standard input, if it is not a terminal]
    #[arg(
        long,
        value_name = "TEXT",
        conflicts_with = "ids",
        allow_hyphen_values = true
    )]
    pub prompt: Option<String>,
    /// Token ids, instead of a text
    #[arg(long, value_name = "ID,…", value_delimiter = ',')]
    pub ids: Vec<u32>,
    /// The most tokens to make [default: the model's, or 200]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_tokens: Option<usize>,
    #[command(flatten)]
    pub search: SearchArguments,
    /// How many of the texts that a search found are printed, best first [default: 1]
    #[arg(long = "return", value_name = "N", allow_negative_numbers = true)]
    pub returned: Option<usize>,
    /// Divides the scores: low is careful, high is wild, 0 always takes the likeliest token [default: 0.8, or 0 for an
    /// encoder-decoder unless other options of sampling are given]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub temperature: Option<f64>,
    /// Choose among the K likeliest tokens
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    pub top_k: Option<usize>,
    /// Choose among the likeliest tokens that together have probability P
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub top_p: Option<f64>,
    /// Makes tokens that already occurred less likely; 1 leaves them
    #[arg(
        long,
        value_name = "R",
        default_value_t = 1.0,
        allow_negative_numbers = true
    )]
    pub repetition_penalty: f64,
    /// A string that ends the text; may be given several times
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub stop: Vec<String>,
    /// Where the randomness starts [default: another each time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=LARGEST_SEED))]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub device: DeviceArgument,
    /// Print one JSON object at the end, instead of streamed text
    #[arg(long)]
    pub json: bool,
}

/// Describe a model.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  attentive info runs/stories")]
pub struct Info {
    /// A model folder
    pub model: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// One forward pass, from tensors to tensors, named as Hugging Face names them.
#[derive(Args, Debug)]
#[command(after_help = "\
Reads input_ids, and attention_mask and position_ids where they are given.
Writes logits and last_hidden_state, and on request hidden_states.{i} and attentions.{i}.

Example:
  attentive forward runs/stories --inputs in.safetensors --save out.safetensors --attentions")]
pub struct Forward {
    /// A model folder
    pub model: PathBuf,
    /// A safetensors file with the inputs
    #[arg(long, value_name = "FILE")]
    pub inputs: PathBuf,
    /// Where to save the outputs
    #[arg(long, value_name = "FILE")]
    pub save: PathBuf,
    /// Save the hidden state after the embedding and after each block
    #[arg(long)]
    pub hidden_states: bool,
    /// Save the attention weights of each block
    #[arg(long)]
    pub attentions: bool,
    /// Save the keys and values that a cache would hold
    #[arg(long)]
    pub past_key_values: bool,
    #[command(flatten)]
    pub device: DeviceArgument,
}

/// Show the tokens of a text, or the text of tokens.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive tokenize runs/stories \"Once upon a time\"
  attentive tokenize runs/stories --json < lines.txt
  attentive tokenize runs/stories --ids 0,17,42")]
pub struct Tokenize {
    /// A model folder
    pub model: PathBuf,
    /// The texts [default: the lines of standard input]
    #[arg(value_name = "TEXT", conflicts_with = "ids")]
    pub texts: Vec<String>,
    /// A second text for each, as models of pairs of texts read them
    #[arg(
        long,
        value_name = "TEXT",
        conflicts_with = "ids",
        allow_hyphen_values = true
    )]
    pub pair: Option<String>,
    /// Ids whose text to show, instead of texts
    #[arg(long, value_name = "ID,…", value_delimiter = ',')]
    pub ids: Vec<u32>,
    /// Print a JSON object per text
    #[arg(long)]
    pub json: bool,
}

/// List the built-in recipes, or print one.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive recipes
  attentive recipes stories > my-recipe.toml")]
pub struct Recipes {
    /// The recipe to print
    pub name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Print the completions of a shell.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  attentive completions bash > ~/.local/share/bash-completion/completions/attentive"
)]
pub struct Completions {
    /// The shell
    pub shell: Shell,
}

/// Where to compute.
#[derive(Args, Debug)]
pub struct DeviceArgument {
    /// Where to compute: cpu, or cuda, metal, rocm, vulkan, webgpu in builds with that feature
    #[arg(long, value_name = "D", default_value = "cpu")]
    pub device: String,
}
