//! Arguments of the tasks of encoders, and of `forward`.

use std::path::PathBuf;

use attentive::tasks::Pooling;
use clap::Args;

use super::{ModelArguments, TextArguments, TokenizerArgument};

/// Run one forward pass on tensors from a safetensors file.
#[derive(Args, Debug)]
#[command(after_help = "\
Inputs, under their Hugging Face names: input_ids or pixel_values, decoder_input_ids for an encoder-decoder, \
and optionally attention_mask, position_ids, token_type_ids and others.
Outputs: last_hidden_state and those of the heads (logits, pooler_output, start_logits, …); on request \
hidden_states.{i}, attentions.{i}, cross_attentions.{i} and past_key_values.{i}.

Example:
  attentive forward runs/stories --attentions \\
    -i in.safetensors -o out.safetensors")]
pub struct Forward {
    #[command(flatten)]
    pub model: ModelArguments,
    /// Safetensors file with the inputs
    #[arg(short, long, value_name = "FILE", help_heading = "Input")]
    pub inputs: PathBuf,
    /// Safetensors file for the outputs
    #[arg(short = 'o', long, value_name = "FILE", help_heading = "Output")]
    pub save: PathBuf,
    /// Save the hidden states after the embedding and each block
    #[arg(long, help_heading = "Output")]
    pub hidden_states: bool,
    /// Save the attention weights of each block
    #[arg(long, help_heading = "Output")]
    pub attentions: bool,
    /// Save the keys and values of the KV cache
    #[arg(long, help_heading = "Output")]
    pub past_key_values: bool,
    /// Print the names and shapes of the outputs as JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// Predict masked tokens.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive fill google-bert/bert-base-uncased \"Paris is the [MASK] of France.\"
  echo \"Paris is the <mask> of France.\" | attentive fill FacebookAI/roberta-base")]
pub struct Fill {
    #[command(flatten)]
    pub model: ModelArguments,
    #[command(flatten)]
    pub tokenizer: TokenizerArgument,
    #[command(flatten)]
    pub input: TextArguments,
    /// Number of predictions per mask
    #[arg(long, value_name = "N", default_value_t = 5, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Output")]
    pub top: u32,
}

/// Classify texts or images, or label tokens.
#[derive(Args, Debug)]
#[command(after_help = "\
Probabilities come from a softmax over the classes; from a sigmoid per class if problem_type is \
multi_label_classification or there is a single class; with regression, the logits are shown as they are.

Examples:
  attentive classify dslim/bert-base-NER \"Ada Lovelace lived in London.\"
  attentive classify google/vit-base-patch16-224 photo.jpg
  printf 'How tall is it?\\tIt is ten metres tall.\\n' > pairs.tsv
  attentive classify cross-encoder/ms-marco-MiniLM-L6-v2 --pairs -f pairs.tsv")]
pub struct Classify {
    #[command(flatten)]
    pub model: ModelArguments,
    #[command(flatten)]
    pub tokenizer: TokenizerArgument,
    /// Texts; for an image classifier, image files or folders of them
    #[command(flatten)]
    pub input: TextArguments,
    /// Each line is a pair of texts separated by a tab
    #[arg(long, help_heading = "Input")]
    pub pairs: bool,
    /// Number of classes to show per input; a token has one label [default: 5]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Output")]
    pub top: Option<u32>,
}

/// Answer a question from a text.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive answer distilbert/distilbert-base-cased-distilled-squad \\
    \"Who sat on the mat?\" \"A cat sat on the mat.\"
  echo \"A cat sat on the mat.\" | \\
    attentive answer distilbert/distilbert-base-cased-distilled-squad \"Who sat?\"")]
pub struct Answer {
    #[command(flatten)]
    pub model: ModelArguments,
    #[command(flatten)]
    pub tokenizer: TokenizerArgument,
    /// The question
    #[arg(value_name = "QUESTION")]
    pub question: String,
    /// The text that holds the answer [default: standard input]
    #[arg(value_name = "CONTEXT")]
    pub context: Option<String>,
    /// Maximum number of tokens of an answer
    #[arg(long, value_name = "N", default_value_t = 15, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Output")]
    pub max_answer_tokens: u32,
    /// Number of answers
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Output")]
    pub top: u32,
    /// Print JSON; offsets are UTF-8 bytes
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// Embed texts as vectors.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  attentive embed sentence-transformers/all-MiniLM-L6-v2 --similarity \\
    \"The weather is lovely today.\" \"It's so sunny outside!\"
  printf 'It rains.\\nIt snows.\\n' > lines.txt
  attentive embed sentence-transformers/all-MiniLM-L6-v2 -f lines.txt \\
    --output vectors.npy
  attentive embed sentence-transformers/all-MiniLM-L6-v2 -f lines.txt --json")]
pub struct Embed {
    #[command(flatten)]
    pub model: ModelArguments,
    #[command(flatten)]
    pub tokenizer: TokenizerArgument,
    #[command(flatten)]
    pub input: TextArguments,
    /// Pooling [default: that of the folder's modules.json, or mean]
    #[arg(long, value_enum, help_heading = "Output")]
    pub pooling: Option<PoolingArgument>,
    /// Do not normalize vectors to length one [default: as the folder's modules.json says, or normalize]
    #[arg(long, help_heading = "Output")]
    pub no_normalize: bool,
    /// Show the cosine similarities of the texts instead of their vectors
    #[arg(long, conflicts_with = "output", help_heading = "Output")]
    pub similarity: bool,
    /// Write the vectors to a file: .npy, .safetensors (tensor `embeddings`) or .jsonl
    #[arg(
        short,
        long,
        value_name = "FILE",
        conflicts_with = "json",
        help_heading = "Output"
    )]
    pub output: Option<PathBuf>,
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

impl From<PoolingArgument> for Pooling {
    fn from(pooling: PoolingArgument) -> Self {
        match pooling {
            PoolingArgument::Mean => Self::Mean,
            PoolingArgument::Cls => Self::Cls,
            PoolingArgument::Last => Self::LastToken,
            PoolingArgument::Max => Self::Max,
        }
    }
}
