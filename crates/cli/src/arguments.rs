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
    /// Fill the gaps of a text.
    Fill(Fill),
    /// Tell the class of texts or pictures, or the labels of a text's tokens.
    Classify(Classify),
    /// Make vectors of texts, by which their meanings can be compared.
    Embed(Embed),
    /// Show the tokens of a text, or the text of tokens.
    Tokenize(Tokenize),
    /// Save a model anew: in Hugging Face's words or ours, as other numbers, in several files.
    Convert(Convert),
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
  attentive generate runs/stories --ids 0,17,42 --temperature 0 --json
  attentive generate openai-community/gpt2 --prompt \"The meaning of life is\"
  attentive generate SmolLM2-135M-Instruct.gguf --chat --prompt \"What is the capital of France?\"")]
pub struct Generate {
    /// A model folder, a .gguf file, or a model of the hub: owner/name, or owner/name@revision
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
    /// Give the text to the model as a user's message, in the model's own chat template, and show the answer
    #[arg(long, conflicts_with = "ids")]
    pub chat: bool,
    /// What the model is told before the user's message
    #[arg(
        long,
        value_name = "TEXT",
        requires = "chat",
        allow_hyphen_values = true
    )]
    pub system: Option<String>,
    /// The most tokens to make [default: the model's, or 200]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_tokens: Option<usize>,
    #[command(flatten)]
    pub search: SearchArguments,
    /// How many of the texts that a search found are printed, best first [default: the model's, or 1]
    #[arg(long = "return", value_name = "N", allow_negative_numbers = true)]
    pub returned: Option<usize>,
    /// Divides the scores: low is careful, high is wild, 0 always takes the likeliest token [default: the model's, or 0.8,
    /// or 0 for an encoder-decoder if neither the model nor --top-k or --top-p asks for drawing]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub temperature: Option<f64>,
    /// Choose among the K likeliest tokens [default: the model's]
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    pub top_k: Option<usize>,
    /// Choose among the likeliest tokens that together have probability P [default: the model's]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub top_p: Option<f64>,
    /// Makes tokens that already occurred less likely; 1 leaves them [default: the model's, or 1]
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    pub repetition_penalty: Option<f64>,
    /// A string that ends the text; may be given several times
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub stop: Vec<String>,
    /// Where the randomness starts, if tokens are drawn [default: another each time]
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
#[command(
    after_help = "Examples:\n  attentive info runs/stories\n  attentive info openai-community/gpt2"
)]
pub struct Info {
    /// A model folder, a .gguf file, or a model of the hub: owner/name, or owner/name@revision
    pub model: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// One forward pass, from tensors to tensors, named as Hugging Face names them.
#[derive(Args, Debug)]
#[command(after_help = "\
Reads what the model takes: input_ids or pixel_values, decoder_input_ids of an encoder-decoder, and attention_mask,
position_ids, token_type_ids and the like where they are given.
Writes what its heads give (logits, pooler_output, start_logits, …) and last_hidden_state, and on request
hidden_states.{i}, attentions.{i}, cross_attentions.{i} and past_key_values.{i}.

Example:
  attentive forward runs/stories --inputs in.safetensors --save out.safetensors --attentions")]
pub struct Forward {
    /// A model folder, a .gguf file, or a model of the hub: owner/name, or owner/name@revision
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

/// Where texts come from, and how many are read at once.
#[derive(Args, Debug)]
pub struct TextArguments {
    /// The texts [default: the lines of standard input]
    #[arg(value_name = "TEXT", conflicts_with = "file")]
    pub texts: Vec<String>,
    /// A file of texts, one per line
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// How many texts are read at once
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..))]
    pub batch: u16,
    /// Cut texts that are longer than the model reads, instead of refusing them
    #[arg(long)]
    pub cut: bool,
    /// Print a JSON object per text
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub device: DeviceArgument,
}

/// Fill the gaps of a text.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive fill bert-base-uncased \"Paris is the [MASK] of France.\"
  attentive fill roberta-base --top 3 --json < lines.txt")]
