//! What BERT and its descendants share: the keys of config.json, tensor names and heads. Devlin et al. 2019.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::activation::{activation, activation_name};
use super::config_json::{self, read_labels};
use super::heads::{classifier, refuse_unless};
use super::name_table::{TensorRow, Transform::Same};
use attentive_model::attention::{AttentionConfig, FullAttentionConfig, Role};
use attentive_model::block::{BlockConfig, NormPlacement};
use attentive_model::embeddings::EmbeddingConfig;
use attentive_model::feed_forward::{FeedForwardConfig, PlainConfig};
use attentive_model::head::{
    HeadConfig, LmHeadConfig, PooledFrom, PoolerConfig, PoolerProjection, SequenceClassifierConfig,
    TokenClassifierConfig, TokenTask, TransformConfig,
};
use attentive_model::positions::PositionsConfig;
use attentive_model::{Activation, ModelConfig, NormConfig, StackConfig};

#[rustfmt::skip] // Keeps the columns aligned.
pub const ROWS: &[TensorRow] = &[
    ("tokens.weight",                                 "embeddings.word_embeddings.weight",                            Same),
    ("positions.weight",                              "embeddings.position_embeddings.weight",                        Same),
    ("types.weight",                                  "embeddings.token_type_embeddings.weight",                      Same),
    ("embedding_norm.weight",                         "embeddings.LayerNorm.weight",                                  Same),
    ("embedding_norm.bias",                           "embeddings.LayerNorm.bias",                                    Same),
    ("blocks.{layer}.attention.body.query.weight",    "encoder.layer.{layer}.attention.self.query.weight",            Same),
    ("blocks.{layer}.attention.body.query.bias",      "encoder.layer.{layer}.attention.self.query.bias",              Same),
    ("blocks.{layer}.attention.body.key.weight",      "encoder.layer.{layer}.attention.self.key.weight",              Same),
    ("blocks.{layer}.attention.body.key.bias",        "encoder.layer.{layer}.attention.self.key.bias",                Same),
    ("blocks.{layer}.attention.body.value.weight",    "encoder.layer.{layer}.attention.self.value.weight",            Same),
    ("blocks.{layer}.attention.body.value.bias",      "encoder.layer.{layer}.attention.self.value.bias",              Same),
    ("blocks.{layer}.attention.body.output.weight",   "encoder.layer.{layer}.attention.output.dense.weight",          Same),
    ("blocks.{layer}.attention.body.output.bias",     "encoder.layer.{layer}.attention.output.dense.bias",            Same),
    ("blocks.{layer}.attention.norm_after.weight",    "encoder.layer.{layer}.attention.output.LayerNorm.weight",      Same),
    ("blocks.{layer}.attention.norm_after.bias",      "encoder.layer.{layer}.attention.output.LayerNorm.bias",        Same),
    ("blocks.{layer}.cross.body.query.weight",        "encoder.layer.{layer}.crossattention.self.query.weight",       Same),
    ("blocks.{layer}.cross.body.query.bias",          "encoder.layer.{layer}.crossattention.self.query.bias",         Same),
    ("blocks.{layer}.cross.body.key.weight",          "encoder.layer.{layer}.crossattention.self.key.weight",         Same),
    ("blocks.{layer}.cross.body.key.bias",            "encoder.layer.{layer}.crossattention.self.key.bias",           Same),
    ("blocks.{layer}.cross.body.value.weight",        "encoder.layer.{layer}.crossattention.self.value.weight",       Same),
    ("blocks.{layer}.cross.body.value.bias",          "encoder.layer.{layer}.crossattention.self.value.bias",         Same),
    ("blocks.{layer}.cross.body.output.weight",       "encoder.layer.{layer}.crossattention.output.dense.weight",     Same),
    ("blocks.{layer}.cross.body.output.bias",         "encoder.layer.{layer}.crossattention.output.dense.bias",       Same),
    ("blocks.{layer}.cross.norm_after.weight",        "encoder.layer.{layer}.crossattention.output.LayerNorm.weight", Same),
    ("blocks.{layer}.cross.norm_after.bias",          "encoder.layer.{layer}.crossattention.output.LayerNorm.bias",   Same),
    ("blocks.{layer}.feed_forward.body.up.weight",    "encoder.layer.{layer}.intermediate.dense.weight",              Same),
    ("blocks.{layer}.feed_forward.body.up.bias",      "encoder.layer.{layer}.intermediate.dense.bias",                Same),
    ("blocks.{layer}.feed_forward.body.down.weight",  "encoder.layer.{layer}.output.dense.weight",                    Same),
    ("blocks.{layer}.feed_forward.body.down.bias",    "encoder.layer.{layer}.output.dense.bias",                      Same),
    ("blocks.{layer}.feed_forward.norm_after.weight", "encoder.layer.{layer}.output.LayerNorm.weight",                Same),
    ("blocks.{layer}.feed_forward.norm_after.bias",   "encoder.layer.{layer}.output.LayerNorm.bias",                  Same),
];

