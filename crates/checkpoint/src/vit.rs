//! ViT and DeiT in Hugging Face's format: images as sequences of patches. Dosovitskiy et al. 2021; Touvron et al. 2021.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::activation::{activation, activation_name};
use super::heads::classifier;
use super::name_table::{NameTable, Section, TensorRow, Transform::*};
use super::{Format, LastHiddenState, ModelClass, config_json};
use attentive_model::attention::{AttentionConfig, FullAttentionConfig, Role};
use attentive_model::block::{BlockConfig, NormPlacement};
use attentive_model::embeddings::PatchesConfig;
use attentive_model::feed_forward::{FeedForwardConfig, PlainConfig};
use attentive_model::head::{PooledFrom, PoolerConfig, PoolerProjection};
use attentive_model::positions::{LearnedConfig, PositionsConfig};
use attentive_model::{ModelConfig, NormConfig, StackConfig};

pub(super) const VIT: Format = Format {
    model_type: "vit",
    decoder: None,
    read: |json| read(json, 1),
    write: |config| write(config, 1),
    table: NameTable {
        sections: &[Section {
            model_prefix: "stack.",
            file_prefix: "vit.",
            rows: ROWS,
        }],
        optional_prefix: "vit.",
        ignored: &[],
        renamed: &[],
        aliases: &[],
        zero_if_missing: &[],
    },
    group: |_| 1,
    last_hidden_state: LastHiddenState::BeforeFinalNorm,
    architectures: &[
        ModelClass {
            name: "ViTModel",
            heads: pooler,
            rows: &[
                ("pooler.projection.weight", "vit.pooler.dense.weight", Same),
                ("pooler.projection.bias", "vit.pooler.dense.bias", Same),
            ],
            base_model: true,
        },
        ModelClass {
            name: "ViTForImageClassification",
            heads: |json, config| image_classifier(json, config, false),
            rows: CLASSIFIER_ROWS,
            base_model: false,
        },
    ],
};

pub(super) const DEIT: Format = Format {
    model_type: "deit",
    decoder: None,
    read: |json| read(json, 2),
    write: |config| write(config, 2),
    table: NameTable {
        sections: &[Section {
            model_prefix: "stack.",
            file_prefix: "deit.",
            rows: ROWS,
        }],
        optional_prefix: "deit.",
        ignored: &[],
        renamed: &[],
        aliases: &[],
        zero_if_missing: &[],
    },
    group: |_| 1,
    last_hidden_state: LastHiddenState::BeforeFinalNorm,
    architectures: &[
        ModelClass {
            name: "DeiTModel",
            heads: pooler,
            rows: &[
                ("pooler.projection.weight", "deit.pooler.dense.weight", Same),
                ("pooler.projection.bias", "deit.pooler.dense.bias", Same),
            ],
            base_model: true,
        },
        ModelClass {
            name: "DeiTForImageClassification",
            heads: |json, config| image_classifier(json, config, false),
            rows: CLASSIFIER_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "DeiTForImageClassificationWithTeacher",
            heads: |json, config| image_classifier(json, config, true),
            rows: &[
                (
                    "sequence_classifier.projection.weight",
                    "cls_classifier.weight",
                    Same,
                ),
                (
                    "sequence_classifier.projection.bias",
                    "cls_classifier.bias",
                    Same,
                ),
                (
                    "sequence_classifier.distillation.weight",
                    "distillation_classifier.weight",
                    Same,
                ),
                (
                    "sequence_classifier.distillation.bias",
                    "distillation_classifier.bias",
                    Same,
                ),
            ],
            base_model: false,
        },
    ],
};

#[rustfmt::skip] // Keeps the columns aligned.
const ROWS: &[TensorRow] = &[
    ("patches.class_token",                            "embeddings.cls_token",                                   Unsqueeze0),
    ("patches.distillation_token",                     "embeddings.distillation_token",                          Unsqueeze0),
    ("patches.projection.weight",                      "embeddings.patch_embeddings.projection.weight",          Conv2d),
    ("patches.projection.bias",                        "embeddings.patch_embeddings.projection.bias",            Same),
    ("positions.weight",                               "embeddings.position_embeddings",                         Unsqueeze0),
    ("blocks.{layer}.attention.norm_before.weight",    "encoder.layer.{layer}.layernorm_before.weight",          Same),
    ("blocks.{layer}.attention.norm_before.bias",      "encoder.layer.{layer}.layernorm_before.bias",            Same),
    ("blocks.{layer}.attention.body.query.weight",     "encoder.layer.{layer}.attention.attention.query.weight", Same),
    ("blocks.{layer}.attention.body.query.bias",       "encoder.layer.{layer}.attention.attention.query.bias",   Same),
    ("blocks.{layer}.attention.body.key.weight",       "encoder.layer.{layer}.attention.attention.key.weight",   Same),
    ("blocks.{layer}.attention.body.key.bias",         "encoder.layer.{layer}.attention.attention.key.bias",     Same),
    ("blocks.{layer}.attention.body.value.weight",     "encoder.layer.{layer}.attention.attention.value.weight", Same),
    ("blocks.{layer}.attention.body.value.bias",       "encoder.layer.{layer}.attention.attention.value.bias",   Same),
    ("blocks.{layer}.attention.body.output.weight",    "encoder.layer.{layer}.attention.output.dense.weight",    Same),
    ("blocks.{layer}.attention.body.output.bias",      "encoder.layer.{layer}.attention.output.dense.bias",      Same),
    ("blocks.{layer}.feed_forward.norm_before.weight", "encoder.layer.{layer}.layernorm_after.weight",           Same),
    ("blocks.{layer}.feed_forward.norm_before.bias",   "encoder.layer.{layer}.layernorm_after.bias",             Same),
    ("blocks.{layer}.feed_forward.body.up.weight",     "encoder.layer.{layer}.intermediate.dense.weight",        Same),
    ("blocks.{layer}.feed_forward.body.up.bias",       "encoder.layer.{layer}.intermediate.dense.bias",          Same),
    ("blocks.{layer}.feed_forward.body.down.weight",   "encoder.layer.{layer}.output.dense.weight",              Same),
    ("blocks.{layer}.feed_forward.body.down.bias",     "encoder.layer.{layer}.output.dense.bias",                Same),
    ("final_norm.weight",                              "layernorm.weight",                                       Same),
    ("final_norm.bias",                                "layernorm.bias",                                         Same),
];

