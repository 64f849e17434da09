//! The heads that several families of models have in common.

use serde_json::{Value, json};

use super::Architecture;
use super::generation::ids;
use super::json::read_labels;
use super::table::{Operation::Same, Row};
use crate::{ClassesConfig, HeadConfig, ModelConfig, PooledFrom, PoolerConfig};

/// The model with the head that its settings say.
pub const fn with_words(name: &'static str, rows: &'static [Row]) -> Architecture {
    Architecture {
        name,
        heads: |_, _| Ok(()),
        rows,
        bare: false,
    }
}

/// The hidden states alone.
pub const fn bare(name: &'static str) -> Architecture {
    Architecture {
        name,
        heads: |_, config| {
            config.head = HeadConfig::None;
            Ok(())
        },
        rows: &[],
        bare: true,
    }
}

/// Classes of a sequence by the last token of a decoder, which alone has seen all others. Hugging Face finds it by the pad
/// token of config.json; without one it reads one row at a time, of which the last position counts.
pub const fn classes_of_last(name: &'static str) -> Architecture {
    Architecture {
        name,
        heads: |words, config| {
            config.head = HeadConfig::None;
            config.pooler = Some(PoolerConfig {
                from: match ids(words, "pad_token_id")?.first() {
                    Some(padding) => PooledFrom::LastBut(*padding),
                    None => PooledFrom::End,
                },
                map: None,
            });
            config.classes = Some(classes(words, false)?);
            Ok(())
        },
        rows: &[("classes.map.weight", "score.weight", Same)],
        bare: false,
    }
}

/// Adds what [`classes_of_last`] reads to `words`.
pub fn write_pad_token(words: &mut Value, config: &ModelConfig) {
    if let Some(PooledFrom::LastBut(padding)) = config.pooler.as_ref().map(|it| it.from) {
        words["pad_token_id"] = json!(padding);
    }
}

/// As many classes as config.json names.
pub fn classes(words: &Value, bias: bool) -> Result<ClassesConfig, String> {
    Ok(ClassesConfig {
        classes: read_labels(words)?,
        bias,
        dropout: 0.0,
        teacher: false,
    })
}

/// Refuses settings that would change the numbers and that nothing here can express.
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
