//! BART and Marian in Hugging Face's format: encoder-decoders close to the original Transformer. Lewis et al. 2020;
//! Junczys-Dowmunt et al. 2018; Vaswani et al. 2017.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::activation::{activation, activation_name};
use super::heads::{base_model, refuse_unless};
use super::name_table::{NameTable, Section, TensorRow, Transform::*};
use super::{Format, LastHiddenState, ModelClass, config_json};
use attentive_model::attention::{AttentionConfig, FullAttentionConfig, Role};
use attentive_model::block::{BlockConfig, NormPlacement};
use attentive_model::embeddings::EmbeddingConfig;
use attentive_model::feed_forward::{FeedForwardConfig, PlainConfig};
use attentive_model::head::{HeadConfig, LmHeadConfig};
use attentive_model::positions::{
    LearnedConfig, PositionsConfig, SinusoidLayout, SinusoidalConfig,
};
use attentive_model::{ModelConfig, NormConfig, StackConfig};

pub(super) const BART: Format = Format {
    model_type: "bart",
    decoder: None,
    read: |json| read(json, &Variant::BART),
    write,
    table: TABLE,
    group: |_| 1,
    last_hidden_state: LastHiddenState::AfterFinalNorm,
    architectures: &[
        with_bias("BartForConditionalGeneration"),
        base_model("BartModel"),
    ],
};

pub(super) const MARIAN: Format = Format {
    model_type: "marian",
    decoder: None,
    read: |json| read(json, &Variant::MARIAN),
    write,
    table: TABLE,
    group: |_| 1,
    last_hidden_state: LastHiddenState::AfterFinalNorm,
    architectures: &[with_bias("MarianMTModel"), base_model("MarianModel")],
};

const TABLE: NameTable = NameTable {
    sections: &[
        Section {
            model_prefix: "stack.",
            file_prefix: "model.",
            rows: &[("tokens.weight", "shared.weight", Same)],
        },
        Section {
            model_prefix: "encoder.",
            file_prefix: "model.",
            rows: &[("tokens.weight", "shared.weight", Same)],
        },
        Section {
            model_prefix: "stack.",
            file_prefix: "model.decoder.",
            rows: ROWS,
        },
        Section {
            model_prefix: "encoder.",
            file_prefix: "model.encoder.",
            rows: ROWS,
        },
    ],
    optional_prefix: "model.",
    // Copies of the shared embedding; Marian's computed positions.
    ignored: &[
        "encoder.embed_tokens.weight",
        "decoder.embed_tokens.weight",
        "lm_head.weight",
        "encoder.embed_positions.weight",
        "decoder.embed_positions.weight",
        "final_logits_bias",
    ],
    renamed: &[],
    // With untied weights, encoder and decoder have embeddings of their own.
    aliases: &[
        ("stack.tokens.weight", "model.decoder.embed_tokens.weight"),
        ("encoder.tokens.weight", "model.encoder.embed_tokens.weight"),
    ],
    // Many published files lack it.
    zero_if_missing: &["lm_head.bias"],
};

#[rustfmt::skip] // Keeps the columns aligned.
const ROWS: &[TensorRow] = &[
    ("positions.weight",                              "embed_positions.weight",                        Same),
    ("embedding_norm.weight",                         "layernorm_embedding.weight",                    Same),
    ("embedding_norm.bias",                           "layernorm_embedding.bias",                      Same),
    ("blocks.{layer}.attention.body.query.weight",    "layers.{layer}.self_attn.q_proj.weight",        Same),
    ("blocks.{layer}.attention.body.query.bias",      "layers.{layer}.self_attn.q_proj.bias",          Same),
    ("blocks.{layer}.attention.body.key.weight",      "layers.{layer}.self_attn.k_proj.weight",        Same),
    ("blocks.{layer}.attention.body.key.bias",        "layers.{layer}.self_attn.k_proj.bias",          Same),
    ("blocks.{layer}.attention.body.value.weight",    "layers.{layer}.self_attn.v_proj.weight",        Same),
    ("blocks.{layer}.attention.body.value.bias",      "layers.{layer}.self_attn.v_proj.bias",          Same),
    ("blocks.{layer}.attention.body.output.weight",   "layers.{layer}.self_attn.out_proj.weight",      Same),
    ("blocks.{layer}.attention.body.output.bias",     "layers.{layer}.self_attn.out_proj.bias",        Same),
    ("blocks.{layer}.attention.norm_after.weight",    "layers.{layer}.self_attn_layer_norm.weight",    Same),
    ("blocks.{layer}.attention.norm_after.bias",      "layers.{layer}.self_attn_layer_norm.bias",      Same),
    ("blocks.{layer}.cross.body.query.weight",        "layers.{layer}.encoder_attn.q_proj.weight",     Same),
    ("blocks.{layer}.cross.body.query.bias",          "layers.{layer}.encoder_attn.q_proj.bias",       Same),
    ("blocks.{layer}.cross.body.key.weight",          "layers.{layer}.encoder_attn.k_proj.weight",     Same),
    ("blocks.{layer}.cross.body.key.bias",            "layers.{layer}.encoder_attn.k_proj.bias",       Same),
    ("blocks.{layer}.cross.body.value.weight",        "layers.{layer}.encoder_attn.v_proj.weight",     Same),
    ("blocks.{layer}.cross.body.value.bias",          "layers.{layer}.encoder_attn.v_proj.bias",       Same),
    ("blocks.{layer}.cross.body.output.weight",       "layers.{layer}.encoder_attn.out_proj.weight",   Same),
    ("blocks.{layer}.cross.body.output.bias",         "layers.{layer}.encoder_attn.out_proj.bias",     Same),
    ("blocks.{layer}.cross.norm_after.weight",        "layers.{layer}.encoder_attn_layer_norm.weight", Same),
    ("blocks.{layer}.cross.norm_after.bias",          "layers.{layer}.encoder_attn_layer_norm.bias",   Same),
    ("blocks.{layer}.feed_forward.body.up.weight",    "layers.{layer}.fc1.weight",                     Same),
    ("blocks.{layer}.feed_forward.body.up.bias",      "layers.{layer}.fc1.bias",                       Same),
    ("blocks.{layer}.feed_forward.body.down.weight",  "layers.{layer}.fc2.weight",                     Same),
    ("blocks.{layer}.feed_forward.body.down.bias",    "layers.{layer}.fc2.bias",                       Same),
    ("blocks.{layer}.feed_forward.norm_after.weight", "layers.{layer}.final_layer_norm.weight",        Same),
    ("blocks.{layer}.feed_forward.norm_after.bias",   "layers.{layer}.final_layer_norm.bias",          Same),
];

