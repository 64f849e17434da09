//! BART and Marian as Hugging Face writes them: an encoder and a decoder after the first Transformer. Lewis et al. 2020;
//! Junczys-Dowmunt et al. 2018; Vaswani et al. 2017.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::heads::{bare, refuse_unless};
use super::table::{Operation::*, Part, Row, Table};
use super::words::{activation, activation_name};
use super::{Architecture, Format, LastState, json};
use crate::{
    AttentionConfig, BlockConfig, EmbeddingConfig, FeedForwardConfig, FullAttentionConfig,
    HeadConfig, LearnedConfig, ModelConfig, NormConfig, NormPlacement, PlainConfig,
    PositionsConfig, Role, SinusoidLayout, SinusoidalConfig, WordsConfig,
};

pub(super) const BART: Format = Format {
    model_type: "bart",
    decoder: None,
    read: |words| read(words, &Kind::BART),
    write,
    table: TABLE,
    group: |_| 1,
    last_state: LastState::Normed,
    architectures: &[with_bias("BartForConditionalGeneration"), bare("BartModel")],
};

pub(super) const MARIAN: Format = Format {
    model_type: "marian",
    decoder: None,
    read: |words| read(words, &Kind::MARIAN),
    write,
    table: TABLE,
    group: |_| 1,
    last_state: LastState::Normed,
    architectures: &[with_bias("MarianMTModel"), bare("MarianModel")],
};

const TABLE: Table = Table {
    parts: &[
        Part {
            ours: "stack.",
            theirs: "model.",
            rows: &[("tokens.weight", "shared.weight", Same)],
        },
        Part {
            ours: "encoder.",
            theirs: "model.",
            rows: &[("tokens.weight", "shared.weight", Same)],
        },
        Part {
            ours: "stack.",
            theirs: "model.decoder.",
            rows: ROWS,
        },
        Part {
            ours: "encoder.",
            theirs: "model.encoder.",
            rows: ROWS,
        },
    ],
    optional_prefix: "model.",
    // Copies of the shared table; Marian's positions are computed.
    ignored: &[
        "encoder.embed_tokens.weight",
        "decoder.embed_tokens.weight",
        "lm_head.weight",
        "encoder.embed_positions.weight",
        "decoder.embed_positions.weight",
        "final_logits_bias",
    ],
    renamed: &[],
    // Where weights are not tied, each side has a table of its own.
    twins: &[
        ("stack.tokens.weight", "model.decoder.embed_tokens.weight"),
        ("encoder.tokens.weight", "model.encoder.embed_tokens.weight"),
    ],
    // Published files often leave it out.
    zeros: &["words.bias"],
};

