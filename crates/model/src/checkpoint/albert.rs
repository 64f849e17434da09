//! ALBERT as Hugging Face writes it: BERT with narrow embeddings and groups of blocks that are gone through again and again.
//! Lan et al. 2020.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bert_family::{
    ANSWER_ROWS, BertWords, LABEL_ROWS, RENAMED, answers, classes_of_first, labels_of_tokens,
    masked, masked_words, pooled, pooled_first,
};
use super::heads::classes;
use super::table::{Operation::Same, Part, Row, Table};
use super::{Architecture, Format, LastState};
use crate::checks::MOST_BLOCKS;
use crate::{EmbeddingConfig, LearnedConfig, ModelConfig, PositionsConfig};

pub(super) const FORMAT: Format = Format {
    model_type: "albert",
    decoder: None,
    read,
    write,
    table: Table {
        parts: &[Part {
            ours: "stack.",
            theirs: "albert.",
            rows: ROWS,
        }],
        optional_prefix: "albert.",
        ignored: &[
            "embeddings.position_ids",
            "predictions.decoder.weight",
            "predictions.decoder.bias",
        ],
        renamed: RENAMED,
        twins: &[("words.bias", "predictions.decoder.bias")],
        zeros: &[],
    },
    group: |words| {
        let inner = words["inner_group_num"].as_u64();
        inner.map_or(1, |inner| inner.max(1) as usize)
    },
    last_state: LastState::Normed,
    architectures: &[
        Architecture {
            name: "AlbertModel",
            heads: pooled,
            rows: POOLER_ROWS,
            bare: true,
        },
        Architecture {
            name: "AlbertForMaskedLM",
            heads: masked,
            rows: PRETRAINING_ROWS,
            bare: false,
        },
        Architecture {
            name: "AlbertForPreTraining",
            heads: |words, config| {
                masked_words(words, config, None);
                pooled_first(config, None);
                config.classes = Some(classes(words, true)?);
                Ok(())
            },
            rows: PRETRAINING_ROWS,
            bare: false,
        },
        Architecture {
            name: "AlbertForSequenceClassification",
            heads: |words, config| classes_of_first(words, config, None),
            rows: CLASSES_ROWS,
            bare: false,
        },
        Architecture {
            name: "AlbertForTokenClassification",
            heads: labels_of_tokens,
            rows: LABEL_ROWS,
            bare: false,
        },
        Architecture {
            name: "AlbertForQuestionAnswering",
            heads: answers,
            rows: ANSWER_ROWS,
            bare: false,
        },
    ],
};

#[rustfmt::skip] // A table is read in columns.
const ROWS: &[Row] = &[
    ("tokens.weight",                                 "embeddings.word_embeddings.weight",       Same),
    ("positions.weight",                              "embeddings.position_embeddings.weight",   Same),
    ("types.weight",                                  "embeddings.token_type_embeddings.weight", Same),
    ("embedding_norm.weight",                         "embeddings.LayerNorm.weight",             Same),
    ("embedding_norm.bias",                           "embeddings.LayerNorm.bias",               Same),
    ("embedding_map.weight",                          "encoder.embedding_hidden_mapping_in.weight", Same),
    ("embedding_map.bias",                            "encoder.embedding_hidden_mapping_in.bias",   Same),
    ("blocks.{layer}.attention.body.query.weight",    "encoder.albert_layer_groups.{group}.albert_layers.{inner}.attention.query.weight",     Same),
    ("blocks.{layer}.attention.body.query.bias",      "encoder.albert_layer_groups.{group}.albert_layers.{inner}.attention.query.bias",       Same),
    ("blocks.{layer}.attention.body.key.weight",      "encoder.albert_layer_groups.{group}.albert_layers.{inner}.attention.key.weight",       Same),
    ("blocks.{layer}.attention.body.key.bias",        "encoder.albert_layer_groups.{group}.albert_layers.{inner}.attention.key.bias",         Same),
    ("blocks.{layer}.attention.body.value.weight",    "encoder.albert_layer_groups.{group}.albert_layers.{inner}.attention.value.weight",     Same),
    ("blocks.{layer}.attention.body.value.bias",      "encoder.albert_layer_groups.{group}.albert_layers.{inner}.attention.value.bias",       Same),
    ("blocks.{layer}.attention.body.output.weight",   "encoder.albert_layer_groups.{group}.albert_layers.{inner}.attention.dense.weight",     Same),
    ("blocks.{layer}.attention.body.output.bias",     "encoder.albert_layer_groups.{group}.albert_layers.{inner}.attention.dense.bias",       Same),
    ("blocks.{layer}.attention.norm_after.weight",    "encoder.albert_layer_groups.{group}.albert_layers.{inner}.attention.LayerNorm.weight", Same),
    ("blocks.{layer}.attention.norm_after.bias",      "encoder.albert_layer_groups.{group}.albert_layers.{inner}.attention.LayerNorm.bias",   Same),
    ("blocks.{layer}.feed_forward.body.up.weight",    "encoder.albert_layer_groups.{group}.albert_layers.{inner}.ffn.weight",                 Same),
    ("blocks.{layer}.feed_forward.body.up.bias",      "encoder.albert_layer_groups.{group}.albert_layers.{inner}.ffn.bias",                   Same),
    ("blocks.{layer}.feed_forward.body.down.weight",  "encoder.albert_layer_groups.{group}.albert_layers.{inner}.ffn_output.weight",          Same),
    ("blocks.{layer}.feed_forward.body.down.bias",    "encoder.albert_layer_groups.{group}.albert_layers.{inner}.ffn_output.bias",            Same),
    ("blocks.{layer}.feed_forward.norm_after.weight", "encoder.albert_layer_groups.{group}.albert_layers.{inner}.full_layer_layer_norm.weight", Same),
    ("blocks.{layer}.feed_forward.norm_after.bias",   "encoder.albert_layer_groups.{group}.albert_layers.{inner}.full_layer_layer_norm.bias", Same),
];