pub struct Fill {
    /// A model folder, or a model of the hub: owner/name, or owner/name@revision
    pub model: PathBuf,
    #[command(flatten)]
    pub input: TextArguments,
    /// How many tokens to show for each gap
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub top: u32,
}

/// Tell the class of texts or pictures, or the labels of a text's tokens.
#[derive(Args, Debug)]
#[command(after_help = "\
Where one class holds, probabilities add up to one; where the model's problem_type says that several may hold, or there is
but one class, each has its own; where it says regression, the model's numbers are shown as they are.

Examples:
  attentive classify my-classifier \"I liked it\" \"I did not\"
  attentive classify my-classifier --pairs --file pairs.tsv --json
  attentive classify vit-base-patch16-224 photo.jpg scans/")]
pub struct Classify {
    /// A model folder, or a model of the hub: owner/name, or owner/name@revision
    pub model: PathBuf,
    /// Texts; of a model of pictures, image files or folders of them
    #[command(flatten)]
    pub input: TextArguments,
    /// Each line is two texts with a tab between them
    #[arg(long)]
    pub pairs: bool,
    /// How many classes to show for each input
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub top: u32,
}

/// Make vectors of texts, by which their meanings can be compared.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive embed all-MiniLM-L6-v2 \"The weather is lovely today.\" \"It's so sunny outside!\" --similarity
  attentive embed all-MiniLM-L6-v2 --file sentences.txt --json > vectors.jsonl")]
pub struct Embed {
    /// A model folder, or a model of the hub: owner/name, or owner/name@revision
    pub model: PathBuf,
    #[command(flatten)]
    pub input: TextArguments,
    /// What a vector is made of [default: what modules.json of the folder says, else mean]
    #[arg(long, value_enum)]
    pub pooling: Option<PoolingArgument>,
    /// Leave vectors as long as they are, instead of giving them length one [default: what modules.json says, else length one]
    #[arg(long)]
    pub no_normalize: bool,
    /// Show how similar the texts are to each other instead of their vectors
    #[arg(long)]
    pub similarity: bool,
}

/// What a vector of a text is made of.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum PoolingArgument {
    /// The mean of all tokens
    Mean,
    /// The first token
    Cls,
    /// The last token
    Last,
    /// The largest number of all tokens, in each place
    Max,
}

/// Show the tokens of a text, or the text of tokens.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive tokenize runs/stories \"Once upon a time\"
  attentive tokenize runs/stories --json < lines.txt
  attentive tokenize runs/stories --ids 0,17,42")]
pub struct Tokenize {
    /// A model folder, a .gguf file, or a model of the hub: owner/name, or owner/name@revision
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

/// Save a model anew: in Hugging Face's words or ours, as other numbers, in several files.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive convert runs/stories --to hf --out stories-hf
  attentive convert SmolLM2-135M-Instruct.gguf --out smollm2 --dtype bfloat16
  attentive convert openai-community/gpt2-xl --out gpt2-xl --shard-size 2000000000")]
pub struct Convert {
    /// A model folder, a .gguf file, or a model of the hub: owner/name, or owner/name@revision
    pub model: PathBuf,
    /// Where to save it: a folder that is empty or still to be made
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// In whose words
    #[arg(long, value_enum, default_value_t = ConvertTo::Hf)]
    pub to: ConvertTo,
    /// As which numbers
    #[arg(long, value_enum, default_value_t = NumbersArgument::Float32)]
    pub dtype: NumbersArgument,
    /// The most bytes of weights in one file
    #[arg(long, value_name = "BYTES", default_value_t = 50_000_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub shard_size: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// In whose words a model is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ConvertTo {
    /// Hugging Face's, where it has an architecture for the model
    Hf,
    /// Ours
    Attentive,
}

/// As which numbers weights are saved.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum NumbersArgument {
    /// 32 bits
    Float32,
    /// 16 bits
    Float16,
    /// 16 bits with the range of 32
    Bfloat16,
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