/// Norms as named in the first checkpoints, which were converted from TensorFlow.
pub const RENAMED: &[(&str, &str)] = &[
    ("LayerNorm.gamma", "LayerNorm.weight"),
    ("LayerNorm.beta", "LayerNorm.bias"),
];

/// The keys of config.json that affect the output. Other keys are ignored.
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub struct BertConfig {
    pub vocab_size: usize,
    pub max_position_embeddings: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub type_vocab_size: usize,
    pub hidden_act: String,
    pub hidden_dropout_prob: f64,
    pub attention_probs_dropout_prob: f64,
    pub layer_norm_eps: f64,
    pub initializer_range: f64,
    pub is_decoder: bool,
    pub add_cross_attention: bool,
    pub tie_word_embeddings: bool,
    pub position_embedding_type: String,
    pub pad_token_id: Option<u32>,
}

/// Hugging Face leaves out keys with default values, which are those of BERT base.
impl Default for BertConfig {
    fn default() -> Self {
        Self {
            vocab_size: 30522,
            max_position_embeddings: 512,
            hidden_size: 768,
            intermediate_size: 3072,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            type_vocab_size: 2,
            hidden_act: "gelu".to_owned(),
            hidden_dropout_prob: 0.1,
            attention_probs_dropout_prob: 0.1,
            layer_norm_eps: 1e-12,
            initializer_range: 0.02,
            is_decoder: false,
            add_cross_attention: false,
            tie_word_embeddings: true,
            position_embedding_type: "absolute".to_owned(),
            pad_token_id: None,
        }
    }
}

impl BertConfig {
    /// Reads a config.json, on top of the defaults of a model type.
    pub fn read(json: &Value, defaults: Self) -> Result<Self, String> {
        let mut all = serde_json::to_value(defaults).expect("a config serializes");
        let given = json.as_object().cloned().unwrap_or_default();
        // null stands for the default, as None does in Python.
        let given = given.into_iter().filter(|(_, value)| !value.is_null());
        all.as_object_mut()
            .expect("a struct is an object")
            .extend(given);
        let hf: Self = config_json::typed(&all, "")?;
        if hf.position_embedding_type != "absolute" {
            return Err(format!(
                "position_embedding_type {:?} is not supported; it must be \"absolute\"",
                hf.position_embedding_type
            ));
        }
        refuse_unless(&[(
            "add_cross_attention",
            hf.add_cross_attention && !hf.is_decoder,
            false,
        )])?;
        Ok(hf)
    }

    /// Our config, without heads, of a model with these positions.
    pub fn model(&self, positions: PositionsConfig, length: usize) -> Result<ModelConfig, String> {
        let norm = NormConfig::Layer {
            epsilon: self.layer_norm_eps,
        };
        let attention = AttentionConfig::Full(FullAttentionConfig {
            scale: None,
            heads: self.num_attention_heads,
            key_value_heads: None,
            head_width: None,
            dropout: self.attention_probs_dropout_prob,
            bias: true,
            output_bias: true,
            head_norm: None,
        });
        let stack = StackConfig {
            role: match self.is_decoder {
                true => Role::Causal,
                false => Role::Bidirectional,
            },
            embedding: EmbeddingConfig {
                types: self.type_vocab_size,
                norm: Some(norm.clone()),
                ..EmbeddingConfig::default()
            },
            embedding_dropout: self.hidden_dropout_prob,
            init_std: self.initializer_range,
            positions,
            blocks: vec![BlockConfig {
                repeat: self.num_hidden_layers,
                dropout: self.hidden_dropout_prob,
                placement: NormPlacement::After,
                norm,
                cross: self.add_cross_attention.then(|| attention.clone()),
                attention,
                feed_forward: FeedForwardConfig::Plain(PlainConfig {
                    hidden_width: self.intermediate_size,
                    activation: activation(&self.hidden_act)?,
                    bias: true,
                }),
            }],
            ..StackConfig::new(self.vocab_size, length, self.hidden_size)
        };
        Ok(ModelConfig::new(stack))
    }