#[rustfmt::skip]
const POOLER_ROWS: &[Row] = &[
    ("pooler.map.weight", "albert.pooler.weight", Same),
    ("pooler.map.bias",   "albert.pooler.bias",   Same),
];

#[rustfmt::skip]
const CLASSES_ROWS: &[Row] = &[
    ("pooler.map.weight",  "albert.pooler.weight", Same),
    ("pooler.map.bias",    "albert.pooler.bias",   Same),
    ("classes.map.weight", "classifier.weight",    Same),
    ("classes.map.bias",   "classifier.bias",      Same),
];

#[rustfmt::skip]
const PRETRAINING_ROWS: &[Row] = &[
    ("words.transform.map.weight",  "predictions.dense.weight",         Same),
    ("words.transform.map.bias",    "predictions.dense.bias",           Same),
    ("words.transform.norm.weight", "predictions.LayerNorm.weight",     Same),
    ("words.transform.norm.bias",   "predictions.LayerNorm.bias",       Same),
    ("words.weight",                "predictions.decoder.weight",       Same),
    ("words.bias",                  "predictions.bias",                 Same),
    ("pooler.map.weight",           "albert.pooler.weight",             Same),
    ("pooler.map.bias",             "albert.pooler.bias",               Same),
    ("classes.map.weight",          "sop_classifier.classifier.weight", Same),
    ("classes.map.bias",            "sop_classifier.classifier.bias",   Same),
];

/// How often each group of blocks is gone through.
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
    /// The blocks of a pass, by their numbers.
    fn order(self) -> Vec<usize> {
        let group = |layer: usize| layer * self.groups / self.layers;
        let blocks = |layer| (0..self.inner).map(move |inner| group(layer) * self.inner + inner);
        (0..self.layers).flat_map(blocks).collect()
    }
}

/// The groups that make this order of blocks, if there are such.
fn groups(config: &ModelConfig) -> Option<Groups> {
    let stored = config.stored_layers();
    let order = match config.order.as_slice() {
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

fn read(words: &Value) -> Result<ModelConfig, String> {
    let defaults = BertWords {
        vocab_size: 30000,
        hidden_size: 4096,
        intermediate_size: 16384,
        num_attention_heads: 64,
        hidden_act: "gelu_new".to_owned(),
        hidden_dropout_prob: 0.0,
        attention_probs_dropout_prob: 0.0,
        ..BertWords::default()
    };
    let bert = BertWords::read(words, defaults)?;
    let groups: Groups = super::json::typed(words, "")?;
    let Groups {
        layers,
        groups: count,
        inner,
    } = groups;
    let sizes = [
        ("num_hidden_layers", layers, MOST_BLOCKS),
        ("num_hidden_groups", count, layers),
        ("inner_group_num", inner, MOST_BLOCKS / layers.max(1)),
    ];
    if let Some((name, size, most)) = sizes
        .iter()
        .find(|(_, size, most)| !(1..=*most).contains(size))
    {
        return Err(format!("{name} {size} is out of range; use 1 to {most}"));
    }
    let positions = PositionsConfig::Learned(LearnedConfig::default());
    let mut config = bert.settings(positions, bert.max_position_embeddings)?;
    let width = match &words["embedding_size"] {
        Value::Null => 128,
        size => size
            .as_u64()
            .and_then(|size| usize::try_from(size).ok())
            .ok_or_else(|| format!("embedding_size: {size} is not a whole number"))?,
    };
    config.embedding = EmbeddingConfig {
        width: Some(width),
        ..config.embedding
    };
    config.blocks[0].repeat = count * inner;
    config.order = groups.order();
    Ok(config)
}

fn write(config: &ModelConfig) -> Option<Value> {
    let groups = groups(config)?;
    let mut words = serde_json::to_value(BertWords::of(config)?).ok()?;
    let more = serde_json::to_value(groups).ok()?;
    let words_of_groups = more.as_object()?.clone();
    words.as_object_mut()?.extend(words_of_groups);
    words["embedding_size"] = config.embedding_width().into();
    Some(words)
}
