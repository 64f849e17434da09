//! What Hugging Face's classes call what their heads give.

use super::super::table::Names;
use crate::ModelConfig;

/// The names of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputNames {
    /// Of the vector of a whole sequence; none where it is but a step on the way to the classes.
    pub pooled: Option<&'static str>,
    /// Of scores of the vocabulary.
    pub words: &'static str,
    /// Of scores of classes.
    pub classes: &'static str,
}

impl OutputNames {
    /// Those of a class with one head.
    pub const PLAIN: Self = Self {
        pooled: None,
        words: "logits",
        classes: "logits",
    };

    /// Those of a class whose tensors have these names.
    pub(in super::super) fn of(names: &Names, config: &ModelConfig) -> Self {
        let named = |ours: &str, word: &str| {
            let found = names.find(ours);
            found.is_some_and(|(theirs, _)| theirs.contains(word))
        };
        // Two heads at once are those of training before any task.
        let both = config.head.words().is_some() && config.classes.is_some();
        let [words, classes] = match both {
            true if named("classes.map.weight", "sop_classifier") => {
                ["prediction_logits", "sop_logits"]
            }
            true => ["prediction_logits", "seq_relationship_logits"],
            false => [Self::PLAIN.words, Self::PLAIN.classes],
        };
        let mapped = config.pooler.as_ref().is_some_and(|it| it.map.is_some());
        let pooled = mapped && named("pooler.map.weight", "pooler");
        Self {
            pooled: pooled.then_some("pooler_output"),
            words,
            classes,
        }
    }
}
