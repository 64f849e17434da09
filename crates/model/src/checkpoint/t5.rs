//! T5 as Hugging Face writes it, in its first version and in 1.1, which has gates and a head of its own. Raffel et al. 2020;
//! Shazeer 2020.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::heads::{bare, refuse_unless};
use super::table::{Operation::*, Part, Row, Table};
use super::words::{activation, activation_name};
use super::{Architecture, Format, LastState, json};
use crate::{
    AttentionConfig, BlockConfig, BucketDirection, EmbeddingConfig, FeedForwardConfig,
    FullAttentionConfig, GatedConfig, HeadConfig, ModelConfig, NormConfig, NormPlacement,
    PlainConfig, PositionsConfig, Role, T5BucketsConfig, WordsConfig,
};

pub(super) const FORMAT: Format = Format {
    model_type: "t5",
    decoder: None,
    read,
    write,
    table: Table {
        parts: &[
            Part {
                ours: "stack.",
                theirs: "",
                rows: &[("tokens.weight", "shared.weight", Same)],
            },
            Part {
                ours: "stack.",
                theirs: "decoder.",
                rows: DECODER_ROWS,
            },
            Part {
                ours: "encoder.",
                theirs: "encoder.",
                rows: ENCODER_ROWS,
            },
        ],
        optional_prefix: "",
        // Copies of the shared table, and a table that the first releases saved and never used.
        ignored: &[
            "encoder.embed_tokens.weight",
            "decoder.embed_tokens.weight",
            "lm_head.weight",
            "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
        ],
        renamed: &[],
        twins: &[],
        zeros: &[],
    },
    group: |_| 1,
    last_state: LastState::Normed,
    architectures: &[
        Architecture {
            name: "T5ForConditionalGeneration",
            heads: |_, _| Ok(()),
            rows: &[("words.weight", "lm_head.weight", Same)],
            bare: false,
        },
        bare("T5Model"),
    ],
};

#[rustfmt::skip] // A table is read in columns.
const ENCODER_ROWS: &[Row] = &[
    ("positions.weight",                               "block.0.layer.0.SelfAttention.relative_attention_bias.weight", Same),
    ("blocks.{layer}.attention.norm_before.weight",    "block.{layer}.layer.0.layer_norm.weight",             Same),
    ("blocks.{layer}.attention.body.query.weight",     "block.{layer}.layer.0.SelfAttention.q.weight",        Same),
    ("blocks.{layer}.attention.body.key.weight",       "block.{layer}.layer.0.SelfAttention.k.weight",        Same),
    ("blocks.{layer}.attention.body.value.weight",     "block.{layer}.layer.0.SelfAttention.v.weight",        Same),
    ("blocks.{layer}.attention.body.output.weight",    "block.{layer}.layer.0.SelfAttention.o.weight",        Same),
    ("blocks.{layer}.feed_forward.norm_before.weight", "block.{layer}.layer.1.layer_norm.weight",             Same),
    ("blocks.{layer}.feed_forward.body.gate.weight",   "block.{layer}.layer.1.DenseReluDense.wi_0.weight",    Same),
    ("blocks.{layer}.feed_forward.body.up.weight",     "block.{layer}.layer.1.DenseReluDense.{up}.weight",    Same),
    ("blocks.{layer}.feed_forward.body.down.weight",   "block.{layer}.layer.1.DenseReluDense.wo.weight",      Same),
    ("final_norm.weight",                              "final_layer_norm.weight",                             Same),
];

