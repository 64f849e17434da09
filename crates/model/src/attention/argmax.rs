//! Argmax attention, also called hard attention: every query takes the value of its best key alone. Xu et al. 2015; with the
//! straight-through gradient of Bengio et al. 2013 in the place of sampling.
//!
//! ```text
//! forward     weights = one at the first of the best scores, zero elsewhere
//! backward    as if weights = softmax(scores)
//! ```

use attentive_tensor::{Scores, softmax};
use burn::module::Module;
use burn::tensor::{Int, Shape, Tensor};

use super::heads::with_heads;
use super::pattern::{Call, Context, Projected};
use super::{Attention, AttentionSettings, CacheSize, MultiHead, Pattern, Place};
use crate::{ConfigError, Initializer, Operations};

with_heads! {
    /// Settings of argmax attention.
    pub struct ArgmaxConfig {}
}

impl AttentionSettings for ArgmaxConfig {
    fn validate(&self, path: &str, place: &Place) -> Result<(), ConfigError> {
        self.shared().validate(path, place.widths.queries)
    }

    fn build(&self, place: &Place, initial: &mut Initializer) -> Attention {
        let pattern = Pattern::Argmax(Argmax {});
        Attention::MultiHead(MultiHead::new(&self.shared(), pattern, place, initial))
    }

    fn operations(&self, width: usize, length: usize) -> Operations {
        // On average a query meets half of the positions.
        self.shared().operations(width, (length as u64).div_ceil(2))
    }

    fn cache(&self, width: usize) -> CacheSize {
        CacheSize::Growing(self.shared().key_value_numbers(width))
    }

    fn describe(&self, width: usize) -> String {
        self.shared().describe("argmax attention", width)
    }
}

/// The value of the best key; zeros where there is none.
#[derive(Module, Debug)]
pub struct Argmax {}

impl Argmax {
    pub(super) fn attend(&self, heads: Projected, mut call: Call) -> Context {
        let (heads, dropped) = call.remember(heads, None);
        let scores = Scores {
            bias: call.bias(&heads),
            ..Scores::new(call.mask(dropped), call.scale(&heads))
        };
        let weights = straight_through(scores.of(heads.query, heads.key));
        call.weigh(weights, heads.value)
    }
}

/// Ones at the best scores, with the gradient of their softmax.
fn straight_through(scores: Tensor<4>) -> Tensor<4> {
    let keys = scores.dims()[3];
    let device = scores.device();
    let soft = softmax(scores.clone());
    let scores = scores.detach();
    let empty = scores.clone().max_dim(3).equal_scalar(f32::NEG_INFINITY);
    let places = Tensor::<1, Int>::arange(0..keys as i64, &device).reshape([1, 1, 1, keys]);
    let all = || Shape::from(scores.dims());
    let best = scores.clone().argmax(3).expand(all());
    let hard = best.equal(places.expand(all())).float();
    let hard = hard.mask_fill(empty.expand(all()), 0.0);
    // The difference is exactly zero, so it must come first: one and a share, less the share, need not be one.
    hard + (soft.clone() - soft.detach())
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn the_first_of_the_best_is_taken_and_nothing_where_nothing_is_allowed() {
        let none = f32::NEG_INFINITY;
        let scores = [
            [0.1, 0.7, 0.7, none],
            [none, 0.3, 0.1, 0.2],
            [none, none, none, none],
        ];
        let scores = Tensor::<2>::from_data(scores, &Device::flex().autodiff()).require_grad();
        let weights = straight_through(scores.clone().unsqueeze());
        let expected = [
            [0.0, 1.0, 0.0, 0.0],
            [0.0, 1.0, 0.0, 0.0],
            [0.0, 0.0, 0.0, 0.0f32],
        ];
        weights.clone().into_data().assert_eq(
            &Tensor::<2>::from_data(expected, &Device::flex())
                .unsqueeze::<4>()
                .into_data(),
            true,
        );
        let upstream = [
            [1.0, -2.0, 0.5, 3.0],
            [0.2, 1.0, -1.0, 4.0],
            [1.0, 2.0, 3.0, 4.0],
        ];
        let upstream = Tensor::<2>::from_data(upstream, &scores.device());
        let gradient = |weights: Tensor<2>| {
            let loss = (weights * upstream.clone()).sum();
            scores.grad(&loss.backward()).unwrap().into_data()
        };
        let hard = gradient(weights.reshape([3, 4]));
        hard.assert_eq(&gradient(softmax(scores.clone())), true);
    }
}
