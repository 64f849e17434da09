//! BigBird as Hugging Face writes it: BERT with attention to some blocks of a long text, and to all of a short one. Zaheer et
//! al. 2020.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bert::next_sentence;
use super::bert_family::{
    BertWords, RENAMED, ROWS, answers, classes_of_first, labels_of_tokens, masked_words, pooled,
    pooled_first,
};
use super::heads::refuse_unless;
use super::json::typed;
use super::roberta::CLASSES_ROWS;
use super::table::{Operation::Same, Part, Row, Table};
use super::words::activation;
use super::{Architecture, Format, LastState};
use crate::{
    AttentionConfig, BigBirdConfig, BlockDraws, FullAttentionConfig, LabelsConfig, LabelsLayer,
    LearnedConfig, ModelConfig, PositionsConfig,
};

pub(super) const FORMAT: Format = Format {
    model_type: "big_bird",
    decoder: None,
    read,
    write,
    table: Table {
        parts: &[Part {
            ours: "stack.",
            theirs: "bert.",
            rows: ROWS,
        }],
        optional_prefix: "bert.",
        // Buffers of old versions, and copies of what is tied.
        ignored: &[
            "embeddings.position_ids",
            "embeddings.token_type_ids",
            "cls.predictions.decoder.weight",
            "cls.predictions.decoder.bias",
        ],
        renamed: RENAMED,
        twins: &[("words.bias", "cls.predictions.decoder.bias")],
        zeros: &[],
    },
    group: |_| 1,
    last_state: LastState::Normed,
    architectures: &[
        Architecture {
            name: "BigBirdModel",
            heads: pooled,
            rows: HEAD_ROWS,
            bare: true,
        },
        Architecture {
            name: "BigBirdForMaskedLM",
            heads: |words, config| {
                masked_words(words, config, None);
                // Their class has one too, which nothing reads.
                pooled_first(config, None);
                Ok(())
            },
            rows: HEAD_ROWS,
            bare: false,
        },
        Architecture {
            name: "BigBirdForPreTraining",
            heads: |words, config| {
                masked_words(words, config, None);
                next_sentence(config);
                Ok(())
            },
            rows: HEAD_ROWS,
            bare: false,
        },
        Architecture {
            name: "BigBirdForSequenceClassification",
            heads: |words, config| {
                let bert = BertWords::read(words, defaults())?;
                classes_of_first(words, config, Some(activation(&bert.hidden_act)?))
            },
            rows: CLASSES_ROWS,
            bare: false,
        },
        Architecture {
            name: "BigBirdForTokenClassification",
            heads: |words, config| {
                pooled_first(config, None);
                labels_of_tokens(words, config)
            },
            rows: LABEL_ROWS,
            bare: false,
        },
        Architecture {
            name: "BigBirdForQuestionAnswering",
            heads: answers_behind_layer,
            rows: ANSWER_ROWS,
            bare: false,
        },
    ],
};

#[rustfmt::skip] // A table is read in columns.
const HEAD_ROWS: &[Row] = &[
    ("words.transform.map.weight",  "cls.predictions.transform.dense.weight",     Same),
    ("words.transform.map.bias",    "cls.predictions.transform.dense.bias",       Same),
    ("words.transform.norm.weight", "cls.predictions.transform.LayerNorm.weight", Same),
    ("words.transform.norm.bias",   "cls.predictions.transform.LayerNorm.bias",   Same),
    ("words.weight",                "cls.predictions.decoder.weight",             Same),
    ("words.bias",                  "cls.predictions.bias",                       Same),
    ("pooler.map.weight",           "bert.pooler.weight",                         Same),
    ("pooler.map.bias",             "bert.pooler.bias",                           Same),
    ("classes.map.weight",          "cls.seq_relationship.weight",                Same),
    ("classes.map.bias",            "cls.seq_relationship.bias",                  Same),
];

#[rustfmt::skip]
const LABEL_ROWS: &[Row] = &[
    ("pooler.map.weight", "bert.pooler.weight", Same),
    ("pooler.map.bias",   "bert.pooler.bias",   Same),
    ("labels.weight",     "classifier.weight",  Same),
    ("labels.bias",       "classifier.bias",    Same),
];

