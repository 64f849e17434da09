//! The command line, as clap reads it.

mod search;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

pub use search::{EarlyStopping, SearchArguments, Translate};

/// The largest integer of TOML, since recipes hold seeds.
const MAX_SEED: u64 = i64::MAX as u64;

/// The whole transformer family: train, use and inspect.
#[derive(Debug, Parser)]
#[command(name = "attentive", version, disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  attentive train
  attentive generate runs/stories --prompt \"Once upon a time\"")]
pub struct Arguments {
    /// What to do; without a command, the first steps are printed
    #[command(subcommand)]
    pub command: Option<Command>,
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
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MAX_SEED))]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub device: DeviceArgument,
    /// Print events as JSON lines
    #[arg(long)]
    pub json: bool,
}

/// Generate text from a prompt.
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
    /// A model folder, a .gguf file, or a hub model: owner/name, or owner/name@revision
    pub model: PathBuf,
    /// The prompt, or the source of an encoder-decoder [default: standard input, unless it is a terminal]
    #[arg(
        long,
        value_name = "TEXT",
        conflicts_with = "ids",
        allow_hyphen_values = true
    )]
    pub prompt: Option<String>,
    /// Prompt as token ids
    #[arg(long, value_name = "ID,…", value_delimiter = ',')]
    pub ids: Vec<u32>,
    /// Send the prompt as a user message in the model's chat template
    #[arg(long, conflicts_with = "ids")]
    pub chat: bool,
    /// System message of the chat
    #[arg(
        long,
        value_name = "TEXT",
        requires = "chat",
        allow_hyphen_values = true
    )]
    pub system: Option<String>,
    /// Maximum number of new tokens [default: the model's, or 200]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_new_tokens: Option<usize>,
    #[command(flatten)]
    pub search: SearchArguments,
    /// Number of beams to return, best first [default: the model's, or 1]
    #[arg(long = "return", value_name = "N", allow_negative_numbers = true)]
    pub returned: Option<usize>,
    /// Sampling temperature; 0 is greedy decoding [default: the model's, or 0.8, or 0 for an encoder-decoder if neither the
    /// model nor --top-k or --top-p asks for sampling]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub temperature: Option<f64>,
    /// Sample from the K most likely tokens [default: the model's]
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    pub top_k: Option<usize>,
    /// Nucleus sampling: the most likely tokens with total probability P [default: the model's]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub top_p: Option<f64>,
    /// Repetition penalty; 1 disables it [default: the model's, or 1]
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    pub repetition_penalty: Option<f64>,
    /// Stop string; repeatable
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub stop: Vec<String>,
    /// Random seed for sampling [default: random]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MAX_SEED))]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub device: DeviceArgument,
    /// Print one JSON object at the end instead of streaming text
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
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Run one forward pass on tensors from a safetensors file.
#[derive(Args, Debug)]
#[command(after_help = "\
Inputs, under their Hugging Face names: input_ids or pixel_values, decoder_input_ids for an encoder-decoder, \
and optionally attention_mask, position_ids, token_type_ids and others.
Outputs: last_hidden_state and those of the heads (logits, pooler_output, start_logits, …); on request \
hidden_states.{i}, attentions.{i}, cross_attentions.{i} and past_key_values.{i}.

Example:
  attentive forward runs/stories --inputs in.safetensors --save out.safetensors --attentions")]
pub struct Forward {
    /// A model folder, a .gguf file, or a hub model: owner/name, or owner/name@revision
    pub model: PathBuf,
    /// Safetensors file with the inputs
    #[arg(long, value_name = "FILE")]
    pub inputs: PathBuf,
    /// Safetensors file for the outputs
    #[arg(long, value_name = "FILE")]
    pub save: PathBuf,
    /// Save the hidden states after the embedding and each block
    #[arg(long)]
    pub hidden_states: bool,
    /// Save the attention weights of each block
    #[arg(long)]
    pub attentions: bool,
    /// Save the keys and values of the KV cache
    #[arg(long)]
    pub past_key_values: bool,
    #[command(flatten)]
    pub device: DeviceArgument,
}

/// Input texts and batch size.
#[derive(Args, Debug)]
pub struct TextArguments {
    /// The texts [default: the lines of standard input]
    #[arg(value_name = "TEXT", conflicts_with = "file")]
    pub texts: Vec<String>,
    /// A file of texts, one per line
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Batch size
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..))]
    pub batch_size: u16,
    /// Truncate texts that exceed the model's length instead of refusing them
    #[arg(long)]
    pub truncate: bool,
    /// Print one JSON object per text
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub device: DeviceArgument,
}

