//! Which tokens go to which experts.

/// The experts of each token, and the tokens of each expert.
///
/// A token that chose an expert is an *entry*: `token · active + rank`, where rank 0 is the token's likeliest expert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    /// The expert of each entry.
    pub chosen: Vec<usize>,
    /// The entries that each expert takes, in the order of the tokens.
    pub taken: Vec<Vec<usize>>,
    /// The tokens that are no padding.
    pub tokens: Vec<usize>,
}

impl Routes {
    /// Sends each real token to its `active` likeliest experts; of equals, to the first.
    ///
    /// `probabilities` are `[tokens, experts]`. With a `capacity`, an expert takes at most
    /// `ceil(capacity · tokens · active / experts)` tokens, and later ones are dropped. Tokens come with all their choices in
    /// turn, not first choices before second ones, so that a later token cannot push out an earlier one.
    pub fn choose(
        probabilities: &[f32],
        [experts, active]: [usize; 2],
        capacity: Option<f64>,
        real: Option<&[bool]>,
    ) -> Self {
        let count = probabilities.len() / experts;
        let is_real = |token: &usize| real.is_none_or(|real| real[*token]);
        let tokens: Vec<usize> = (0..count).filter(is_real).collect();
        let most = capacity.map_or(usize::MAX, |capacity| {
            (capacity * (tokens.len() * active) as f64 / experts as f64).ceil() as usize
        });
        let mut chosen = Vec::with_capacity(count * active);
        for row in probabilities.chunks(experts) {
            let mut order: Vec<usize> = (0..experts).collect();
            order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
            chosen.extend_from_slice(&order[..active]);
        }
        let mut taken = vec![Vec::new(); experts];
        for token in &tokens {
            for entry in token * active..(token + 1) * active {
                let entries = &mut taken[chosen[entry]];
                if entries.len() < most {
                    entries.push(entry);
                }
            }
        }
        Self {
            chosen,
            taken,
            tokens,
        }
    }

    /// How many rows go through experts in all.
    pub fn rows(&self) -> usize {
        self.taken.iter().map(Vec::len).sum()
    }

    /// The part of the real tokens that chose each expert, taken or dropped; the parts sum to the active experts.
    pub fn shares(&self, [experts, active]: [usize; 2]) -> Vec<f32> {
        let mut counts = vec![0f32; experts];
        for token in &self.tokens {
            for expert in &self.chosen[token * active..(token + 1) * active] {
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
    fn tokens_go_to_their_likeliest_experts() {
        let routes = Routes::choose(&PROBABILITIES, [3, 2], None, None);
        assert_eq!(routes.chosen, [0, 1, 0, 2, 0, 1, 2, 0]);
        assert_eq!(routes.taken, [vec![0, 2, 4, 7], vec![1, 5], vec![3, 6]]);
        assert_eq!(routes.rows(), 8);
        assert_eq!(routes.shares([3, 2]), [1.0, 0.5, 0.5]);
    }

    #[test]
    fn an_expert_that_is_full_drops_later_tokens() {
        // ceil(0.75 · 4 · 2 / 3) = 2
        let routes = Routes::choose(&PROBABILITIES, [3, 2], Some(0.75), None);
        assert_eq!(routes.taken, [vec![0, 2], vec![1, 5], vec![3, 6]]);
        // What was chosen counts, not what was taken.
        assert_eq!(routes.shares([3, 2]), [1.0, 0.5, 0.5]);
        let one = Routes::choose(&PROBABILITIES, [3, 1], Some(1e-9), None);
        assert_eq!(one.rows(), 2);
    }

    #[test]
    fn padding_is_not_routed() {
        let real = [false, true, true, false];
        let routes = Routes::choose(&PROBABILITIES, [3, 1], None, Some(&real));
        assert_eq!(routes.taken, [vec![1, 2], vec![], vec![]]);
        assert_eq!(routes.shares([3, 1]), [1.0, 0.0, 0.0]);
        let none = Routes::choose(&PROBABILITIES, [3, 1], None, Some(&[false; 4]));
        assert_eq!((none.rows(), none.shares([3, 1])), (0, vec![0.0; 3]));
    }
}
