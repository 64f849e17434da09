//! Beam search: the likeliest texts instead of the likeliest tokens. Several beginnings of a text are followed side by side;
//! at each step their best continuations go on. Lowerre 1976; Sutskever et al. 2014. Scores and ends as Hugging Face has them.
//!
//! ```text
//! rows of the batch        source 0: beam beam beam beam | source 1: beam beam beam beam
//! scores of all tokens     of each source's beams together: the best 2 · beams
//!   that end the text      are kept with their final score, if they are among the best `beams`
//!   the others             the best `beams` are the rows of the next step; the cache's rows follow
//! ```

mod hypotheses;

use attentive_model::Model;
use attentive_model::checkpoint::{MOST_BEAMS, SearchEnd};

use crate::check::{check_rules, padding};
use crate::rules::Place;
use crate::sequences::Sequences;
use crate::{GenerationError, Rules, SettingError, StopReason, check_prompt, encode};
use hypotheses::{Hypotheses, Limits};

/// What to search for.
#[derive(Clone, Debug, PartialEq)]
pub struct BeamConfig {
    /// The most tokens to make; never more than the model has room for.
    pub max_tokens: usize,
    /// How many beginnings are followed.
    pub beams: usize,
    /// How many texts of each source are returned, at most as many as there are beams.
    pub returned: usize,
    /// A text's score is the logarithm of its probability divided by this power of its length, so more favours longer texts.
    pub length_penalty: f64,
    /// When enough is found.
    pub end: SearchEnd,
    /// Whose probability a rule's changes are taken from.
    pub changes: Changes,
    /// How many of the vocabulary's entries stand for text, if not all do.
    pub possible: Option<usize>,
    /// What the model's files ask of every text.
    pub rules: Rules,
}

/// What becomes of the probability that rules take from a token, or give to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Changes {
    /// It is lost: scores are of the model's own probabilities.
    #[default]
    Lost,
    /// It is shared among all tokens, whose probabilities add up to one again.
    Shared,
}

/// A text that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Beam {
    /// Its tokens, without the one that ended it.
    pub ids: Vec<u32>,
    /// The logarithm of its probability, end token included, over its length to the power of the penalty.
    pub score: f64,
    /// Why it ended.
    pub reason: StopReason,
}

impl BeamConfig {
    /// Whether every setting is in its range.
    pub fn validate(&self) -> Result<(), SettingError> {
        SettingError::first([
            (
                "beams",
                self.beams as f64,
                (1..=MOST_BEAMS).contains(&self.beams),
                &format!("1 to {MOST_BEAMS}"),
            ),
            (
                "return",
                self.returned as f64,
                (1..=self.beams).contains(&self.returned),
                &format!("1 to {}, the number of beams", self.beams),
            ),
            (
                "length-penalty",
                self.length_penalty,
                self.length_penalty.is_finite(),
                "a finite number",
            ),
        ])
    }
}

/// The best texts for each source, best first. A model with an encoder reads the sources there, side by side; another
/// continues each as a prompt, one after the other.
pub fn beam_search(
    model: &Model,
    sources: &[Vec<u32>],
    config: &BeamConfig,
) -> Result<Vec<Vec<Beam>>, GenerationError> {
    config.validate()?;
    check_rules(model, &config.rules)?;
    for source in sources {
        check_prompt(model, source)?;
    }
    if sources.is_empty() {
        return Ok(Vec::new());
    }
    if model.config().encoder.is_none() {
        let search = |prompt: &Vec<u32>| {
            let sequences = Sequences::new(model, None);
            let prompt = std::slice::from_ref(prompt);
            Ok(follow(sequences, prompt, prompt, config)?.remove(0))
        };
        return sources.iter().map(search).collect();
    }
    let memory = encode(model, sources, padding(model, &config.rules));
    let start = config.rules.start.ok_or(GenerationError::NoStart)?;
    let starts = vec![vec![start]; sources.len()];
    let sequences = Sequences::new(model, Some(memory));
    follow(sequences, sources, &starts, config)
}

/// The best continuations of each source's beginning; all beginnings have one length.
fn follow(
    mut sequences: Sequences,
    sources: &[Vec<u32>],
    beginnings: &[Vec<u32>],
    config: &BeamConfig,
) -> Result<Vec<Vec<Beam>>, GenerationError> {
    let before = beginnings[0].len();
    let room = (sequences.model().config().length + 1).saturating_sub(before);
    let limits = Limits {
        most: config.max_tokens.min(room),
        config,
    };
    let mut found: Vec<Hypotheses> = beginnings.iter().map(|_| Hypotheses::new()).collect();
    let mut unread = beginnings.to_vec();
    for made in 0..limits.most {
        let mut scores = sequences.read(&unread);
        let vocabulary = scores.len() / unread.len();
        let mut rows = scores.chunks_mut(vocabulary).zip(sequences.rows());
        let mut first_row = 0;
        let mut kept = Vec::new();
        unread.clear();
        let unfinished = found.iter_mut().zip(sources);
        for (hypotheses, source) in unfinished.filter(|(it, _)| !it.is_done()) {
            let count = hypotheses.running().len();
            let mut scored = Vec::with_capacity(count);
            for (scores, seen) in rows.by_ref().take(count) {
                let place = Place {
                    source,
                    seen,
                    made,
                    most: limits.most,
                };
                prepare(scores, place, config)?;
                scored.push(&*scores);
            }
            hypotheses.step(&scored, made, &limits);
            for beam in hypotheses.running() {
                kept.push(first_row + beam.row);
                unread.extend(beam.ids.last().map(|id| vec![*id]));
            }
            first_row += count;
        }
        if kept.is_empty() {
            break;
        }
        // What the last tokens lead to would never be used.
        if made + 1 < limits.most {
            sequences.select(&kept);
        }
    }
    let texts = found.into_iter().map(|it| it.into_texts(config.returned));
    let texts: Vec<Vec<Beam>> = texts.collect();
    match texts.iter().any(Vec::is_empty) {
        true => Err(GenerationError::NothingAllowed),
        false => Ok(texts),
    }
}

/// Makes scores the logarithms of probabilities, and puts the rules to them.
fn prepare(scores: &mut [f32], place: Place, config: &BeamConfig) -> Result<(), GenerationError> {
    if scores.iter().any(|score| score.is_nan()) || !normalize(scores) {
        return Err(GenerationError::NotANumber);
    }
    if let Some(possible) = config.possible {
        scores[possible..].fill(f32::NEG_INFINITY);
    }
    config.rules.apply(scores, place);
    if config.changes == Changes::Shared {
        // Where all tokens are forbidden there is nothing to share, and the search finds out.
        normalize(scores);
    }
    Ok(())
}

/// Makes scores the logarithms of probabilities that add up to one; false if they are of none.
fn normalize(scores: &mut [f32]) -> bool {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if !largest.is_finite() {
        return false;
    }
    let exponentials = scores.iter().map(|it| f64::from(it - largest).exp());
    let total = f64::from(largest) + exponentials.sum::<f64>().ln();
    for score in scores.iter_mut() {
        *score = (f64::from(*score) - total) as f32;
    }
    true
}
