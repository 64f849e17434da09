//! The heads that several model families share.

use serde_json::{Value, json};

use super::ModelClass;
use super::config_json::read_labels;
use super::name_table::{TensorRow, Transform::Same};
use attentive_generation::token_ids;
use attentive_model::ModelConfig;
use attentive_model::head::{HeadConfig, PooledFrom, PoolerConfig, SequenceClassifierConfig};

/// A language model, whose head the config describes.
pub const fn lm_head(name: &'static str, rows: &'static [TensorRow]) -> ModelClass {
    ModelClass {
        name,
        heads: |_, _| Ok(()),
        rows,
        base_model: false,
    }
}

/// A base model, without heads.
pub const fn base_model(name: &'static str) -> ModelClass {
    ModelClass {
        name,
        heads: |_, config| {
            config.head = HeadConfig::None;
            Ok(())
        },
        rows: &[],
        base_model: true,
    }
}

/// A sequence classifier on a decoder's last token, the only one that attends to all others. Hugging Face finds it by the
/// `pad_token_id` of config.json; without one it classifies one row at a time, by the last position.
pub const fn last_token_classifier(name: &'static str) -> ModelClass {
    ModelClass {
        name,
        heads: |json, config| {
            config.head = HeadConfig::None;
            config.pooler = Some(PoolerConfig {
                from: match token_ids(json, "pad_token_id")?.first() {
                    Some(padding) => PooledFrom::LastNonPad(*padding),
                    None => PooledFrom::End,
                },
                projection: None,
            });
            config.sequence_classifier = Some(classifier(json, false)?);
            Ok(())
        },
        rows: &[(
            "sequence_classifier.projection.weight",
            "score.weight",
            Same,
        )],
        base_model: false,
    }
}

/// Writes the pad token that [`last_token_classifier`] reads.
pub fn write_pad_token(json: &mut Value, config: &ModelConfig) {
    if let Some(PooledFrom::LastNonPad(padding)) = config.pooler.as_ref().map(|it| it.from) {
        json["pad_token_id"] = json!(padding);
    }
}

/// A classifier with as many classes as config.json names.
pub fn classifier(json: &Value, bias: bool) -> Result<SequenceClassifierConfig, String> {
    Ok(SequenceClassifierConfig {
        classes: read_labels(json)?,
        bias,
        dropout: 0.0,
        distillation: false,
    })
}

/// Refuses settings that change the output and are not supported. Each is a key, its value and the supported value.
pub fn refuse_unless(settings: &[(&str, bool, bool)]) -> Result<(), String> {
    match settings
        .iter()
        .find(|(_, value, supported)| value != supported)
    {
        Some((name, value, supported)) => Err(format!(
            "{name} {value} is not supported; it must be {supported}"
        )),
        None => Ok(()),
    }
}

/// The LM head of families without options for it.
pub fn tied_or_separate(tied: bool) -> HeadConfig {
    match tied {
        true => HeadConfig::Tied,
        false => HeadConfig::Separate,
    }
}
