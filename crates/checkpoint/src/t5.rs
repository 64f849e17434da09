//! T5 in Hugging Face's format, version 1.0 and version 1.1, which has gated feed-forward layers and an untied LM head.
//! Raffel et al. 2020; Shazeer 2020.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::activation::{activation, activation_name};
use super::heads::{base_model, refuse_unless};
use super::name_table::{NameTable, Section, TensorRow, Transform::*};
use super::{Format, LastHiddenState, ModelClass, config_json};
use attentive_model::attention::{AttentionConfig, FullAttentionConfig, Role};
use attentive_model::block::{BlockConfig, NormPlacement};
use attentive_model::embeddings::EmbeddingConfig;
use attentive_model::feed_forward::{FeedForwardConfig, GatedConfig, PlainConfig};
use attentive_model::head::{HeadConfig, LmHeadConfig};
use attentive_model::positions::{BucketDirection, PositionsConfig, T5BucketsConfig};
use attentive_model::{ModelConfig, NormConfig, StackConfig};

pub(super) const FORMAT: Format = Format {
    model_type: "t5",
    decoder: None,
    read,
    write,
    table: NameTable {
        sections: &[
            Section {
                model_prefix: "stack.",
                file_prefix: "",
                rows: &[("tokens.weight", "shared.weight", Same)],
            },
            Section {
                model_prefix: "stack.",
                file_prefix: "decoder.",
                rows: DECODER_ROWS,
            },
            Section {
                model_prefix: "encoder.",
                file_prefix: "encoder.",
                rows: ENCODER_ROWS,
            },
        ],
        optional_prefix: "",
        // Copies of the shared embedding, and an unused table of the first releases.
        ignored: &[
            "encoder.embed_tokens.weight",
            "decoder.embed_tokens.weight",
            "lm_head.weight",
            "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
        ],
        renamed: &[],
        aliases: &[],
        zero_if_missing: &[],
    },
    group: |_| 1,
    last_hidden_state: LastHiddenState::AfterFinalNorm,
    architectures: &[
        ModelClass {
            name: "T5ForConditionalGeneration",
            heads: |_, _| Ok(()),
            rows: &[("lm_head.weight", "lm_head.weight", Same)],
            base_model: false,
        },
        base_model("T5Model"),
    ],
};

#[rustfmt::skip] // Keeps the columns aligned.
const ENCODER_ROWS: &[TensorRow] = &[
    ("positions.weight",                               "block.0.layer.0.SelfAttention.relative_attention_bias.weight", Same),
    ("blocks.{layer}.attention.norm_before.weight",    "block.{layer}.layer.0.layer_norm.weight",                      Same),
    ("blocks.{layer}.attention.body.query.weight",     "block.{layer}.layer.0.SelfAttention.q.weight",                 Same),
    ("blocks.{layer}.attention.body.key.weight",       "block.{layer}.layer.0.SelfAttention.k.weight",                 Same),
    ("blocks.{layer}.attention.body.value.weight",     "block.{layer}.layer.0.SelfAttention.v.weight",                 Same),
    ("blocks.{layer}.attention.body.output.weight",    "block.{layer}.layer.0.SelfAttention.o.weight",                 Same),
    ("blocks.{layer}.feed_forward.norm_before.weight", "block.{layer}.layer.1.layer_norm.weight",                      Same),
    ("blocks.{layer}.feed_forward.body.gate.weight",   "block.{layer}.layer.1.DenseReluDense.wi_0.weight",             Same),
    ("blocks.{layer}.feed_forward.body.up.weight",     "block.{layer}.layer.1.DenseReluDense.{up}.weight",             Same),
    ("blocks.{layer}.feed_forward.body.down.weight",   "block.{layer}.layer.1.DenseReluDense.wo.weight",               Same),
    ("final_norm.weight",                              "final_layer_norm.weight",                                      Same),
];