const fn with_bias(name: &'static str) -> ModelClass {
    ModelClass {
        name,
        heads: |_, _| Ok(()),
        rows: &[
            ("lm_head.weight", "lm_head.weight", Same),
            ("lm_head.bias", "final_logits_bias", Unsqueeze0),
        ],
        base_model: false,
    }
}

/// What differs between BART and Marian.
struct Variant {
    positions: PositionsConfig,
    /// Whether there is a norm after the embeddings.
    embedding_norm: bool,
    /// Default sizes.
    length: usize,
    vocabulary: usize,
    width: usize,
    hidden_width: usize,
    activation: &'static str,
}

impl Variant {
    const BART: Self = Self {
        // The first two rows are unused.
        positions: PositionsConfig::Learned(LearnedConfig {
            offset: 2,
            padding: None,
        }),
        embedding_norm: true,
        length: 1024,
        vocabulary: 50265,
        width: 1024,
        hidden_width: 4096,
        activation: "gelu",
    };

    const MARIAN: Self = Self {
        positions: PositionsConfig::Sinusoidal(SinusoidalConfig {
            layout: SinusoidLayout::Concatenated,
        }),
        embedding_norm: false,
        length: 1024,
        vocabulary: 58101,
        width: 1024,
        hidden_width: 4096,
        activation: "gelu",
    };
}

/// The keys of config.json that affect the output. Other keys are ignored.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct BartConfig {
    vocab_size: Option<usize>,
    max_position_embeddings: Option<usize>,
    d_model: Option<usize>,
    encoder_layers: Option<usize>,
    encoder_attention_heads: Option<usize>,
    encoder_ffn_dim: Option<usize>,
    decoder_layers: Option<usize>,
    decoder_attention_heads: Option<usize>,
    decoder_ffn_dim: Option<usize>,
    activation_function: Option<String>,
    dropout: Option<f64>,
    attention_dropout: Option<f64>,
    init_std: Option<f64>,
    scale_embedding: Option<bool>,
    tie_word_embeddings: Option<bool>,
    share_encoder_decoder_embeddings: Option<bool>,
    decoder_vocab_size: Option<usize>,
    normalize_before: Option<bool>,
    normalize_embedding: Option<bool>,
    static_position_embeddings: Option<bool>,
    add_final_layer_norm: Option<bool>,
    is_encoder_decoder: Option<bool>,
}