#[rustfmt::skip] // A table is read in columns.
const ROWS: &[Row] = &[
    ("positions.weight",                              "embed_positions.weight",                       Same),
    ("embedding_norm.weight",                         "layernorm_embedding.weight",                   Same),
    ("embedding_norm.bias",                           "layernorm_embedding.bias",                     Same),
    ("blocks.{layer}.attention.body.query.weight",    "layers.{layer}.self_attn.q_proj.weight",       Same),
    ("blocks.{layer}.attention.body.query.bias",      "layers.{layer}.self_attn.q_proj.bias",         Same),
    ("blocks.{layer}.attention.body.key.weight",      "layers.{layer}.self_attn.k_proj.weight",       Same),
    ("blocks.{layer}.attention.body.key.bias",        "layers.{layer}.self_attn.k_proj.bias",         Same),
    ("blocks.{layer}.attention.body.value.weight",    "layers.{layer}.self_attn.v_proj.weight",       Same),
    ("blocks.{layer}.attention.body.value.bias",      "layers.{layer}.self_attn.v_proj.bias",         Same),
    ("blocks.{layer}.attention.body.output.weight",   "layers.{layer}.self_attn.out_proj.weight",     Same),
    ("blocks.{layer}.attention.body.output.bias",     "layers.{layer}.self_attn.out_proj.bias",       Same),
    ("blocks.{layer}.attention.norm_after.weight",    "layers.{layer}.self_attn_layer_norm.weight",   Same),
    ("blocks.{layer}.attention.norm_after.bias",      "layers.{layer}.self_attn_layer_norm.bias",     Same),
    ("blocks.{layer}.cross.body.query.weight",        "layers.{layer}.encoder_attn.q_proj.weight",    Same),
    ("blocks.{layer}.cross.body.query.bias",          "layers.{layer}.encoder_attn.q_proj.bias",      Same),
    ("blocks.{layer}.cross.body.key.weight",          "layers.{layer}.encoder_attn.k_proj.weight",    Same),
    ("blocks.{layer}.cross.body.key.bias",            "layers.{layer}.encoder_attn.k_proj.bias",      Same),
    ("blocks.{layer}.cross.body.value.weight",        "layers.{layer}.encoder_attn.v_proj.weight",    Same),
    ("blocks.{layer}.cross.body.value.bias",          "layers.{layer}.encoder_attn.v_proj.bias",      Same),
    ("blocks.{layer}.cross.body.output.weight",       "layers.{layer}.encoder_attn.out_proj.weight",  Same),
    ("blocks.{layer}.cross.body.output.bias",         "layers.{layer}.encoder_attn.out_proj.bias",    Same),
    ("blocks.{layer}.cross.norm_after.weight",        "layers.{layer}.encoder_attn_layer_norm.weight", Same),
    ("blocks.{layer}.cross.norm_after.bias",          "layers.{layer}.encoder_attn_layer_norm.bias",  Same),
    ("blocks.{layer}.feed_forward.body.up.weight",    "layers.{layer}.fc1.weight",                    Same),
    ("blocks.{layer}.feed_forward.body.up.bias",      "layers.{layer}.fc1.bias",                      Same),
    ("blocks.{layer}.feed_forward.body.down.weight",  "layers.{layer}.fc2.weight",                    Same),
    ("blocks.{layer}.feed_forward.body.down.bias",    "layers.{layer}.fc2.bias",                      Same),
    ("blocks.{layer}.feed_forward.norm_after.weight", "layers.{layer}.final_layer_norm.weight",       Same),
    ("blocks.{layer}.feed_forward.norm_after.bias",   "layers.{layer}.final_layer_norm.bias",         Same),
];

const fn with_bias(name: &'static str) -> Architecture {
    Architecture {
        name,
        heads: |_, _| Ok(()),
        rows: &[
            ("words.weight", "lm_head.weight", Same),
            ("words.bias", "final_logits_bias", Led),
        ],
        bare: false,
    }
}

/// What the two families differ in.
struct Kind {
    positions: PositionsConfig,
    /// Whether the sum of the embeddings is normalized.
    normed: bool,
    /// Their own defaults of sizes.
    length: usize,
    vocabulary: usize,
    width: usize,
    hidden_width: usize,
    activation: &'static str,
}

impl Kind {
    const BART: Self = Self {
        // Two rows that nobody uses any more.
        positions: PositionsConfig::Learned(LearnedConfig {
            offset: 2,
            padding: None,
        }),
        normed: true,
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
        normed: false,
        length: 1024,
        vocabulary: 58101,
        width: 1024,
        hidden_width: 4096,
        activation: "gelu",
    };
}

/// The settings of config.json that matter to the numbers. Others are left alone.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Words {
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

