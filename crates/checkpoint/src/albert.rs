//! ALBERT in Hugging Face's format: BERT with factorized embeddings and groups of blocks that share weights. Lan et al.
//! 2020.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bert_family::{
    BertConfig, QA_ROWS, RENAMED, TOKEN_CLASSIFIER_ROWS, mlm_head, pooler, question_answering,
    sequence_classifier, set_mlm_head, set_pooler, token_classifier,
};
use super::heads::classifier;
use super::name_table::{NameTable, Section, TensorRow, Transform::Same};
use super::{Format, LastHiddenState, ModelClass};
use attentive_model::ModelConfig;
use attentive_model::checks::MAX_BLOCKS;
use attentive_model::embeddings::EmbeddingConfig;
use attentive_model::positions::{LearnedConfig, PositionsConfig};

pub(super) const FORMAT: Format = Format {
    model_type: "albert",
    decoder: None,
    read,
    write,
    table: NameTable {
        sections: &[Section {
            model_prefix: "stack.",
            file_prefix: "albert.",
            rows: ROWS,
        }],
        optional_prefix: "albert.",
        ignored: &[
            "embeddings.position_ids",
            "predictions.decoder.weight",
            "predictions.decoder.bias",
        ],
        renamed: RENAMED,
        aliases: &[("lm_head.bias", "predictions.decoder.bias")],
        zero_if_missing: &[],
    },
    group: |json| {
        let inner = json["inner_group_num"].as_u64();
        inner.map_or(1, |inner| inner.max(1) as usize)
    },
    last_hidden_state: LastHiddenState::AfterFinalNorm,
    architectures: &[
        ModelClass {
            name: "AlbertModel",
            heads: pooler,
            rows: POOLER_ROWS,
            base_model: true,
        },
        ModelClass {
            name: "AlbertForMaskedLM",
            heads: mlm_head,
            rows: PRETRAINING_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "AlbertForPreTraining",
            heads: |json, config| {
                set_mlm_head(json, config, None);
                set_pooler(config, None);
                config.sequence_classifier = Some(classifier(json, true)?);
                Ok(())
            },
            rows: PRETRAINING_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "AlbertForSequenceClassification",
            heads: |json, config| sequence_classifier(json, config, None),
            rows: CLASSIFIER_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "AlbertForTokenClassification",
            heads: token_classifier,
            rows: TOKEN_CLASSIFIER_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "AlbertForQuestionAnswering",
            heads: question_answering,
            rows: QA_ROWS,
            base_model: false,
        },
    ],
};

#[rustfmt::skip] // Keeps the columns aligned.
const ROWS: &[TensorRow] = &[
    ("tokens.weight",                                 "embeddings.word_embeddings.weight",                                                      Same),
    ("positions.weight",                              "embeddings.position_embeddings.weight",                                                  Same),
    ("types.weight",                                  "embeddings.token_type_embeddings.weight",                                                Same),
    ("embedding_norm.weight",                         "embeddings.LayerNorm.weight",                                                            Same),
    ("embedding_norm.bias",                           "embeddings.LayerNorm.bias",                                                              Same),
    ("embedding_projection.weight",                   "encoder.embedding_hidden_mapping_in.weight",                                             Same),
    ("embedding_projection.bias",                     "encoder.embedding_hidden_mapping_in.bias",                                               Same),
    ("blocks.{layer}.attention.body.query.weight",    "encoder.albert_layer_groups.{group}.albert_layers.{inner}.attention.query.weight",       Same),
    ("blocks.{layer}.attention.body.query.bias",      "encoder.albert_layer_groups.{group}.albert_layers.{inner}.attention.query.bias",         Same),
    ("blocks.{layer}.attention.body.key.weight",      "encoder.albert_layer_groups.{group}.albert_layers.{inner}.attention.key.weight",         Same),
    ("blocks.{layer}.attention.body.key.bias",        "encoder.albert_layer_groups.{group}.albert_layers.{inner}.attention.key.bias",           Same),
    ("blocks.{layer}.attention.body.value.weight",    "encoder.albert_layer_groups.{group}.albert_layers.{inner}.attention.value.weight",       Same),
    ("blocks.{layer}.attention.body.value.bias",      "encoder.albert_layer_groups.{group}.albert_layers.{inner}.attention.value.bias",         Same),
    ("blocks.{layer}.attention.body.output.weight",   "encoder.albert_layer_groups.{group}.albert_layers.{inner}.attention.dense.weight",       Same),
    ("blocks.{layer}.attention.body.output.bias",     "encoder.albert_layer_groups.{group}.albert_layers.{inner}.attention.dense.bias",         Same),
    ("blocks.{layer}.attention.norm_after.weight",    "encoder.albert_layer_groups.{group}.albert_layers.{inner}.attention.LayerNorm.weight",   Same),
    ("blocks.{layer}.attention.norm_after.bias",      "encoder.albert_layer_groups.{group}.albert_layers.{inner}.attention.LayerNorm.bias",     Same),
    ("blocks.{layer}.feed_forward.body.up.weight",    "encoder.albert_layer_groups.{group}.albert_layers.{inner}.ffn.weight",                   Same),
    ("blocks.{layer}.feed_forward.body.up.bias",      "encoder.albert_layer_groups.{group}.albert_layers.{inner}.ffn.bias",                     Same),
    ("blocks.{layer}.feed_forward.body.down.weight",  "encoder.albert_layer_groups.{group}.albert_layers.{inner}.ffn_output.weight",            Same),
    ("blocks.{layer}.feed_forward.body.down.bias",    "encoder.albert_layer_groups.{group}.albert_layers.{inner}.ffn_output.bias",              Same),
    ("blocks.{layer}.feed_forward.norm_after.weight", "encoder.albert_layer_groups.{group}.albert_layers.{inner}.full_layer_layer_norm.weight", Same),
    ("blocks.{layer}.feed_forward.norm_after.bias",   "encoder.albert_layer_groups.{group}.albert_layers.{inner}.full_layer_layer_norm.bias",   Same),
];

