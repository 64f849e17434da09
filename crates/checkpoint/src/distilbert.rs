//! DistilBERT in Hugging Face's format. Sanh et al. 2019.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bert_family::{
    BertConfig, QA_ROWS, TOKEN_CLASSIFIER_ROWS, mlm_head, question_answering, sequence_classifier,
    token_classifier,
};
use super::heads::base_model;
use super::name_table::{NameTable, Section, TensorRow, Transform::Same};
use super::{Format, LastHiddenState, ModelClass, config_json};
use attentive_model::positions::{LearnedConfig, PositionsConfig};
use attentive_model::{Activation, ModelConfig};

pub(super) const FORMAT: Format = Format {
    model_type: "distilbert",
    decoder: None,
    read,
    write,
    table: NameTable {
        sections: &[Section {
            model_prefix: "stack.",
            file_prefix: "distilbert.",
            rows: ROWS,
        }],
        optional_prefix: "distilbert.",
        ignored: &["embeddings.position_ids", "vocab_projector.weight"],
        renamed: &[],
        aliases: &[],
        zero_if_missing: &[],
    },
    group: |_| 1,
    last_hidden_state: LastHiddenState::AfterFinalNorm,
    architectures: &[
        base_model("DistilBertModel"),
        ModelClass {
            name: "DistilBertForMaskedLM",
            heads: mlm_head,
            rows: LM_HEAD_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "DistilBertForSequenceClassification",
            heads: |json, config| sequence_classifier(json, config, Some(Activation::Relu)),
            rows: CLASSIFIER_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "DistilBertForTokenClassification",
            heads: token_classifier,
            rows: TOKEN_CLASSIFIER_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "DistilBertForQuestionAnswering",
            heads: question_answering,
            rows: QA_ROWS,
            base_model: false,
        },
    ],
};

#[rustfmt::skip] // Keeps the columns aligned.
const ROWS: &[TensorRow] = &[
    ("tokens.weight",                                 "embeddings.word_embeddings.weight",                  Same),
    ("positions.weight",                              "embeddings.position_embeddings.weight",              Same),
    ("embedding_norm.weight",                         "embeddings.LayerNorm.weight",                        Same),
    ("embedding_norm.bias",                           "embeddings.LayerNorm.bias",                          Same),
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
const LM_HEAD_ROWS: &[TensorRow] = &[
    ("lm_head.transform.projection.weight", "vocab_transform.weight",  Same),
    ("lm_head.transform.projection.bias",   "vocab_transform.bias",    Same),
    ("lm_head.transform.norm.weight",       "vocab_layer_norm.weight", Same),
    ("lm_head.transform.norm.bias",         "vocab_layer_norm.bias",   Same),
    ("lm_head.weight",                      "vocab_projector.weight",  Same),
    ("lm_head.bias",                        "vocab_projector.bias",    Same),
];

#[rustfmt::skip]
const CLASSIFIER_ROWS: &[TensorRow] = &[
    ("pooler.projection.weight",              "pre_classifier.weight", Same),
    ("pooler.projection.bias",                "pre_classifier.bias",   Same),
    ("sequence_classifier.projection.weight", "classifier.weight",     Same),
    ("sequence_classifier.projection.bias",   "classifier.bias",       Same),
];

/// The keys of config.json that affect the output. Other keys are ignored.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct DistilBertConfig {
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

/// Hugging Face leaves out keys with default values, which are those of DistilBERT base.
impl Default for DistilBertConfig {
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

fn read(json: &Value) -> Result<ModelConfig, String> {
    let hf: DistilBertConfig = config_json::typed(json, "")?;
    // BERT under other keys; the epsilon is fixed.
    let bert = BertConfig {
        vocab_size: hf.vocab_size,
        max_position_embeddings: hf.max_position_embeddings,
        hidden_size: hf.dim,
        intermediate_size: hf.hidden_dim,
        num_hidden_layers: hf.n_layers,
        num_attention_heads: hf.n_heads,
        type_vocab_size: 0,
        hidden_act: hf.activation,
        hidden_dropout_prob: hf.dropout,
        attention_probs_dropout_prob: hf.attention_dropout,
        layer_norm_eps: 1e-12,
        initializer_range: hf.initializer_range,
        ..BertConfig::default()
    };
    let positions = PositionsConfig::Learned(LearnedConfig::default());
    bert.model(positions, hf.max_position_embeddings)
}

fn write(config: &ModelConfig) -> Option<Value> {
    let bert = BertConfig::of(config)?;
    let hf = DistilBertConfig {
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
    serde_json::to_value(hf).ok()
}