fn read(json: &Value, variant: &Variant) -> Result<ModelConfig, String> {
    let hf: BartConfig = config_json::typed(json, "")?;
    let vocabulary = hf.vocab_size.unwrap_or(variant.vocabulary);
    // Older config.json files have keys for settings that are fixed for a model type.
    let sinusoidal = matches!(variant.positions, PositionsConfig::Sinusoidal(_));
    refuse_unless(&[
        (
            "is_encoder_decoder",
            hf.is_encoder_decoder.unwrap_or(true),
            true,
        ),
        (
            "share_encoder_decoder_embeddings",
            hf.share_encoder_decoder_embeddings.unwrap_or(true),
            true,
        ),
        ("normalize_before", hf.normalize_before == Some(true), false),
        (
            "normalize_embedding",
            hf.normalize_embedding.unwrap_or(variant.embedding_norm),
            variant.embedding_norm,
        ),
        (
            "static_position_embeddings",
            hf.static_position_embeddings.unwrap_or(sinusoidal),
            sinusoidal,
        ),
        (
            "add_final_layer_norm",
            hf.add_final_layer_norm == Some(true),
            false,
        ),
    ])?;
    if hf.decoder_vocab_size.is_some_and(|size| size != vocabulary) {
        return Err(format!(
            "decoder_vocab_size {} is not supported; it must be vocab_size, {vocabulary}",
            hf.decoder_vocab_size.unwrap_or_default()
        ));
    }
    let (length, width) = (
        hf.max_position_embeddings.unwrap_or(variant.length),
        hf.d_model.unwrap_or(variant.width),
    );
    let name = hf.activation_function.as_deref();
    let activation = activation(name.unwrap_or(variant.activation))?;
    let dropout = hf.dropout.unwrap_or(0.1);
    let norm = NormConfig::Layer { epsilon: 1e-5 };
    let stack = |layers: usize, heads: usize, hidden_width: usize, role: Role| {
        let attention = AttentionConfig::Full(FullAttentionConfig {
            scale: None,
            heads,
            key_value_heads: None,
            head_width: None,
            dropout: hf.attention_dropout.unwrap_or(0.0),
            bias: true,
            output_bias: true,
            head_norm: None,
        });
        StackConfig {
            role,
            embedding: EmbeddingConfig {
                scaled: Some(hf.scale_embedding.unwrap_or(false)),
                norm: variant.embedding_norm.then(|| norm.clone()),
                ..EmbeddingConfig::default()
            },
            embedding_dropout: dropout,
            init_std: hf.init_std.unwrap_or(0.02),
            positions: variant.positions.clone(),
            blocks: vec![BlockConfig {
                repeat: layers,
                dropout,
                placement: NormPlacement::After,
                norm: norm.clone(),
                cross: (role == Role::Causal).then(|| attention.clone()),
                attention,
                feed_forward: FeedForwardConfig::Plain(PlainConfig {
                    hidden_width,
                    activation,
                    bias: true,
                }),
            }],
            ..StackConfig::new(vocabulary, length, width)
        }
    };
    let mut encoder = stack(
        hf.encoder_layers.unwrap_or(12),
        hf.encoder_attention_heads.unwrap_or(16),
        hf.encoder_ffn_dim.unwrap_or(variant.hidden_width),
        Role::Bidirectional,
    );
    let tied = hf.tie_word_embeddings.unwrap_or(true);
    encoder.embedding.shared = tied;
    let decoder = stack(
        hf.decoder_layers.unwrap_or(12),
        hf.decoder_attention_heads.unwrap_or(16),
        hf.decoder_ffn_dim.unwrap_or(variant.hidden_width),
        Role::Causal,
    );
    let head = HeadConfig::LmHead(LmHeadConfig {
        tied,
        bias: true,
        ..LmHeadConfig::default()
    });
    Ok(ModelConfig::new(decoder)
        .with_head(head)
        .with_encoder(encoder))
}

fn write(config: &ModelConfig) -> Option<Value> {
    let encoder = config.encoder.as_ref()?;
    let sizes = |stack: &StackConfig| {
        let [block] = stack.blocks.as_slice() else {
            return None;
        };
        let heads = block.attention.heads()?.heads;
        Some((block.repeat, heads, block.feed_forward.hidden_width()))
    };
    let (encoder_layers, encoder_heads, encoder_width) = sizes(encoder)?;
    let (decoder_layers, decoder_heads, decoder_width) = sizes(&config.stack)?;
    let [block] = config.stack.blocks.as_slice() else {
        return None;
    };
    let FeedForwardConfig::Plain(feed_forward) = &block.feed_forward else {
        return None;
    };
    let hf = BartConfig {
        vocab_size: Some(config.stack.vocabulary),
        max_position_embeddings: Some(config.stack.length),
        d_model: Some(config.stack.width),
        encoder_layers: Some(encoder_layers),
        encoder_attention_heads: Some(encoder_heads),
        encoder_ffn_dim: Some(encoder_width),
        decoder_layers: Some(decoder_layers),
        decoder_attention_heads: Some(decoder_heads),
        decoder_ffn_dim: Some(decoder_width),
        activation_function: Some(activation_name(feed_forward.activation).to_owned()),
        dropout: Some(block.dropout),
        attention_dropout: block.attention.heads().map(|heads| heads.dropout),
        init_std: Some(config.stack.init_std),
        scale_embedding: Some(config.stack.embedding.scaled.unwrap_or(false)),
        tie_word_embeddings: Some(config.head.lm_head().is_none_or(|head| head.tied)),
        is_encoder_decoder: Some(true),
        ..BartConfig::default()
    };
    let mut json = serde_json::to_value(hf).ok()?;
    json.as_object_mut()?.retain(|_, value| !value.is_null());
    Some(json)
}