#[rustfmt::skip] // Keeps the columns aligned.
const DECODER_ROWS: &[TensorRow] = &[
    ("positions.weight",                               "block.0.layer.0.SelfAttention.relative_attention_bias.weight", Same),
    ("blocks.{layer}.attention.norm_before.weight",    "block.{layer}.layer.0.layer_norm.weight",                      Same),
    ("blocks.{layer}.attention.body.query.weight",     "block.{layer}.layer.0.SelfAttention.q.weight",                 Same),
    ("blocks.{layer}.attention.body.key.weight",       "block.{layer}.layer.0.SelfAttention.k.weight",                 Same),
    ("blocks.{layer}.attention.body.value.weight",     "block.{layer}.layer.0.SelfAttention.v.weight",                 Same),
    ("blocks.{layer}.attention.body.output.weight",    "block.{layer}.layer.0.SelfAttention.o.weight",                 Same),
    ("blocks.{layer}.cross.norm_before.weight",        "block.{layer}.layer.1.layer_norm.weight",                      Same),
    ("blocks.{layer}.cross.body.query.weight",         "block.{layer}.layer.1.EncDecAttention.q.weight",               Same),
    ("blocks.{layer}.cross.body.key.weight",           "block.{layer}.layer.1.EncDecAttention.k.weight",               Same),
    ("blocks.{layer}.cross.body.value.weight",         "block.{layer}.layer.1.EncDecAttention.v.weight",               Same),
    ("blocks.{layer}.cross.body.output.weight",        "block.{layer}.layer.1.EncDecAttention.o.weight",               Same),
    ("blocks.{layer}.feed_forward.norm_before.weight", "block.{layer}.layer.2.layer_norm.weight",                      Same),
    ("blocks.{layer}.feed_forward.body.gate.weight",   "block.{layer}.layer.2.DenseReluDense.wi_0.weight",             Same),
    ("blocks.{layer}.feed_forward.body.up.weight",     "block.{layer}.layer.2.DenseReluDense.{up}.weight",             Same),
    ("blocks.{layer}.feed_forward.body.down.weight",   "block.{layer}.layer.2.DenseReluDense.wo.weight",               Same),
    ("final_norm.weight",                              "final_layer_norm.weight",                                      Same),
];

/// The keys of config.json that affect the output. Other keys are ignored.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct T5Config {
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
    /// Since transformers 5; before, decoder outputs were scaled where weights were tied.
    scale_decoder_outputs: Option<bool>,
    /// The length in training, in the config of the first releases; not enforced.
    n_positions: Option<usize>,
    is_encoder_decoder: bool,
}

