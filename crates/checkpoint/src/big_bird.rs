//! BigBird in Hugging Face's format: BERT with block-sparse attention in long texts and full attention in short ones.
//! Zaheer et al. 2020.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::activation::activation;
use super::bert_family::{
    BertConfig, RENAMED, ROWS, pooler, pretraining_heads, question_answering, sequence_classifier,
    set_mlm_head, set_pooler, token_classifier,
};
use super::config_json::typed;
use super::heads::refuse_unless;
use super::name_table::{NameTable, Section, TensorRow, Transform::Same};
use super::roberta::CLASSIFIER_ROWS;
use super::{Format, LastHiddenState, ModelClass};
use attentive_model::ModelConfig;
use attentive_model::attention::{
    AttentionConfig, BigBirdConfig, BlockSampling, FullAttentionConfig,
};
use attentive_model::head::{TokenClassifierConfig, TokenClassifierLayer};
use attentive_model::positions::{LearnedConfig, PositionsConfig};

pub(super) const FORMAT: Format = Format {
    model_type: "big_bird",
    decoder: None,
    read,
    write,
    table: NameTable {
        sections: &[Section {
            model_prefix: "stack.",
            file_prefix: "bert.",
            rows: ROWS,
        }],
        optional_prefix: "bert.",
        // Buffers of old versions, and copies of tied weights.
        ignored: &[
            "embeddings.position_ids",
            "embeddings.token_type_ids",
            "cls.predictions.decoder.weight",
            "cls.predictions.decoder.bias",
        ],
        renamed: RENAMED,
        aliases: &[("lm_head.bias", "cls.predictions.decoder.bias")],
        zero_if_missing: &[],
    },
    group: |_| 1,
    last_hidden_state: LastHiddenState::AfterFinalNorm,
    architectures: &[
        ModelClass {
            name: "BigBirdModel",
            heads: pooler,
            rows: HEAD_ROWS,
            base_model: true,
        },
        ModelClass {
            name: "BigBirdForMaskedLM",
            heads: |json, config| {
                set_mlm_head(json, config, None);
                // Hugging Face's class has an unused pooler too.
                set_pooler(config, None);
                Ok(())
            },
            rows: HEAD_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "BigBirdForPreTraining",
            heads: pretraining_heads,
            rows: HEAD_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "BigBirdForSequenceClassification",
            heads: |json, config| {
                let bert = BertConfig::read(json, defaults())?;
                sequence_classifier(json, config, Some(activation(&bert.hidden_act)?))
            },
            rows: CLASSIFIER_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "BigBirdForTokenClassification",
            heads: |json, config| {
                set_pooler(config, None);
                token_classifier(json, config)
            },
            rows: TOKEN_CLASSIFIER_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "BigBirdForQuestionAnswering",
            heads: question_answering_with_layer,
            rows: QA_ROWS,
            base_model: false,
        },
    ],
};

#[rustfmt::skip] // Keeps the columns aligned.
const HEAD_ROWS: &[TensorRow] = &[
    ("lm_head.transform.projection.weight",   "cls.predictions.transform.dense.weight",     Same),
    ("lm_head.transform.projection.bias",     "cls.predictions.transform.dense.bias",       Same),
    ("lm_head.transform.norm.weight",         "cls.predictions.transform.LayerNorm.weight", Same),
    ("lm_head.transform.norm.bias",           "cls.predictions.transform.LayerNorm.bias",   Same),
    ("lm_head.weight",                        "cls.predictions.decoder.weight",             Same),
    ("lm_head.bias",                          "cls.predictions.bias",                       Same),
    ("pooler.projection.weight",              "bert.pooler.weight",                         Same),
    ("pooler.projection.bias",                "bert.pooler.bias",                           Same),
    ("sequence_classifier.projection.weight", "cls.seq_relationship.weight",                Same),
    ("sequence_classifier.projection.bias",   "cls.seq_relationship.bias",                  Same),
];

#[rustfmt::skip]
const TOKEN_CLASSIFIER_ROWS: &[TensorRow] = &[
    ("pooler.projection.weight",           "bert.pooler.weight", Same),
    ("pooler.projection.bias",             "bert.pooler.bias",   Same),
    ("token_classifier.projection.weight", "classifier.weight",  Same),
    ("token_classifier.projection.bias",   "classifier.bias",    Same),
];

