//! ViT and DeiT as Hugging Face writes them: pictures as sequences. Dosovitskiy et al. 2021; Touvron et al. 2021.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::heads::classes;
use super::table::{Operation::*, Part, Row, Table};
use super::words::{activation, activation_name};
use super::{Architecture, Format, LastState, json};
use crate::{
    AttentionConfig, BlockConfig, FeedForwardConfig, FullAttentionConfig, HeadConfig,
    LearnedConfig, ModelConfig, NormConfig, NormPlacement, PatchesConfig, PlainConfig, PooledFrom,
    PoolerConfig, PoolerMap, PositionsConfig, Role,
};

pub(super) const VIT: Format = Format {
    model_type: "vit",
    decoder: None,
    read: |words| read(words, 1),
    write: |config| write(config, 1),
    table: Table {
        parts: &[Part {
            ours: "stack.",
            theirs: "vit.",
            rows: ROWS,
        }],
        optional_prefix: "vit.",
        ignored: &[],
        renamed: &[],
        twins: &[],
        zeros: &[],
    },
    group: |_| 1,
    last_state: LastState::OfLastBlock,
    architectures: &[
        Architecture {
            name: "ViTModel",
            heads: pooled,
            rows: &[
                ("pooler.map.weight", "vit.pooler.dense.weight", Same),
                ("pooler.map.bias", "vit.pooler.dense.bias", Same),
            ],
            bare: true,
        },
        Architecture {
            name: "ViTForImageClassification",
            heads: |words, config| image_classes(words, config, false),
            rows: &[
                ("classes.map.weight", "classifier.weight", Same),
                ("classes.map.bias", "classifier.bias", Same),
            ],
            bare: false,
        },
    ],
};

pub(super) const DEIT: Format = Format {
    model_type: "deit",
    decoder: None,
    read: |words| read(words, 2),
    write: |config| write(config, 2),
    table: Table {
        parts: &[Part {
            ours: "stack.",
            theirs: "deit.",
            rows: ROWS,
        }],
        optional_prefix: "deit.",
        ignored: &[],
        renamed: &[],
        twins: &[],
        zeros: &[],
    },
    group: |_| 1,
    last_state: LastState::OfLastBlock,
    architectures: &[
        Architecture {
            name: "DeiTModel",
            heads: pooled,
            rows: &[
                ("pooler.map.weight", "deit.pooler.dense.weight", Same),
                ("pooler.map.bias", "deit.pooler.dense.bias", Same),
            ],
            bare: true,
        },
        Architecture {
            name: "DeiTForImageClassification",
            heads: |words, config| image_classes(words, config, false),
            rows: &[
                ("classes.map.weight", "classifier.weight", Same),
                ("classes.map.bias", "classifier.bias", Same),
            ],
            bare: false,
        },
        Architecture {
            name: "DeiTForImageClassificationWithTeacher",
            heads: |words, config| image_classes(words, config, true),
            rows: &[
                ("classes.map.weight", "cls_classifier.weight", Same),
                ("classes.map.bias", "cls_classifier.bias", Same),
                (
                    "classes.teacher.weight",
                    "distillation_classifier.weight",
                    Same,
                ),
                ("classes.teacher.bias", "distillation_classifier.bias", Same),
            ],
            bare: false,
        },
    ],
};

#[rustfmt::skip] // A table is read in columns.
const ROWS: &[Row] = &[
    ("patches.class_token",                            "embeddings.cls_token",                                Led),
    ("patches.distillation_token",                     "embeddings.distillation_token",                       Led),
    ("patches.map.weight",                             "embeddings.patch_embeddings.projection.weight",       Convolution),
    ("patches.map.bias",                               "embeddings.patch_embeddings.projection.bias",         Same),
    ("positions.weight",                               "embeddings.position_embeddings",                      Led),
    ("blocks.{layer}.attention.norm_before.weight",    "encoder.layer.{layer}.layernorm_before.weight",       Same),
    ("blocks.{layer}.attention.norm_before.bias",      "encoder.layer.{layer}.layernorm_before.bias",         Same),
    ("blocks.{layer}.attention.body.query.weight",     "encoder.layer.{layer}.attention.attention.query.weight", Same),
    ("blocks.{layer}.attention.body.query.bias",       "encoder.layer.{layer}.attention.attention.query.bias",   Same),
    ("blocks.{layer}.attention.body.key.weight",       "encoder.layer.{layer}.attention.attention.key.weight",   Same),
    ("blocks.{layer}.attention.body.key.bias",         "encoder.layer.{layer}.attention.attention.key.bias",     Same),
    ("blocks.{layer}.attention.body.value.weight",     "encoder.layer.{layer}.attention.attention.value.weight", Same),
    ("blocks.{layer}.attention.body.value.bias",       "encoder.layer.{layer}.attention.attention.value.bias",   Same),
    ("blocks.{layer}.attention.body.output.weight",    "encoder.layer.{layer}.attention.output.dense.weight", Same),
    ("blocks.{layer}.attention.body.output.bias",      "encoder.layer.{layer}.attention.output.dense.bias",   Same),
    ("blocks.{layer}.feed_forward.norm_before.weight", "encoder.layer.{layer}.layernorm_after.weight",        Same),
    ("blocks.{layer}.feed_forward.norm_before.bias",   "encoder.layer.{layer}.layernorm_after.bias",          Same),
    ("blocks.{layer}.feed_forward.body.up.weight",     "encoder.layer.{layer}.intermediate.dense.weight",     Same),
    ("blocks.{layer}.feed_forward.body.up.bias",       "encoder.layer.{layer}.intermediate.dense.bias",       Same),
    ("blocks.{layer}.feed_forward.body.down.weight",   "encoder.layer.{layer}.output.dense.weight",           Same),
    ("blocks.{layer}.feed_forward.body.down.bias",     "encoder.layer.{layer}.output.dense.bias",             Same),
    ("final_norm.weight",                              "layernorm.weight",                                    Same),
    ("final_norm.bias",                                "layernorm.bias",                                      Same),
];