#[rustfmt::skip]
const POOLER_ROWS: &[TensorRow] = &[
    ("pooler.projection.weight", "albert.pooler.weight", Same),
    ("pooler.projection.bias",   "albert.pooler.bias",   Same),
];

#[rustfmt::skip]
const CLASSIFIER_ROWS: &[TensorRow] = &[
    ("pooler.projection.weight",              "albert.pooler.weight", Same),
    ("pooler.projection.bias",                "albert.pooler.bias",   Same),
    ("sequence_classifier.projection.weight", "classifier.weight",    Same),
    ("sequence_classifier.projection.bias",   "classifier.bias",      Same),
];

#[rustfmt::skip]
const PRETRAINING_ROWS: &[TensorRow] = &[
    ("lm_head.transform.projection.weight",   "predictions.dense.weight",         Same),
    ("lm_head.transform.projection.bias",     "predictions.dense.bias",           Same),
    ("lm_head.transform.norm.weight",         "predictions.LayerNorm.weight",     Same),
    ("lm_head.transform.norm.bias",           "predictions.LayerNorm.bias",       Same),
    ("lm_head.weight",                        "predictions.decoder.weight",       Same),
    ("lm_head.bias",                          "predictions.bias",                 Same),
    ("pooler.projection.weight",              "albert.pooler.weight",             Same),
    ("pooler.projection.bias",                "albert.pooler.bias",               Same),
    ("sequence_classifier.projection.weight", "sop_classifier.classifier.weight", Same),
    ("sequence_classifier.projection.bias",   "sop_classifier.classifier.bias",   Same),
];

/// How blocks are shared: `layers` layers are divided among `groups` groups, each of `inner` blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Groups {
    #[serde(rename = "num_hidden_layers")]
    layers: usize,
    #[serde(rename = "num_hidden_groups")]
    groups: usize,
    #[serde(rename = "inner_group_num")]
    inner: usize,
}

impl Default for Groups {
    fn default() -> Self {
        Self {
            layers: 12,
            groups: 1,
            inner: 1,
        }
    }
}

impl Groups {
    /// The order of the blocks in a forward pass.
    fn order(self) -> Vec<usize> {
        let group = |layer: usize| layer * self.groups / self.layers;
        let blocks = |layer| (0..self.inner).map(move |inner| group(layer) * self.inner + inner);
        (0..self.layers).flat_map(blocks).collect()
    }
}

/// The groups that give a config's order of blocks, if there are any.
fn groups(config: &ModelConfig) -> Option<Groups> {
    let stored = config.stack.stored_layers();
    let order = match config.stack.order.as_slice() {
        [] => (0..stored).collect(),
        order => order.to_vec(),
    };
    let divides =
        |inner: &usize| order.len().is_multiple_of(*inner) && stored.is_multiple_of(*inner);
    (1..=stored)
        .filter(divides)
        .map(|inner| Groups {
            layers: order.len() / inner,
            groups: stored / inner,
            inner,
        })
        .find(|groups| groups.order() == order)
}

fn read(json: &Value) -> Result<ModelConfig, String> {
    let defaults = BertConfig {
        vocab_size: 30000,
        hidden_size: 4096,
        intermediate_size: 16384,
        num_attention_heads: 64,
        hidden_act: "gelu_new".to_owned(),
        hidden_dropout_prob: 0.0,
        attention_probs_dropout_prob: 0.0,
        ..BertConfig::default()
    };
    let bert = BertConfig::read(json, defaults)?;
    let groups: Groups = super::config_json::typed(json, "")?;
    let Groups {
        layers,
        groups: count,
        inner,
    } = groups;
    let sizes = [
        ("num_hidden_layers", layers, MAX_BLOCKS),
        ("num_hidden_groups", count, layers),
        ("inner_group_num", inner, MAX_BLOCKS / layers.max(1)),
    ];
    if let Some((name, size, max)) = sizes
        .iter()
        .find(|(_, size, max)| !(1..=*max).contains(size))
    {
        return Err(format!("{name} {size} is out of range; use 1 to {max}"));
    }
    let positions = PositionsConfig::Learned(LearnedConfig::default());
    let mut config = bert.model(positions, bert.max_position_embeddings)?;
    let width = match &json["embedding_size"] {
        Value::Null => 128,
        size => size
            .as_u64()
            .and_then(|size| usize::try_from(size).ok())
            .ok_or_else(|| format!("embedding_size: {size} is not a whole number"))?,
    };
    config.stack.embedding = EmbeddingConfig {
        width: Some(width),
        ..config.stack.embedding
    };
    config.stack.blocks[0].repeat = count * inner;
    config.stack.order = groups.order();
    Ok(config)
}

fn write(config: &ModelConfig) -> Option<Value> {
    let groups = groups(config)?;
    let mut json = serde_json::to_value(BertConfig::of(config)?).ok()?;
    let groups = serde_json::to_value(groups).ok()?;
    json.as_object_mut()?.extend(groups.as_object()?.clone());
    json["embedding_size"] = config.stack.embedding_width().into();
    Some(json)
}
