//! DistilBERT as Hugging Face writes it. Sanh et al. 2019.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bert_family::{
    ANSWER_ROWS, BertWords, LABEL_ROWS, answers, classes_of_first, labels_of_tokens, masked,
};
use super::heads::bare;
use super::table::{Operation::Same, Part, Row, Table};
use super::{Architecture, Format, LastState, json};
use crate::{Activation, LearnedConfig, ModelConfig, PositionsConfig};

pub(super) const FORMAT: Format = Format {
    model_type: "distilbert",
    decoder: None,
    read,
    write,
    table: Table {
        parts: &[Part {
            ours: "stack.",
            theirs: "distilbert.",
            rows: ROWS,
        }],
        optional_prefix: "distilbert.",
        ignored: &["embeddings.position_ids", "vocab_projector.weight"],
        renamed: &[],
        twins: &[],
        zeros: &[],
    },
    group: |_| 1,
    last_state: LastState::Normed,
    architectures: &[
        bare("DistilBertModel"),
        Architecture {
            name: "DistilBertForMaskedLM",
            heads: masked,
            rows: WORD_ROWS,
            bare: false,
        },
        Architecture {
            name: "DistilBertForSequenceClassification",
            heads: |words, config| classes_of_first(words, config, Some(Activation::Relu)),
            rows: CLASSES_ROWS,
            bare: false,
        },
        Architecture {
            name: "DistilBertForTokenClassification",
            heads: labels_of_tokens,
            rows: LABEL_ROWS,
            bare: false,
        },
        Architecture {
            name: "DistilBertForQuestionAnswering",
            heads: answers,
            rows: ANSWER_ROWS,
            bare: false,
        },
    ],
};

#[rustfmt::skip] // A table is read in columns.
const ROWS: &[Row] = &[
    ("tokens.weight",                                 "embeddings.word_embeddings.weight",                 Same),
    ("positions.weight",                              "embeddings.position_embeddings.weight",             Same),
    ("embedding_norm.weight",                         "embeddings.LayerNorm.weight",                       Same),
    ("embedding_norm.bias",                           "embeddings.LayerNorm.bias",                         Same),
    ("blocks.{layer}.attention.body.query.weight",    "transformer.layer.{layer}.attention.q_lin.weight",   Same),
    ("blocks.{layer}.attention.body.query.bias",      "transformer.layer.{layer}.attention.q_lin.bias",     Same),
    ("blocks.{layer}.attention.body.key.weight",      "transformer.layer.{layer}.attention.k_lin.weight",   Same),
    ("blocks.{layer}.attention.body.key.bias",        "transformer.layer.{layer}.attention.k_lin.bias",     Same),
    ("blocks.{layer}.attention.body.value.weight",    "transformer.layer.{layer}.attention.v_lin.weight",   Same),
    ("blocks.{layer}.attention.body.value.bias",      "transformer.layer.{layer}.attention.v_lin.bias",     Same),
    ("blocks.{layer}.attention.body.output.weight",   "transformer.layer.{layer}.attention.out_lin.weight", Same),
    ("blocks.{layer}.attention.body.output.bias",     "transformer.layer.{layer}.attention.out_lin.bias",   Same),
    ("blocks.{layer}.attention.norm_after.weight",    "transformer.layer.{layer}.sa_layer_norm.weight",     Same),
    ("blocks.{layer}.attention.norm_after.bias",      "transformer.layer.{layer}.sa_layer_norm.bias",       Same),
    ("blocks.{layer}.feed_forward.body.up.weight",    "transformer.layer.{layer}.ffn.lin1.weight",          Same),
    ("blocks.{layer}.feed_forward.body.up.bias",      "transformer.layer.{layer}.ffn.lin1.bias",            Same),
    ("blocks.{layer}.feed_forward.body.down.weight",  "transformer.layer.{layer}.ffn.lin2.weight",          Same),
    ("blocks.{layer}.feed_forward.body.down.bias",    "transformer.layer.{layer}.ffn.lin2.bias",            Same),
    ("blocks.{layer}.feed_forward.norm_after.weight", "transformer.layer.{layer}.output_layer_norm.weight", Same),
    ("blocks.{layer}.feed_forward.norm_after.bias",   "transformer.layer.{layer}.output_layer_norm.bias",   Same),
];

#[rustfmt::skip]
const WORD_ROWS: &[Row] = &[
    ("words.transform.map.weight",  "vocab_transform.weight",  Same),
    ("words.transform.map.bias",    "vocab_transform.bias",    Same),
    ("words.transform.norm.weight", "vocab_layer_norm.weight", Same),
    ("words.transform.norm.bias",   "vocab_layer_norm.bias",   Same),
    ("words.weight",                "vocab_projector.weight",  Same),
    ("words.bias",                  "vocab_projector.bias",    Same),
];

#[rustfmt::skip]
const CLASSES_ROWS: &[Row] = &[
    ("pooler.map.weight",  "pre_classifier.weight", Same),
    ("pooler.map.bias",    "pre_classifier.bias",   Same),
    ("classes.map.weight", "classifier.weight",     Same),
    ("classes.map.bias",   "classifier.bias",       Same),
];

/// The settings of config.json that matter to the numbers. Others are left alone.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Words {
    vocab_size: usize,
    max_position_embeddings: usize,
    dim: usize,
    hidden_dim: usize,
    n_layers: usize,
    n_heads: usize,
    activation: String,
    dropout: f64,
    attention_dropout: f64,
    initializer_range: f64,
    tie_word_embeddings: bool,
}

/// Hugging Face leaves out what equals its defaults, which are those of DistilBERT base.
impl Default for Words {
    fn default() -> Self {
        Self {
            vocab_size: 30522,
            max_position_embeddings: 512,
            dim: 768,
            hidden_dim: 4 * 768,
            n_layers: 6,
            n_heads: 12,
            activation: "gelu".to_owned(),
            dropout: 0.1,
            attention_dropout: 0.1,
            initializer_range: 0.02,
            tie_word_embeddings: true,
        }
    }
}

fn read(words: &Value) -> Result<ModelConfig, String> {
    let words: Words = json::typed(words, "")?;
    // BERT in other words; its epsilon cannot be set.
    let bert = BertWords {
        vocab_size: words.vocab_size,
        max_position_embeddings: words.max_position_embeddings,
        hidden_size: words.dim,
        intermediate_size: words.hidden_dim,
        num_hidden_layers: words.n_layers,
        num_attention_heads: words.n_heads,
        type_vocab_size: 0,
        hidden_act: words.activation,
        hidden_dropout_prob: words.dropout,
        attention_probs_dropout_prob: words.attention_dropout,
        layer_norm_eps: 1e-12,
        initializer_range: words.initializer_range,
        ..BertWords::default()
    };
    let positions = PositionsConfig::Learned(LearnedConfig::default());
    bert.settings(positions, words.max_position_embeddings)
}

fn write(config: &ModelConfig) -> Option<Value> {
    let bert = BertWords::of(config)?;
    let words = Words {
        vocab_size: bert.vocab_size,
        max_position_embeddings: bert.max_position_embeddings,
        dim: bert.hidden_size,
        hidden_dim: bert.intermediate_size,
        n_layers: bert.num_hidden_layers,
        n_heads: bert.num_attention_heads,
        activation: bert.hidden_act,
        dropout: bert.hidden_dropout_prob,
        attention_dropout: bert.attention_probs_dropout_prob,
        initializer_range: bert.initializer_range,
        tie_word_embeddings: bert.tie_word_embeddings,
    };
    serde_json::to_value(words).ok()
}