#[rustfmt::skip]
const ANSWER_ROWS: &[Row] = &[
    ("labels_layer.body.up.weight",    "qa_classifier.intermediate.dense.weight", Same),
    ("labels_layer.body.up.bias",      "qa_classifier.intermediate.dense.bias",   Same),
    ("labels_layer.body.down.weight",  "qa_classifier.output.dense.weight",       Same),
    ("labels_layer.body.down.bias",    "qa_classifier.output.dense.bias",         Same),
    ("labels_layer.norm_after.weight", "qa_classifier.output.LayerNorm.weight",   Same),
    ("labels_layer.norm_after.bias",   "qa_classifier.output.LayerNorm.bias",     Same),
    ("labels.weight",                  "qa_classifier.qa_outputs.weight",         Same),
    ("labels.bias",                    "qa_classifier.qa_outputs.bias",           Same),
];

/// Where an answer begins and ends, after a further feed-forward layer; a question before the text holds none, and is told
/// apart by the kinds of segments.
fn answers_behind_layer(words: &Value, config: &mut ModelConfig) -> Result<(), String> {
    let end = match &words["sep_token_id"] {
        Value::Null => 66,
        id => typed(id, "sep_token_id")?,
    };
    answers(words, config)?;
    let layer = config.blocks.first().map(|block| LabelsLayer {
        feed_forward: block.feed_forward.clone(),
        norm: block.norm.clone(),
    });
    config.embedding.question_end = Some(end);
    config.labels = config.labels.take().map(|labels| LabelsConfig {
        layer,
        question_end: Some(end),
        ..labels
    });
    Ok(())
}

fn defaults() -> BertWords {
    BertWords {
        vocab_size: 50358,
        max_position_embeddings: 4096,
        hidden_act: "gelu_new".to_owned(),
        ..BertWords::default()
    }
}

/// The settings that BERT does not have.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Words {
    attention_type: String,
    block_size: usize,
    num_random_blocks: usize,
    use_bias: bool,
    rescale_embeddings: bool,
}

impl Default for Words {
    fn default() -> Self {
        Self {
            attention_type: "block_sparse".to_owned(),
            block_size: 64,
            num_random_blocks: 3,
            use_bias: true,
            rescale_embeddings: false,
        }
    }
}

impl Words {
    /// Up to which length all positions see each other.
    fn full_length(&self) -> usize {
        let blocks = self.num_random_blocks.saturating_mul(2).saturating_add(5);
        blocks.saturating_mul(self.block_size)
    }

    fn attention(&self, bert: &BertWords) -> Result<AttentionConfig, String> {
        let (heads, dropout) = (bert.num_attention_heads, bert.attention_probs_dropout_prob);
        match self.attention_type.as_str() {
            "block_sparse" => Ok(AttentionConfig::BigBird(BigBirdConfig {
                block: self.block_size,
                random_blocks: self.num_random_blocks,
                seed: 0,
                draws: BlockDraws::InTraining,
                full_length: self.full_length().min(bert.max_position_embeddings),
                heads,
                key_value_heads: None,
                head_width: None,
                dropout,
                bias: self.use_bias,
                output_bias: true,
                head_norm: None,
            })),
            "original_full" => Ok(AttentionConfig::Full(FullAttentionConfig {
                scale: None,
                heads,
                key_value_heads: None,
                head_width: None,
                dropout,
                bias: self.use_bias,
                output_bias: true,
                head_norm: None,
            })),
            other => Err(format!(
                "attention_type {other:?} is not supported; supported are block_sparse and original_full"
            )),
        }
    }
}

fn read(words: &Value) -> Result<ModelConfig, String> {
    let bert = BertWords::read(words, defaults())?;
    refuse_unless(&[("is_decoder", bert.is_decoder, false)])?;
    let own: Words = typed(words, "")?;
    let positions = PositionsConfig::Learned(LearnedConfig::default());
    let mut config = bert.settings(positions, bert.max_position_embeddings)?;
    config.blocks[0].attention = own.attention(&bert)?;
    config.embedding.scaled = own.rescale_embeddings.then_some(true);
    Ok(config)
}

fn write(config: &ModelConfig) -> Option<Value> {
    let bert = BertWords::of(config)?;
    let attention = &config.blocks.first()?.attention;
    let mut own = Words {
        use_bias: attention.heads()?.bias,
        rescale_embeddings: config.embedding.scaled == Some(true),
        ..Words::default()
    };
    match attention {
        AttentionConfig::BigBird(attention) => {
            own.block_size = attention.block;
            own.num_random_blocks = attention.random_blocks;
        }
        AttentionConfig::Full(_) => own.attention_type = "original_full".to_owned(),
        _ => return None,
    }
    let mut words = serde_json::to_value(bert).ok()?;
    let own = serde_json::to_value(own).ok()?;
    words.as_object_mut()?.extend(own.as_object()?.clone());
    if let Some(end) = config.embedding.question_end {
        words["sep_token_id"] = end.into();
    }
    Some(words)
}
