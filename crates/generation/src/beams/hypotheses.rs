//! The running beams and finished hypotheses of one source.

use super::{Beam, BeamConfig};
use crate::{EarlyStopping, StopReason};

/// The running beams and finished hypotheses of one source.
#[derive(Debug)]
pub(super) struct Hypotheses {
    /// Best first; empty when the search is done.
    running: Vec<Running>,
    /// Best first, at most `num_beams`.
    finished: Vec<Beam>,
}

/// A running beam.
#[derive(Clone, Debug)]
pub(super) struct Running {
    /// Its generated tokens.
    pub ids: Vec<u32>,
    /// The beam of the previous step that it continues.
    pub parent: usize,
    /// Its log-probability.
    score: f64,
}

/// One more token for a beam.
#[derive(Clone, Copy)]
struct Candidate {
    parent: usize,
    id: u32,
    score: f64,
}

impl Hypotheses {
    /// One beam without tokens.
    pub fn new() -> Self {
        Self {
            running: vec![Running {
                ids: Vec::new(),
                parent: 0,
                score: 0.0,
            }],
            finished: Vec::new(),
        }
    }

    /// The running beams, best first.
    pub fn running(&self) -> &[Running] {
        &self.running
    }

    /// Whether the search is done.
    pub fn is_done(&self) -> bool {
        self.running.is_empty()
    }

    /// The `count` best hypotheses; the empty text where no token may be generated.
    pub fn into_texts(self, count: usize) -> Vec<Beam> {
        let empty = self.running.into_iter().filter(|it| it.ids.is_empty());
        let empty = empty.map(|_| Beam {
            ids: Vec::new(),
            score: 0.0,
            reason: StopReason::Length,
        });
        self.finished.into_iter().chain(empty).take(count).collect()
    }

    /// Extends the running beams by one token, given a row of log-probabilities for each.
    pub fn step(
        &mut self,
        log_probabilities: &[&[f32]],
        generated: usize,
        max_new_tokens: usize,
        config: &BeamConfig,
    ) {
        let (num_beams, eos) = (config.num_beams, &config.processors.eos);
        // As in transformers: num_beams candidates continue even if every beam's EOS tokens score highest.
        let count = num_beams.saturating_mul(eos.len().max(1) + 1);
        let divisor = |length: usize| (length as f64).powf(config.length_penalty);
        let mut running = Vec::with_capacity(num_beams);
        for (rank, candidate) in self.best(log_probabilities, count).into_iter().enumerate() {
            let parent = &self.running[candidate.parent].ids;
            let is_eos = eos.contains(&candidate.id);
            if is_eos || generated + 1 == max_new_tokens {
                // Lower ranks are only there to fill the running beams.
                if rank < num_beams {
                    let mut ids = parent.clone();
                    ids.extend(Some(candidate.id).filter(|_| !is_eos));
                    self.finished.push(Beam {
                        ids,
                        score: candidate.score / divisor(generated + 1),
                        reason: match is_eos {
                            true => StopReason::Eos,
                            false => StopReason::Length,
                        },
                    });
                }
            } else if running.len() < num_beams {
                running.push(Running {
                    ids: [parent.as_slice(), &[candidate.id]].concat(),
                    parent: candidate.parent,
                    score: candidate.score,
                });
            }
        }
        self.finished.sort_by(|a, b| b.score.total_cmp(&a.score));
        self.finished.truncate(num_beams);
        self.running = running;
        let length = match config.early_stopping {
            EarlyStopping::Never if config.length_penalty > 0.0 => max_new_tokens,
            _ => generated + 1,
        };
        if self.can_stop(config, divisor(length)) {
            self.running.clear();
        }
    }

    /// Whether no running beam can improve the result, if its score is divided by `divisor`.
    fn can_stop(&self, config: &BeamConfig, divisor: f64) -> bool {
        let (Some(best), Some(worst)) = (self.running.first(), self.finished.last()) else {
            return false;
        };
        let full = self.finished.len() >= config.num_beams;
        let early = config.early_stopping == EarlyStopping::True;
        full && (early || best.score / divisor <= worst.score)
    }

    /// The `count` best continuations of all beams, best first.
    fn best(&self, log_probabilities: &[&[f32]], count: usize) -> Vec<Candidate> {
        let mut best: Vec<Candidate> = Vec::new();
        for (parent, (beam, row)) in self.running.iter().zip(log_probabilities).enumerate() {
            let mut ids: Vec<u32> = (0..row.len() as u32).collect();
            let descending = |a: &u32, b: &u32| row[*b as usize].total_cmp(&row[*a as usize]);
            if count < ids.len() {
                ids.select_nth_unstable_by(count, descending);
                ids.truncate(count);
            }
            // Selection does not sort, and ties go to the first token.
            ids.sort_unstable_by(|a, b| descending(a, b).then(a.cmp(b)));
            let candidates = ids.into_iter().map(|id| Candidate {
                parent,
                id,
                score: beam.score + f64::from(row[id as usize]),
            });
            best.extend(candidates.filter(|it| it.score > f64::NEG_INFINITY));
        }
        best.sort_by(|a, b| b.score.total_cmp(&a.score));
        best.truncate(count);
        best
    }
}