#[rustfmt::skip] // A table is read in columns.
const DECODER_ROWS: &[Row] = &[
    ("positions.weight",                               "block.0.layer.0.SelfAttention.relative_attention_bias.weight", Same),
    ("blocks.{layer}.attention.norm_before.weight",    "block.{layer}.layer.0.layer_norm.weight",             Same),
    ("blocks.{layer}.attention.body.query.weight",     "block.{layer}.layer.0.SelfAttention.q.weight",        Same),
    ("blocks.{layer}.attention.body.key.weight",       "block.{layer}.layer.0.SelfAttention.k.weight",        Same),
    ("blocks.{layer}.attention.body.value.weight",     "block.{layer}.layer.0.SelfAttention.v.weight",        Same),
    ("blocks.{layer}.attention.body.output.weight",    "block.{layer}.layer.0.SelfAttention.o.weight",        Same),
    ("blocks.{layer}.cross.norm_before.weight",        "block.{layer}.layer.1.layer_norm.weight",             Same),
    ("blocks.{layer}.cross.body.query.weight",         "block.{layer}.layer.1.EncDecAttention.q.weight",      Same),
    ("blocks.{layer}.cross.body.key.weight",           "block.{layer}.layer.1.EncDecAttention.k.weight",      Same),
    ("blocks.{layer}.cross.body.value.weight",         "block.{layer}.layer.1.EncDecAttention.v.weight",      Same),
    ("blocks.{layer}.cross.body.output.weight",        "block.{layer}.layer.1.EncDecAttention.o.weight",      Same),
    ("blocks.{layer}.feed_forward.norm_before.weight", "block.{layer}.layer.2.layer_norm.weight",             Same),
    ("blocks.{layer}.feed_forward.body.gate.weight",   "block.{layer}.layer.2.DenseReluDense.wi_0.weight",    Same),
    ("blocks.{layer}.feed_forward.body.up.weight",     "block.{layer}.layer.2.DenseReluDense.{up}.weight",    Same),
    ("blocks.{layer}.feed_forward.body.down.weight",   "block.{layer}.layer.2.DenseReluDense.wo.weight",      Same),
    ("final_norm.weight",                              "final_layer_norm.weight",                             Same),
];

/// The settings of config.json that matter to the numbers. Others are left alone.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Words {
    vocab_size: usize,
    d_model: usize,
    d_kv: usize,
    d_ff: usize,
    num_layers: usize,
    num_decoder_layers: Option<usize>,
    num_heads: usize,
    relative_attention_num_buckets: usize,
    relative_attention_max_distance: usize,
    dropout_rate: f64,
    layer_norm_epsilon: f64,
    initializer_factor: f64,
    feed_forward_proj: String,
    tie_word_embeddings: bool,
    /// Since transformers 5, which ties by what a file holds; before, outputs were scaled where weights were tied.
    scale_decoder_outputs: Option<bool>,
    /// The longest sequence in training, which the first releases said and nothing enforces.
    n_positions: Option<usize>,
    is_encoder_decoder: bool,
}

/// Hugging Face leaves out what equals its defaults, which are those of T5 small.
impl Default for Words {
    fn default() -> Self {
        Self {
            vocab_size: 32128,
            d_model: 512,
            d_kv: 64,
            d_ff: 2048,
            num_layers: 6,
            num_decoder_layers: None,
            num_heads: 8,
            relative_attention_num_buckets: 32,
            relative_attention_max_distance: 128,
            dropout_rate: 0.1,
            layer_norm_epsilon: 1e-6,
            initializer_factor: 1.0,
            feed_forward_proj: "relu".to_owned(),
            tie_word_embeddings: true,
            scale_decoder_outputs: None,
            n_positions: None,
            is_encoder_decoder: true,
        }
    }
}

/// Distances have no end, and some number must be said: as long as any sequence that attention over all pairs can bear.
const LENGTH: usize = 1 << 16;