/// Predict masked tokens.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive fill bert-base-uncased \"Paris is the [MASK] of France.\"
  attentive fill roberta-base --top 3 --json < lines.txt")]
pub struct Fill {
    /// A model folder, or a hub model: owner/name, or owner/name@revision
    pub model: PathBuf,
    #[command(flatten)]
    pub input: TextArguments,
    /// Number of predictions per mask
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub top: u32,
}

/// Classify texts or images, or label tokens.
#[derive(Args, Debug)]
#[command(after_help = "\
Probabilities come from a softmax over the classes; from a sigmoid per class if problem_type is \
multi_label_classification or there is a single class; with regression, the logits are shown as they are.

Examples:
  attentive classify my-classifier \"I liked it\" \"I did not\"
  attentive classify my-classifier --pairs --file pairs.tsv --json
  attentive classify vit-base-patch16-224 photo.jpg scans/")]
pub struct Classify {
    /// A model folder, or a hub model: owner/name, or owner/name@revision
    pub model: PathBuf,
    /// Texts; for an image classifier, image files or folders of them
    #[command(flatten)]
    pub input: TextArguments,
    /// Each line is a pair of texts separated by a tab
    #[arg(long)]
    pub pairs: bool,
    /// Number of classes to show per input
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub top: u32,
}

/// Embed texts as vectors.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive embed all-MiniLM-L6-v2 \"The weather is lovely today.\" \"It's so sunny outside!\" --similarity
  attentive embed all-MiniLM-L6-v2 --file sentences.txt --json > vectors.jsonl")]
pub struct Embed {
    /// A model folder, or a hub model: owner/name, or owner/name@revision
    pub model: PathBuf,
    #[command(flatten)]
    pub input: TextArguments,
    /// Pooling [default: that of the folder's modules.json, or mean]
    #[arg(long, value_enum)]
    pub pooling: Option<PoolingArgument>,
    /// Do not normalize vectors to length one [default: as the folder's modules.json says, or normalize]
    #[arg(long)]
    pub no_normalize: bool,
    /// Show the cosine similarities of the texts instead of their vectors
    #[arg(long)]
    pub similarity: bool,
}

/// How token vectors become one vector.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum PoolingArgument {
    /// Mean over the tokens
    Mean,
    /// The first token
    Cls,
    /// The last token
    Last,
    /// Maximum over the tokens, per dimension
    Max,
}

/// Tokenize texts, or decode token ids.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive tokenize runs/stories \"Once upon a time\"
  attentive tokenize runs/stories --json < lines.txt
  attentive tokenize runs/stories --ids 0,17,42")]
pub struct Tokenize {
    /// A model folder, a .gguf file, or a hub model: owner/name, or owner/name@revision
    pub model: PathBuf,
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
    /// Print one JSON object per text
    #[arg(long)]
    pub json: bool,
}

/// Convert a model to another format, dtype or shard size.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive convert runs/stories --to hf --out stories-hf
  attentive convert SmolLM2-135M-Instruct.gguf --out smollm2 --dtype bfloat16
  attentive convert openai-community/gpt2-xl --out gpt2-xl --shard-size 2000000000")]
pub struct Convert {
    /// A model folder, a .gguf file, or a hub model: owner/name, or owner/name@revision
    pub model: PathBuf,
    /// Output folder; new or empty
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Format
    #[arg(long, value_enum, default_value_t = ConvertTo::Hf)]
    pub to: ConvertTo,
    /// Dtype of the weights
    #[arg(long, value_enum, default_value_t = DtypeArgument::Float32)]
    pub dtype: DtypeArgument,
    /// Maximum bytes of weights per file
    #[arg(long, value_name = "BYTES", default_value_t = 50_000_000_000, value_parser = clap::value_parser!(u64).range(1..))]
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
  attentive recipes stories > my-recipe.toml")]
pub struct Recipes {
    /// The recipe to print
    pub name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Print shell completions.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  attentive completions bash > ~/.local/share/bash-completion/completions/attentive"
)]
pub struct Completions {
    /// The shell
    pub shell: Shell,
}

/// The device.
#[derive(Args, Debug)]
pub struct DeviceArgument {
    /// Device: cpu, or cuda, metal, rocm, vulkan, webgpu in builds with that feature
    #[arg(long, value_name = "D", default_value = "cpu")]
    pub device: String,
}