    /// The keys for our config; None where BERT clearly cannot express it.
    pub fn of(config: &ModelConfig) -> Option<Self> {
        let [block] = config.stack.blocks.as_slice() else {
            return None;
        };
        let FeedForwardConfig::Plain(feed_forward) = &block.feed_forward else {
            return None;
        };
        let heads = block.attention.heads()?;
        Some(Self {
            vocab_size: config.stack.vocabulary,
            max_position_embeddings: config.stack.length,
            hidden_size: config.stack.width,
            intermediate_size: feed_forward.hidden_width,
            num_hidden_layers: block.repeat,
            num_attention_heads: heads.heads,
            type_vocab_size: config.stack.embedding.types,
            hidden_act: activation_name(feed_forward.activation).to_owned(),
            hidden_dropout_prob: block.dropout,
            attention_probs_dropout_prob: heads.dropout,
            layer_norm_eps: block.norm.epsilon(),
            initializer_range: config.stack.init_std,
            is_decoder: config.stack.role == Role::Causal,
            add_cross_attention: block.cross.is_some(),
            tie_word_embeddings: config.head.lm_head().is_none_or(|head| head.tied),
            ..Self::default()
        })
    }
}

/// Sets an LM head with a transform before it, whose activation defaults to that of the blocks.
pub fn set_mlm_head(json: &Value, config: &mut ModelConfig, activation: Option<Activation>) {
    let block = config.stack.blocks.first();
    let activation = activation.or(block.and_then(|block| match &block.feed_forward {
        FeedForwardConfig::Plain(plain) => Some(plain.activation),
        _ => None,
    }));
    let norm = block.map(|block| block.norm.clone());
    config.head = HeadConfig::LmHead(LmHeadConfig {
        tied: json["tie_word_embeddings"].as_bool().unwrap_or(true),
        bias: true,
        scaled: false,
        transform: activation
            .zip(norm)
            .map(|(activation, norm)| TransformConfig { activation, norm }),
    });
}

/// [`set_mlm_head`] as the head of a model class.
pub fn mlm_head(json: &Value, config: &mut ModelConfig) -> Result<(), String> {
    set_mlm_head(json, config, None);
    Ok(())
}

/// Next-sentence prediction: a classifier on the pooler.
pub fn next_sentence_head(_: &Value, config: &mut ModelConfig) -> Result<(), String> {
    set_pooler(config, None);
    config.sequence_classifier = Some(SequenceClassifierConfig {
        classes: 2,
        bias: true,
        dropout: 0.0,
        distillation: false,
    });
    Ok(())
}

/// The heads of pretraining: an LM head, and next-sentence prediction.
pub fn pretraining_heads(json: &Value, config: &mut ModelConfig) -> Result<(), String> {
    mlm_head(json, config)?;
    next_sentence_head(json, config)
}

/// [`set_pooler`] as the head of a model class.
pub fn pooler(_: &Value, config: &mut ModelConfig) -> Result<(), String> {
    set_pooler(config, None);
    Ok(())
}

/// Sets a pooler: the first token through a projection and an activation, by default tanh.
pub fn set_pooler(config: &mut ModelConfig, activation: Option<Activation>) {
    config.pooler = Some(PoolerConfig {
        from: PooledFrom::First,
        projection: Some(PoolerProjection {
            width: None,
            activation,
        }),
    });
}

/// A sequence classifier on the pooled first token.
pub fn sequence_classifier(
    json: &Value,
    config: &mut ModelConfig,
    activation: Option<Activation>,
) -> Result<(), String> {
    set_pooler(config, activation);
    config.sequence_classifier = Some(classifier(json, true)?);
    Ok(())
}

/// A token classifier.
pub fn token_classifier(json: &Value, config: &mut ModelConfig) -> Result<(), String> {
    config.token_classifier = Some(TokenClassifierConfig {
        labels: read_labels(json)?,
        task: TokenTask::Labels,
        dropout: 0.0,
        layer: None,
        question_end: None,
    });
    Ok(())
}

/// Extractive question answering: start and end of the answer.
pub fn question_answering(_: &Value, config: &mut ModelConfig) -> Result<(), String> {
    config.token_classifier = Some(TokenClassifierConfig {
        labels: 2,
        task: TokenTask::Span,
        dropout: 0.0,
        layer: None,
        question_end: None,
    });
    Ok(())
}

#[rustfmt::skip]
pub const TOKEN_CLASSIFIER_ROWS: &[TensorRow] = &[
    ("token_classifier.projection.weight", "classifier.weight", Same),
    ("token_classifier.projection.bias",   "classifier.bias",   Same),
];

#[rustfmt::skip]
pub const QA_ROWS: &[TensorRow] = &[
    ("token_classifier.projection.weight", "qa_outputs.weight", Same),
    ("token_classifier.projection.bias",   "qa_outputs.bias",   Same),
];