/// Hugging Face leaves out keys with default values, which are those of T5 small.
impl Default for T5Config {
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

/// Relative positions have no limit, but a config needs one: longer than full attention can handle.
const LENGTH: usize = 1 << 16;

fn read(json: &Value) -> Result<ModelConfig, String> {
    let hf: T5Config = config_json::typed(json, "")?;
    refuse_unless(&[("is_encoder_decoder", hf.is_encoder_decoder, true)])?;
    let norm = NormConfig::Rms {
        epsilon: hf.layer_norm_epsilon,
    };
    let feed_forward = feed_forward(&hf)?;
    let stack = |layers: usize, role: Role| {
        let attention = AttentionConfig::Full(FullAttentionConfig {
            // T5 does not scale the scores; its initialization compensates.
            scale: Some(1.0),
            heads: hf.num_heads,
            key_value_heads: None,
            head_width: Some(hf.d_kv),
            dropout: hf.dropout_rate,
            bias: false,
            output_bias: false,
            head_norm: None,
        });
        StackConfig {
            role,
            embedding_dropout: hf.dropout_rate,
            init_std: 0.05 * hf.initializer_factor,
            positions: PositionsConfig::T5Buckets(T5BucketsConfig {
                buckets: hf.relative_attention_num_buckets,
                max_distance: hf.relative_attention_max_distance,
                direction: match role {
                    Role::Causal => BucketDirection::Causal,
                    _ => BucketDirection::Bidirectional,
                },
            }),
            final_norm: Some(norm.clone()),
            blocks: vec![BlockConfig {
                repeat: layers,
                dropout: hf.dropout_rate,
                placement: NormPlacement::Before,
                norm: norm.clone(),
                cross: (role == Role::Causal).then(|| attention.clone()),
                attention,
                feed_forward: feed_forward.clone(),
            }],
            ..StackConfig::new(hf.vocab_size, LENGTH, hf.d_model)
        }
    };
    let encoder = StackConfig {
        embedding: EmbeddingConfig {
            shared: true,
            ..EmbeddingConfig::default()
        },
        ..stack(hf.num_layers, Role::Bidirectional)
    };
    let decoder = stack(hf.num_decoder_layers.unwrap_or(hf.num_layers), Role::Causal);
    let head = HeadConfig::LmHead(LmHeadConfig {
        tied: hf.tie_word_embeddings,
        scaled: hf.scale_decoder_outputs.unwrap_or(hf.tie_word_embeddings),
        ..LmHeadConfig::default()
    });
    Ok(ModelConfig::new(decoder)
        .with_head(head)
        .with_encoder(encoder))
}

/// `feed_forward_proj`: an activation, with the prefix `gated-` where there is a gate.
fn feed_forward(hf: &T5Config) -> Result<FeedForwardConfig, String> {
    let (gated, name) = match hf.feed_forward_proj.strip_prefix("gated-") {
        // `gated-gelu` means the tanh approximation.
        Some("gelu") => (true, "gelu_new"),
        Some(name) => (true, name),
        None => (false, hf.feed_forward_proj.as_str()),
    };
    let activation = activation(name).map_err(|problem| format!("feed_forward_proj: {problem}"))?;
    Ok(match gated {
        true => FeedForwardConfig::Gated(GatedConfig {
            hidden_width: hf.d_ff,
            activation,
            bias: false,
        }),
        false => FeedForwardConfig::Plain(PlainConfig {
            hidden_width: hf.d_ff,
            activation,
            bias: false,
        }),
    })
}

fn write(config: &ModelConfig) -> Option<Value> {
    let encoder = config.encoder.as_ref()?;
    let ([block], [encoder]) = (config.stack.blocks.as_slice(), encoder.blocks.as_slice()) else {
        return None;
    };
    let PositionsConfig::T5Buckets(buckets) = &config.stack.positions else {
        return None;
    };
    let feed_forward_proj = match &block.feed_forward {
        FeedForwardConfig::Plain(plain) => activation_name(plain.activation).to_owned(),
        FeedForwardConfig::Gated(gated) => match activation_name(gated.activation) {
            "gelu_new" => "gated-gelu".to_owned(),
            // `gated-gelu` would be read as the tanh approximation.
            "gelu" => return None,
            name => format!("gated-{name}"),
        },
        FeedForwardConfig::Experts(_) => return None,
    };
    let heads = block.attention.heads()?;
    let hf = T5Config {
        vocab_size: config.stack.vocabulary,
        d_model: config.stack.width,
        d_kv: heads.head_width(config.stack.width),
        d_ff: block.feed_forward.hidden_width(),
        num_layers: encoder.repeat,
        num_decoder_layers: Some(block.repeat),
        num_heads: heads.heads,
        relative_attention_num_buckets: buckets.buckets,
        relative_attention_max_distance: buckets.max_distance,
        dropout_rate: block.dropout,
        layer_norm_epsilon: block.norm.epsilon(),
        initializer_factor: config.stack.init_std / 0.05,
        feed_forward_proj,
        tie_word_embeddings: config.head.lm_head().is_none_or(|head| head.tied),
        scale_decoder_outputs: config.head.lm_head().map(|head| head.scaled),
        n_positions: None,
        is_encoder_decoder: true,
    };
    let mut json = serde_json::to_value(hf).ok()?;
    json.as_object_mut()?.retain(|_, value| !value.is_null());
    Some(json)
}
