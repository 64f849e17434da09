//! What the classes of a sequence are for, in config.json, and hence how their scores are to be read.

use serde_json::{Value, json};

use super::Description;

/// What the classes of a sequence are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A number each.
    Numbers,
    /// One of them holds.
    One,
    /// Any of them may hold.
    Any,
}

/// How the scores of classes are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoresAs {
    /// As they are.
    Plain,
    /// As probabilities that add up to one: the softmax.
    Exclusive,
    /// As a probability each: the sigmoid.
    Independent,
}

const WORDS: [(&str, Problem); 3] = [
    ("regression", Problem::Numbers),
    ("single_label_classification", Problem::One),
    ("multi_label_classification", Problem::Any),
];

impl Problem {
    /// What config.json says.
    pub(super) fn read(words: &Value) -> Result<Option<Self>, String> {
        let said = &words["problem_type"];
        let known = WORDS.iter().find(|(word, _)| said == word);
        match known {
            None if said.is_null() => Ok(None),
            None => {
                let all = WORDS.map(|(word, _)| word);
                Err(format!(
                    "problem_type: there is no {said}; use {}",
                    all.join(", ")
                ))
            }
            Some((_, problem)) => Ok(Some(*problem)),
        }
    }

    /// Adds it to the words of config.json.
    pub(super) fn write(self, words: &mut Value) {
        let word = WORDS.iter().find(|(_, problem)| *problem == self);
        words["problem_type"] = json!(word.map(|(word, _)| word));
    }
}

impl Description {
    /// How the scores of classes are to be read, by the rule of Hugging Face's pipelines, of which the one for pictures knows
    /// no plain numbers.
    pub fn class_scores(&self) -> ScoresAs {
        let classes = self.config.classes.as_ref().map(|it| it.classes);
        match self.problem {
            Some(Problem::Numbers) if self.config.patches.is_none() => ScoresAs::Plain,
            Some(Problem::Any) => ScoresAs::Independent,
            _ if classes == Some(1) => ScoresAs::Independent,
            _ => ScoresAs::Exclusive,
        }
    }
}