#[rustfmt::skip]
const CLASSIFIER_ROWS: &[TensorRow] = &[
    ("sequence_classifier.projection.weight", "classifier.weight", Same),
    ("sequence_classifier.projection.bias",   "classifier.bias",   Same),
];

/// The keys of config.json that affect the output. Other keys are ignored.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct VitConfig {
    image_size: ImageSize,
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

/// The side of a square, or height and width.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(untagged)]
enum ImageSize {
    Square(usize),
    Both([usize; 2]),
}

/// Hugging Face leaves out keys with default values, which are those of ViT base.
impl Default for VitConfig {
    fn default() -> Self {
        Self {
            image_size: ImageSize::Square(224),
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

fn read(json: &Value, tokens: usize) -> Result<ModelConfig, String> {
    let hf: VitConfig = config_json::typed(json, "")?;
    let [height, width] = match hf.image_size {
        ImageSize::Square(side) => [side; 2],
        ImageSize::Both(sides) => sides,
    };
    let patches = PatchesConfig {
        height,
        width,
        size: hf.patch_size,
        channels: hf.num_channels,
        bias: true,
        tokens,
    };
    let sizes = [height, width, hf.patch_size];
    if sizes.contains(&0) {
        return Err("image_size and patch_size must be 1 or more".to_owned());
    }
    let [rows, columns] = patches.grid();
    let norm = NormConfig::Layer {
        epsilon: hf.layer_norm_eps,
    };
    let stack = StackConfig {
        role: Role::Bidirectional,
        patches: Some(patches),
        embedding_dropout: hf.hidden_dropout_prob,
        init_std: hf.initializer_range,
        positions: PositionsConfig::Learned(LearnedConfig::default()),
        final_norm: Some(norm.clone()),
        blocks: vec![BlockConfig {
            repeat: hf.num_hidden_layers,
            dropout: hf.hidden_dropout_prob,
            placement: NormPlacement::Before,
            norm,
            attention: AttentionConfig::Full(FullAttentionConfig {
                scale: None,
                heads: hf.num_attention_heads,
                key_value_heads: None,
                head_width: None,
                dropout: hf.attention_probs_dropout_prob,
                bias: hf.qkv_bias,
                output_bias: true,
                head_norm: None,
            }),
            cross: None,
            feed_forward: FeedForwardConfig::Plain(PlainConfig {
                hidden_width: hf.intermediate_size,
                activation: activation(&hf.hidden_act)?,
                bias: true,
            }),
        }],
        ..StackConfig::new(
            0,
            rows.saturating_mul(columns).saturating_add(tokens),
            hf.hidden_size,
        )
    };
    Ok(ModelConfig::new(stack))
}

fn write(config: &ModelConfig, tokens: usize) -> Option<Value> {
    let [block] = config.stack.blocks.as_slice() else {
        return None;
    };
    let FeedForwardConfig::Plain(feed_forward) = &block.feed_forward else {
        return None;
    };
    let patches = config
        .stack
        .patches
        .filter(|patches| patches.tokens == tokens)?;
    let heads = block.attention.heads()?;
    let projection = config
        .pooler
        .as_ref()
        .and_then(|pooler| pooler.projection.as_ref());
    let activation = projection.and_then(|it| it.activation);
    let hf = VitConfig {
        image_size: match [patches.height, patches.width] {
            [height, width] if height == width => ImageSize::Square(height),
            sides => ImageSize::Both(sides),
        },
        patch_size: patches.size,
        num_channels: patches.channels,
        hidden_size: config.stack.width,
        intermediate_size: feed_forward.hidden_width,
        num_hidden_layers: block.repeat,
        num_attention_heads: heads.heads,
        hidden_act: activation_name(feed_forward.activation).to_owned(),
        hidden_dropout_prob: block.dropout,
        attention_probs_dropout_prob: heads.dropout,
        layer_norm_eps: block.norm.epsilon(),
        initializer_range: config.stack.init_std,
        qkv_bias: heads.bias,
        pooler_output_size: projection.and_then(|it| it.width),
        pooler_act: activation.map_or("tanh", activation_name).to_owned(),
    };
    serde_json::to_value(hf).ok()
}

/// The pooler: the class token through a projection.
fn pooler(json: &Value, config: &mut ModelConfig) -> Result<(), String> {
    let hf: VitConfig = config_json::typed(json, "")?;
    let projection = PoolerProjection {
        width: hf.pooler_output_size,
        activation: match hf.pooler_act.as_str() {
            "tanh" => None,
            name => Some(activation(name)?),
        },
    };
    config.pooler = Some(PoolerConfig {
        from: PooledFrom::First,
        projection: Some(projection),
    });
    Ok(())
}

/// A classifier on the class token, and one on the distillation token where there is one.
fn image_classifier(
    json: &Value,
    config: &mut ModelConfig,
    distillation: bool,
) -> Result<(), String> {
    config.pooler = Some(PoolerConfig {
        from: PooledFrom::First,
        projection: None,
    });
    let mut classes = classifier(json, true)?;
    classes.distillation = distillation;
    config.sequence_classifier = Some(classes);
    Ok(())
}