fn read(words: &Value, kind: &Kind) -> Result<ModelConfig, String> {
    let words: Words = json::typed(words, "")?;
    let vocabulary = words.vocab_size.unwrap_or(kind.vocabulary);
    // Old config.json files spell out what a family does not vary.
    let sinusoidal = matches!(kind.positions, PositionsConfig::Sinusoidal(_));
    refuse_unless(&[
        (
            "is_encoder_decoder",
            words.is_encoder_decoder.unwrap_or(true),
            true,
        ),
        (
            "share_encoder_decoder_embeddings",
            words.share_encoder_decoder_embeddings.unwrap_or(true),
            true,
        ),
        (
            "normalize_before",
            words.normalize_before == Some(true),
            false,
        ),
        (
            "normalize_embedding",
            words.normalize_embedding.unwrap_or(kind.normed),
            kind.normed,
        ),
        (
            "static_position_embeddings",
            words.static_position_embeddings.unwrap_or(sinusoidal),
            sinusoidal,
        ),
        (
            "add_final_layer_norm",
            words.add_final_layer_norm == Some(true),
            false,
        ),
    ])?;
    if words
        .decoder_vocab_size
        .is_some_and(|size| size != vocabulary)
    {
        return Err(format!(
            "decoder_vocab_size {} is not supported; it must be vocab_size, {vocabulary}",
            words.decoder_vocab_size.unwrap_or_default()
        ));
    }
    let (length, width) = (
        words.max_position_embeddings.unwrap_or(kind.length),
        words.d_model.unwrap_or(kind.width),
    );
    let name = words.activation_function.as_deref();
    let activation = activation(name.unwrap_or(kind.activation))?;
    let dropout = words.dropout.unwrap_or(0.1);
    let norm = NormConfig::Layer { epsilon: 1e-5 };
    let stack = |layers: usize, heads: usize, hidden_width: usize, role: Role| {
        let attention = AttentionConfig::Full(FullAttentionConfig {
            scale: None,
            heads,
            key_value_heads: None,
            head_width: None,
            dropout: words.attention_dropout.unwrap_or(0.0),
            bias: true,
            output_bias: true,
            head_norm: None,
        });
        ModelConfig {
            role,
            embedding: EmbeddingConfig {
                scaled: Some(words.scale_embedding.unwrap_or(false)),
                norm: kind.normed.then(|| norm.clone()),
                ..EmbeddingConfig::default()
            },
            embedding_dropout: dropout,
            initial_deviation: words.init_std.unwrap_or(0.02),
            head: HeadConfig::None,
            positions: kind.positions.clone(),
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
            ..ModelConfig::new(vocabulary, length, width)
        }
    };
    let mut encoder = stack(
        words.encoder_layers.unwrap_or(12),
        words.encoder_attention_heads.unwrap_or(16),
        words.encoder_ffn_dim.unwrap_or(kind.hidden_width),
        Role::Bidirectional,
    );
    let tied = words.tie_word_embeddings.unwrap_or(true);
    encoder.embedding.shared = tied;
    Ok(ModelConfig {
        head: HeadConfig::Words(WordsConfig {
            tied,
            bias: true,
            ..WordsConfig::default()
        }),
        encoder: Some(Box::new(encoder)),
        ..stack(
            words.decoder_layers.unwrap_or(12),
            words.decoder_attention_heads.unwrap_or(16),
            words.decoder_ffn_dim.unwrap_or(kind.hidden_width),
            Role::Causal,
        )
    })
}

fn write(config: &ModelConfig) -> Option<Value> {
    let encoder = config.encoder.as_ref()?;
    let sizes = |config: &ModelConfig| {
        let [block] = config.blocks.as_slice() else {
            return None;
        };
        let heads = block.attention.heads()?.heads;
        Some((block.repeat, heads, block.feed_forward.hidden_width()))
    };
    let (encoder_layers, encoder_heads, encoder_width) = sizes(encoder)?;
    let (decoder_layers, decoder_heads, decoder_width) = sizes(config)?;
    let [block] = config.blocks.as_slice() else {
        return None;
    };
    let FeedForwardConfig::Plain(feed_forward) = &block.feed_forward else {
        return None;
    };
    let words = Words {
        vocab_size: Some(config.vocabulary),
        max_position_embeddings: Some(config.length),
        d_model: Some(config.width),
        encoder_layers: Some(encoder_layers),
        encoder_attention_heads: Some(encoder_heads),
        encoder_ffn_dim: Some(encoder_width),
        decoder_layers: Some(decoder_layers),
        decoder_attention_heads: Some(decoder_heads),
        decoder_ffn_dim: Some(decoder_width),
        activation_function: Some(activation_name(feed_forward.activation).to_owned()),
        dropout: Some(block.dropout),
        attention_dropout: block.attention.heads().map(|heads| heads.dropout),
        init_std: Some(config.initial_deviation),
        scale_embedding: Some(config.embedding.scaled.unwrap_or(false)),
        tie_word_embeddings: Some(config.head.words().is_none_or(|words| words.tied)),
        is_encoder_decoder: Some(true),
        ..Words::default()
    };
    let mut words = serde_json::to_value(words).ok()?;
    words.as_object_mut()?.retain(|_, value| !value.is_null());
    Some(words)
}
