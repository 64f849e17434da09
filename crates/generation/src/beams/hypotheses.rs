//! What a search has found for one source: beginnings that go on, and texts that have ended.

use attentive_model::checkpoint::SearchEnd;

use super::{Beam, BeamConfig};
use crate::StopReason;

/// The beginnings and the texts of one source.
#[derive(Debug)]
pub(super) struct Hypotheses {
    /// Best first; none when the search is over.
    running: Vec<Running>,
    /// Best first, at most as many as there are beams.
    ended: Vec<Beam>,
}

/// A beginning of a text.
#[derive(Clone, Debug)]
pub(super) struct Running {
    /// The tokens made.
    pub ids: Vec<u32>,
    /// Which of the source's rows it continues.
    pub row: usize,
    /// The logarithm of its probability.
    score: f64,
}

/// What the searches of all sources share.
pub(super) struct Limits<'a> {
    /// The most tokens to make, with all that limits them.
    pub most: usize,
    pub config: &'a BeamConfig,
}

/// One more token for a beginning.
#[derive(Clone, Copy)]
struct Candidate {
    row: usize,
    id: u32,
    score: f64,
}

impl Hypotheses {
    /// One beginning, with no tokens.
    pub fn new() -> Self {
        Self {
            running: vec![Running {
                ids: Vec::new(),
                row: 0,
                score: 0.0,
            }],
            ended: Vec::new(),
        }
    }

    /// The beginnings that go on.
    pub fn running(&self) -> &[Running] {
        &self.running
    }

    /// Whether nothing goes on.
    pub fn is_done(&self) -> bool {
        self.running.is_empty()
    }

    /// The best texts. A search that could make no token found the empty text.
    pub fn into_texts(self, count: usize) -> Vec<Beam> {
        let unmade = self.running.into_iter().filter(|it| it.ids.is_empty());
        let unmade = unmade.map(|_| Beam {
            ids: Vec::new(),
            score: 0.0,
            reason: StopReason::Length,
        });
        self.ended.into_iter().chain(unmade).take(count).collect()
    }

    /// Takes the logarithms of the next tokens' probabilities, one row for each beginning, after so many tokens were made.
    pub fn step(&mut self, rows: &[&[f32]], made: usize, limits: &Limits) {
        let config = limits.config;
        let (beams, ends) = (config.beams, &config.rules.end);
        // So many that enough go on even if the best all end.
        let kept = beams.saturating_mul(ends.len().max(1) + 1);
        let divisor = |length: usize| (length as f64).powf(config.length_penalty);
        let mut running = Vec::with_capacity(beams);
        for (rank, candidate) in self.best(rows, kept).into_iter().enumerate() {
            let before = &self.running[candidate.row].ids;
            let by_end = ends.contains(&candidate.id);
            if by_end || made + 1 == limits.most {
                // Those below are only there so that enough go on.
                if rank < beams {
                    let mut ids = before.clone();
                    ids.extend(Some(candidate.id).filter(|_| !by_end));
                    self.ended.push(Beam {
                        ids,
                        score: candidate.score / divisor(made + 1),
                        reason: match by_end {
                            true => StopReason::End,
                            false => StopReason::Length,
                        },
                    });
                }
            } else if running.len() < beams {
                running.push(Running {
                    ids: [before.as_slice(), &[candidate.id]].concat(),
                    row: candidate.row,
                    score: candidate.score,
                });
            }
        }
        self.ended.sort_by(|a, b| b.score.total_cmp(&a.score));
        self.ended.truncate(beams);
        self.running = running;
        let length = match config.end {
            SearchEnd::Impossible if config.length_penalty > 0.0 => limits.most,
            _ => made + 1,
        };
        if self.is_found(beams, config.end, divisor(length)) {
            self.running.clear();
        }
    }

    /// Whether what goes on is not worth following, judged as if it ended with its length to this power.
    fn is_found(&self, beams: usize, end: SearchEnd, divisor: f64) -> bool {
        let (Some(best), Some(worst)) = (self.running.first(), self.ended.last()) else {
            return false;
        };
        let full = self.ended.len() >= beams;
        full && (end == SearchEnd::Full || best.score / divisor <= worst.score)
    }

    /// The best continuations of all beginnings, best first.
    fn best(&self, rows: &[&[f32]], count: usize) -> Vec<Candidate> {
        let mut best: Vec<Candidate> = Vec::new();
        for (row, (beginning, scores)) in self.running.iter().zip(rows).enumerate() {
            let mut ids: Vec<u32> = (0..scores.len() as u32).collect();
            let descending = |a: &u32, b: &u32| scores[*b as usize].total_cmp(&scores[*a as usize]);
            if count < ids.len() {
                ids.select_nth_unstable_by(count, descending);
                ids.truncate(count);
            }
            // Selecting leaves no order, and of equal scores the first token should win.
            ids.sort_unstable_by(|a, b| descending(a, b).then(a.cmp(b)));
            let possible = ids.into_iter().map(|id| Candidate {
                row,
                id,
                score: beginning.score + f64::from(scores[id as usize]),
            });
            best.extend(possible.filter(|it| it.score > f64::NEG_INFINITY));
        }
        best.sort_by(|a, b| b.score.total_cmp(&a.score));
        best.truncate(count);
        best
    }
}