/// The settings of config.json that matter to the numbers. Others are left alone.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Words {
    image_size: Sides,
    patch_size: usize,
    num_channels: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    hidden_act: String,
    hidden_dropout_prob: f64,
    attention_probs_dropout_prob: f64,
    layer_norm_eps: f64,
    initializer_range: f64,
    qkv_bias: bool,
    pooler_output_size: Option<usize>,
    pooler_act: String,
}

/// One number for a square, or height and width.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(untagged)]
enum Sides {
    Square(usize),
    Both([usize; 2]),
}

/// Hugging Face leaves out what equals its defaults, which are those of ViT base.
impl Default for Words {
    fn default() -> Self {
        Self {
            image_size: Sides::Square(224),
            patch_size: 16,
            num_channels: 3,
            hidden_size: 768,
            intermediate_size: 3072,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            hidden_act: "gelu".to_owned(),
            hidden_dropout_prob: 0.0,
            attention_probs_dropout_prob: 0.0,
            layer_norm_eps: 1e-12,
            initializer_range: 0.02,
            qkv_bias: true,
            pooler_output_size: None,
            pooler_act: "tanh".to_owned(),
        }
    }
}

fn read(words: &Value, tokens: usize) -> Result<ModelConfig, String> {
    let words: Words = json::typed(words, "")?;
    let [height, width] = match words.image_size {
        Sides::Square(side) => [side; 2],
        Sides::Both(sides) => sides,
    };
    let patches = PatchesConfig {
        height,
        width,
        size: words.patch_size,
        channels: words.num_channels,
        bias: true,
        tokens,
    };
    let sizes = [height, width, words.patch_size];
    if sizes.contains(&0) {
        return Err("image_size and patch_size must be 1 or more".to_owned());
    }
    let [rows, columns] = patches.grid();
    let norm = NormConfig::Layer {
        epsilon: words.layer_norm_eps,
    };
    Ok(ModelConfig {
        role: Role::Bidirectional,
        patches: Some(patches),
        embedding_dropout: words.hidden_dropout_prob,
        initial_deviation: words.initializer_range,
        head: HeadConfig::None,
        positions: PositionsConfig::Learned(LearnedConfig::default()),
        final_norm: Some(norm.clone()),
        blocks: vec![BlockConfig {
            repeat: words.num_hidden_layers,
            dropout: words.hidden_dropout_prob,
            placement: NormPlacement::Before,
            norm,
            attention: AttentionConfig::Full(FullAttentionConfig {
                scale: None,
                heads: words.num_attention_heads,
                key_value_heads: None,
                head_width: None,
                dropout: words.attention_probs_dropout_prob,
                bias: words.qkv_bias,
                output_bias: true,
                head_norm: None,
            }),
            cross: None,
            feed_forward: FeedForwardConfig::Plain(PlainConfig {
                hidden_width: words.intermediate_size,
                activation: activation(&words.hidden_act)?,
                bias: true,
            }),
        }],
        ..ModelConfig::new(
            0,
            rows.saturating_mul(columns).saturating_add(tokens),
            words.hidden_size,
        )
    })
}

fn write(config: &ModelConfig, tokens: usize) -> Option<Value> {
    let [block] = config.blocks.as_slice() else {
        return None;
    };
    let FeedForwardConfig::Plain(feed_forward) = &block.feed_forward else {
        return None;
    };
    let patches = config.patches.filter(|patches| patches.tokens == tokens)?;
    let heads = block.attention.heads()?;
    let map = config
        .pooler
        .as_ref()
        .and_then(|pooler| pooler.map.as_ref());
    let act = map.and_then(|map| map.activation);
    let words = Words {
        image_size: match [patches.height, patches.width] {
            [height, width] if height == width => Sides::Square(height),
            sides => Sides::Both(sides),
        },
        patch_size: patches.size,
        num_channels: patches.channels,
        hidden_size: config.width,
        intermediate_size: feed_forward.hidden_width,
        num_hidden_layers: block.repeat,
        num_attention_heads: heads.heads,
        hidden_act: activation_name(feed_forward.activation).to_owned(),
        hidden_dropout_prob: block.dropout,
        attention_probs_dropout_prob: heads.dropout,
        layer_norm_eps: block.norm.epsilon(),
        initializer_range: config.initial_deviation,
        qkv_bias: heads.bias,
        pooler_output_size: map.and_then(|map| map.width),
        pooler_act: act.map_or("tanh", activation_name).to_owned(),
    };
    serde_json::to_value(words).ok()
}

/// The vector of the class token, through a map.
fn pooled(words: &Value, config: &mut ModelConfig) -> Result<(), String> {
    let words: Words = json::typed(words, "")?;
    let map = PoolerMap {
        width: words.pooler_output_size,
        activation: match words.pooler_act.as_str() {
            "tanh" => None,
            name => Some(activation(name)?),
        },
    };
    config.pooler = Some(PoolerConfig {
        from: PooledFrom::First,
        map: Some(map),
    });
    Ok(())
}

/// Classes of the state of the class token as it is, and of a teacher's token where there is one.
fn image_classes(words: &Value, config: &mut ModelConfig, teacher: bool) -> Result<(), String> {
    config.pooler = Some(PoolerConfig {
        from: PooledFrom::First,
        map: None,
    });
    let mut classes = classes(words, true)?;
    classes.teacher = teacher;
    config.classes = Some(classes);
    Ok(())
}
