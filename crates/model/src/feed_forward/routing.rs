//! The assignment of tokens to experts.

/// The experts of each token, and the tokens of each expert.
///
/// An *entry* is one of a token's top-k choices: `token · active + rank`, where rank 0 is the most likely expert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routing {
    /// The expert of each entry.
    pub experts: Vec<usize>,
    /// The entries dispatched to each expert, in the order of the tokens.
    pub dispatched: Vec<Vec<usize>>,
    /// The tokens that are not padding.
    pub tokens: Vec<usize>,
}

impl Routing {
    /// Dispatches each token that is not padding to its `active` most likely experts; of equals, to the first.
    ///
    /// `probabilities` are `[tokens, experts]`. With a `capacity` factor, an expert takes at most
    /// `ceil(capacity · tokens · active / experts)` tokens and drops later ones. Tokens are dispatched in order, each with all
    /// its choices, rather than all first choices before second ones, so that a later token cannot displace an earlier one.
    pub fn new(
        probabilities: &[f32],
        [experts, active]: [usize; 2],
        capacity: Option<f64>,
        token_mask: Option<&[bool]>,
    ) -> Self {
        let count = probabilities.len() / experts;
        let is_token = |token: &usize| token_mask.is_none_or(|mask| mask[*token]);
        let tokens: Vec<usize> = (0..count).filter(is_token).collect();
        let max_entries = capacity.map_or(usize::MAX, |capacity| {
            (capacity * (tokens.len() * active) as f64 / experts as f64).ceil() as usize
        });
        let mut chosen = Vec::with_capacity(count * active);
        for row in probabilities.chunks(experts) {
            let mut order: Vec<usize> = (0..experts).collect();
            order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
            chosen.extend_from_slice(&order[..active]);
        }
        let mut dispatched = vec![Vec::new(); experts];
        for token in &tokens {
            for entry in token * active..(token + 1) * active {
                let entries = &mut dispatched[chosen[entry]];
                if entries.len() < max_entries {
                    entries.push(entry);
                }
            }
        }
        Self {
            experts: chosen,
            dispatched,
            tokens,
        }
    }

    /// The number of rows that go through experts.
    pub fn rows(&self) -> usize {
        self.dispatched.iter().map(Vec::len).sum()
    }

    /// The share of tokens that chose each expert, dropped or not; the shares sum to the number of active experts.
    pub fn shares(&self, [experts, active]: [usize; 2]) -> Vec<f32> {
        let mut counts = vec![0f32; experts];
        for token in &self.tokens {
            for expert in &self.experts[token * active..(token + 1) * active] {
                counts[*expert] += 1.0;
            }
        }
        let tokens = self.tokens.len().max(1) as f32;
        counts.into_iter().map(|count| count / tokens).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROBABILITIES: [f32; 12] = [
        0.7, 0.2, 0.1, //
        0.6, 0.1, 0.3, //
        0.5, 0.5, 0.0, //
        0.1, 0.1, 0.8,
    ];

    #[test]
    fn tokens_are_dispatched_to_their_most_probable_experts() {
        let routing = Routing::new(&PROBABILITIES, [3, 2], None, None);
        assert_eq!(routing.experts, [0, 1, 0, 2, 0, 1, 2, 0]);
        assert_eq!(
            routing.dispatched,
            [vec![0, 2, 4, 7], vec![1, 5], vec![3, 6]]
        );
        assert_eq!(routing.rows(), 8);
        assert_eq!(routing.shares([3, 2]), [1.0, 0.5, 0.5]);
    }

    #[test]
    fn an_expert_that_is_full_drops_later_tokens() {
        // ceil(0.75 · 4 · 2 / 3) = 2
        let routing = Routing::new(&PROBABILITIES, [3, 2], Some(0.75), None);
        assert_eq!(routing.dispatched, [vec![0, 2], vec![1, 5], vec![3, 6]]);
        // Dropped choices count too.
        assert_eq!(routing.shares([3, 2]), [1.0, 0.5, 0.5]);
        let one = Routing::new(&PROBABILITIES, [3, 1], Some(1e-9), None);
        assert_eq!(one.rows(), 2);
    }

    #[test]
    fn padding_is_not_routed() {
        let token_mask = [false, true, true, false];
        let routing = Routing::new(&PROBABILITIES, [3, 1], None, Some(&token_mask));
        assert_eq!(routing.dispatched, [vec![1, 2], vec![], vec![]]);
        assert_eq!(routing.shares([3, 1]), [1.0, 0.0, 0.0]);
        let none = Routing::new(&PROBABILITIES, [3, 1], None, Some(&[false; 4]));
        assert_eq!((none.rows(), none.shares([3, 1])), (0, vec![0.0; 3]));
    }
}
