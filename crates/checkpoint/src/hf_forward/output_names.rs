//! What Hugging Face's model classes call the outputs of their heads.

use super::super::name_table::TensorNames;
use attentive_model::ModelConfig;

/// The output names of a model class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputNames {
    /// The pooled hidden state; None where Hugging Face does not return it.
    pub pooler_output: Option<&'static str>,
    /// The logits of the LM head.
    pub logits: &'static str,
    /// The logits of the sequence classifier.
    pub class_logits: &'static str,
}

impl OutputNames {
    /// The names of a class with one head.
    pub const PLAIN: Self = Self {
        pooler_output: None,
        logits: "logits",
        class_logits: "logits",
    };

    /// The names of the class with these tensor names.
    pub(in super::super) fn of(names: &TensorNames, config: &ModelConfig) -> Self {
        let is_named = |parameter: &str, part: &str| {
            let found = names.find(parameter);
            found.is_some_and(|(name, _)| name.contains(part))
        };
        // A class with both heads is one for pretraining.
        let both = config.head.lm_head().is_some() && config.sequence_classifier.is_some();
        let [logits, class_logits] = match both {
            true if is_named("sequence_classifier.projection.weight", "sop_classifier") => {
                ["prediction_logits", "sop_logits"]
            }
            true => ["prediction_logits", "seq_relationship_logits"],
            false => [Self::PLAIN.logits, Self::PLAIN.class_logits],
        };
        let projected = config
            .pooler
            .as_ref()
            .is_some_and(|it| it.projection.is_some());
        let pooled = projected && is_named("pooler.projection.weight", "pooler");
        Self {
            pooler_output: pooled.then_some("pooler_output"),
            logits,
            class_logits,
        }
    }
}