fn read(words: &Value) -> Result<ModelConfig, String> {
    let words: Words = json::typed(words, "")?;
    refuse_unless(&[("is_encoder_decoder", words.is_encoder_decoder, true)])?;
    let norm = NormConfig::Rms {
        epsilon: words.layer_norm_epsilon,
    };
    let feed_forward = feed_forward(&words)?;
    let stack = |layers: usize, role: Role| {
        let attention = AttentionConfig::Full(FullAttentionConfig {
            // Their initial weights do what the scale does elsewhere.
            scale: Some(1.0),
            heads: words.num_heads,
            key_value_heads: None,
            head_width: Some(words.d_kv),
            dropout: words.dropout_rate,
            bias: false,
            output_bias: false,
            head_norm: None,
        });
        ModelConfig {
            role,
            embedding_dropout: words.dropout_rate,
            initial_deviation: 0.05 * words.initializer_factor,
            head: HeadConfig::None,
            positions: PositionsConfig::T5Buckets(T5BucketsConfig {
                buckets: words.relative_attention_num_buckets,
                furthest_distance: words.relative_attention_max_distance,
                direction: match role {
                    Role::Causal => BucketDirection::Causal,
                    _ => BucketDirection::Bidirectional,
                },
            }),
            final_norm: Some(norm.clone()),
            blocks: vec![BlockConfig {
                repeat: layers,
                dropout: words.dropout_rate,
                placement: NormPlacement::Before,
                norm: norm.clone(),
                cross: (role == Role::Causal).then(|| attention.clone()),
                attention,
                feed_forward: feed_forward.clone(),
            }],
            ..ModelConfig::new(words.vocab_size, LENGTH, words.d_model)
        }
    };
    let encoder = ModelConfig {
        embedding: EmbeddingConfig {
            shared: true,
            ..EmbeddingConfig::default()
        },
        ..stack(words.num_layers, Role::Bidirectional)
    };
    Ok(ModelConfig {
        head: HeadConfig::Words(WordsConfig {
            tied: words.tie_word_embeddings,
            scaled: words
                .scale_decoder_outputs
                .unwrap_or(words.tie_word_embeddings),
            ..WordsConfig::default()
        }),
        encoder: Some(Box::new(encoder)),
        ..stack(
            words.num_decoder_layers.unwrap_or(words.num_layers),
            Role::Causal,
        )
    })
}

/// `relu`, or `gated-gelu`: a gate where the word begins so.
fn feed_forward(words: &Words) -> Result<FeedForwardConfig, String> {
    let (gated, name) = match words.feed_forward_proj.strip_prefix("gated-") {
        // In this place their plain word means the approximation.
        Some("gelu") => (true, "gelu_new"),
        Some(name) => (true, name),
        None => (false, words.feed_forward_proj.as_str()),
    };
    let activation = activation(name).map_err(|problem| format!("feed_forward_proj: {problem}"))?;
    Ok(match gated {
        true => FeedForwardConfig::Gated(GatedConfig {
            hidden_width: words.d_ff,
            activation,
            bias: false,
        }),
        false => FeedForwardConfig::Plain(PlainConfig {
            hidden_width: words.d_ff,
            activation,
            bias: false,
        }),
    })
}

fn write(config: &ModelConfig) -> Option<Value> {
    let encoder = config.encoder.as_ref()?;
    let ([block], [encoder]) = (config.blocks.as_slice(), encoder.blocks.as_slice()) else {
        return None;
    };
    let PositionsConfig::T5Buckets(buckets) = &config.positions else {
        return None;
    };
    let feed_forward_proj = match &block.feed_forward {
        FeedForwardConfig::Plain(plain) => activation_name(plain.activation).to_owned(),
        FeedForwardConfig::Gated(gated) => match activation_name(gated.activation) {
            "gelu_new" => "gated-gelu".to_owned(),
            // Their word for the exact one reads as the approximation.
            "gelu" => return None,
            name => format!("gated-{name}"),
        },
        FeedForwardConfig::Experts(_) => return None,
    };
    let heads = block.attention.heads()?;
    let words = Words {
        vocab_size: config.vocabulary,
        d_model: config.width,
        d_kv: heads.head_width(config.width),
        d_ff: block.feed_forward.hidden_width(),
        num_layers: encoder.repeat,
        num_decoder_layers: Some(block.repeat),
        num_heads: heads.heads,
        relative_attention_num_buckets: buckets.buckets,
        relative_attention_max_distance: buckets.furthest_distance,
        dropout_rate: block.dropout,
        layer_norm_epsilon: block.norm.epsilon(),
        initializer_factor: config.initial_deviation / 0.05,
        feed_forward_proj,
        tie_word_embeddings: config.head.words().is_none_or(|words| words.tied),
        scale_decoder_outputs: config.head.words().map(|words| words.scaled),
        n_positions: None,
        is_encoder_decoder: true,
    };
    let mut words = serde_json::to_value(words).ok()?;
    words.as_object_mut()?.retain(|_, value| !value.is_null());
    Some(words)
}
