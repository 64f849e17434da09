//! Adapts a config to the weights where config.json is silent or wrong: like Hugging Face, we trust the weights.

use super::TensorFile;
use super::name_table::{FileNames, TensorNames};
use attentive_model::ModelConfig;
use attentive_model::head::{HeadConfig, LmHeadConfig};

/// The config, adapted to the weights.
pub fn adapt_to_weights(
    config: &ModelConfig,
    names: &TensorNames,
    file: &TensorFile,
) -> ModelConfig {
    let mut config = config.clone();
    let file_names = FileNames::new(names, file);
    if let Some(lm_head) = config.head.lm_head().filter(|head| head.tied)
        && has_own_head(names, &file_names, file)
    {
        config.head = HeadConfig::LmHead(LmHeadConfig {
            tied: false,
            ..lm_head
        });
    }
    // A base model may be saved without its pooler; its config.json is the same.
    let pooler = names.find("pooler.projection.weight");
    let pooled = pooler.is_some_and(|(name, _)| file_names.has(&name));
    if names.base_model && config.sequence_classifier.is_none() && !pooled {
        config.pooler = None;
    }
    config
}

/// Whether a file has an LM head that differs from the embedding, though config.json says they are tied.
fn has_own_head(names: &TensorNames, file_names: &FileNames, file: &TensorFile) -> bool {
    let tensor = |name: &str| {
        let (full_name, _) = names.find(name)?;
        file_names.name(&full_name)
    };
    let (Some(head), Some(tokens)) = (tensor("lm_head.weight"), tensor("stack.tokens.weight"))
    else {
        return false;
    };
    // In most files that have both, one is a copy.
    file.shape(head) == file.shape(tokens)
        && match (file.floats(head), file.floats(tokens)) {
            (Ok(head), Ok(tokens)) => head != tokens,
            _ => false,
        }
}
