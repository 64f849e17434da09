//! `problem_type` in config.json, and the activation of classification logits that follows from it.

use serde_json::{Value, json};

use super::Description;

/// The task of a sequence classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemType {
    /// Each output is a value to predict.
    Regression,
    /// Exactly one class applies.
    SingleLabel,
    /// Any number of classes apply.
    MultiLabel,
}

/// The function that turns classification logits into scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassificationFunction {
    /// None: raw logits.
    None,
    /// Softmax: probabilities that sum to one.
    Softmax,
    /// Sigmoid: an independent probability for each class.
    Sigmoid,
}

const NAMES: [(&str, ProblemType); 3] = [
    ("regression", ProblemType::Regression),
    ("single_label_classification", ProblemType::SingleLabel),
    ("multi_label_classification", ProblemType::MultiLabel),
];

impl ProblemType {
    /// Reads `problem_type`.
    pub(super) fn read(json: &Value) -> Result<Option<Self>, String> {
        let value = &json["problem_type"];
        let known = NAMES.iter().find(|(name, _)| value == name);
        match known {
            None if value.is_null() => Ok(None),
            None => {
                let all = NAMES.map(|(name, _)| name);
                Err(format!(
                    "problem_type: there is no {value}; use {}",
                    all.join(", ")
                ))
            }
            Some((_, problem_type)) => Ok(Some(*problem_type)),
        }
    }

    /// Writes `problem_type`.
    pub(super) fn write(self, json: &mut Value) {
        let name = NAMES.iter().find(|(_, it)| *it == self);
        json["problem_type"] = json!(name.map(|(name, _)| name));
    }
}

impl Description {
    /// The function applied to classification logits, by the rule of Hugging Face's pipelines. The image pipeline has no
    /// regression.
    pub fn classification_function(&self) -> ClassificationFunction {
        let classes = self
            .config
            .sequence_classifier
            .as_ref()
            .map(|it| it.classes);
        match self.problem_type {
            Some(ProblemType::Regression) if self.config.stack.patches.is_none() => {
                ClassificationFunction::None
            }
            Some(ProblemType::MultiLabel) => ClassificationFunction::Sigmoid,
            _ if classes == Some(1) => ClassificationFunction::Sigmoid,
            _ => ClassificationFunction::Softmax,
        }
    }
}