#[rustfmt::skip]
const QA_ROWS: &[TensorRow] = &[
    ("token_classifier.layer.body.up.weight",    "qa_classifier.intermediate.dense.weight", Same),
    ("token_classifier.layer.body.up.bias",      "qa_classifier.intermediate.dense.bias",   Same),
    ("token_classifier.layer.body.down.weight",  "qa_classifier.output.dense.weight",       Same),
    ("token_classifier.layer.body.down.bias",    "qa_classifier.output.dense.bias",         Same),
    ("token_classifier.layer.norm_after.weight", "qa_classifier.output.LayerNorm.weight",   Same),
    ("token_classifier.layer.norm_after.bias",   "qa_classifier.output.LayerNorm.bias",     Same),
    ("token_classifier.projection.weight",       "qa_classifier.qa_outputs.weight",         Same),
    ("token_classifier.projection.bias",         "qa_classifier.qa_outputs.bias",           Same),
];

/// Question answering with an extra feed-forward layer. The answer is not in the question, which is masked and has its
/// own token type.
fn question_answering_with_layer(json: &Value, config: &mut ModelConfig) -> Result<(), String> {
    let end = match &json["sep_token_id"] {
        Value::Null => 66,
        id => typed(id, "sep_token_id")?,
    };
    question_answering(json, config)?;
    let layer = config
        .stack
        .blocks
        .first()
        .map(|block| TokenClassifierLayer {
            feed_forward: block.feed_forward.clone(),
            norm: block.norm.clone(),
            dropout: block.dropout,
        });
    config.token_classifier = config
        .token_classifier
        .take()
        .map(|labels| TokenClassifierConfig {
            layer,
            question_end: Some(end),
            ..labels
        });
    Ok(())
}

fn defaults() -> BertConfig {
    BertConfig {
        vocab_size: 50358,
        max_position_embeddings: 4096,
        hidden_act: "gelu_new".to_owned(),
        ..BertConfig::default()
    }
}

/// The keys besides BERT's.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct HfBigBirdConfig {
    attention_type: String,
    block_size: usize,
    num_random_blocks: usize,
    use_bias: bool,
    rescale_embeddings: bool,
}

impl Default for HfBigBirdConfig {
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

impl HfBigBirdConfig {
    /// The length up to which attention is full.
    fn full_length(&self) -> usize {
        let blocks = self.num_random_blocks.saturating_mul(2).saturating_add(5);
        blocks.saturating_mul(self.block_size)
    }

    fn attention(&self, bert: &BertConfig) -> Result<AttentionConfig, String> {
        let (heads, dropout) = (bert.num_attention_heads, bert.attention_probs_dropout_prob);
        match self.attention_type.as_str() {
            "block_sparse" => Ok(AttentionConfig::BigBird(BigBirdConfig {
                block: self.block_size,
                random_blocks: self.num_random_blocks,
                seed: 0,
                sampling: BlockSampling::InTraining,
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

fn read(json: &Value) -> Result<ModelConfig, String> {
    let bert = BertConfig::read(json, defaults())?;
    refuse_unless(&[("is_decoder", bert.is_decoder, false)])?;
    let own: HfBigBirdConfig = typed(json, "")?;
    let positions = PositionsConfig::Learned(LearnedConfig::default());
    let mut config = bert.model(positions, bert.max_position_embeddings)?;
    config.stack.blocks[0].attention = own.attention(&bert)?;
    config.stack.embedding.scaled = own.rescale_embeddings.then_some(true);
    Ok(config)
}

fn write(config: &ModelConfig) -> Option<Value> {
    let bert = BertConfig::of(config)?;
    let attention = &config.stack.blocks.first()?.attention;
    let mut own = HfBigBirdConfig {
        use_bias: attention.heads()?.bias,
        rescale_embeddings: config.stack.embedding.scaled == Some(true),
        ..HfBigBirdConfig::default()
    };
    match attention {
        AttentionConfig::BigBird(attention) => {
            own.block_size = attention.block;
            own.num_random_blocks = attention.random_blocks;
        }
        AttentionConfig::Full(_) => own.attention_type = "original_full".to_owned(),
        _ => return None,
    }
    let mut json = serde_json::to_value(bert).ok()?;
    let own = serde_json::to_value(own).ok()?;
    json.as_object_mut()?.extend(own.as_object()?.clone());
    if let Some(end) = config
        .token_classifier
        .as_ref()
        .and_then(|labels| labels.question_end)
    {
        json["sep_token_id"] = end.into();
    }
    Some(json)
}
