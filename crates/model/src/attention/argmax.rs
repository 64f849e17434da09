//! Argmax attention, also called hard attention: every query takes the value of its best key. Xu et al. 2015; with the
//! straight-through gradient of Bengio et al. 2013 instead of sampling.
//!
//! ```text
//! forward     weights = one_hot(argmax(scores)), the first maximum if there are several
//! backward    as if weights = softmax(scores)
//! ```

use attentive_tensor::{Scores, softmax};
use burn::module::Module;
use burn::tensor::{Int, Shape, Tensor};

use super::heads::with_heads;
use super::pattern::{AttendContext, PatternOutput, Qkv};
use super::{Attention, AttentionSettings, AttentionSpec, Pattern};
use crate::{ConfigError, Initializer};

with_heads! {
    /// Settings of argmax attention.
    pub struct ArgmaxConfig {}

    /// `heads` heads.
    new() {}
}

impl AttentionSettings for ArgmaxConfig {
    fn validate(&self, path: &str, spec: &AttentionSpec) -> Result<(), ConfigError> {
        self.heads_config().validate(path, spec.widths.queries)
    }

    fn build(&self, spec: &AttentionSpec, initializer: &mut Initializer) -> Attention {
        let pattern = Pattern::Argmax(Argmax {});
        self.heads_config().build(pattern, spec, initializer)
    }

    fn describe(&self, width: usize) -> String {
        self.heads_config().describe("argmax attention", width)
    }
}

/// The value of the best key; zeros if all keys are masked.
#[derive(Module, Debug)]
pub struct Argmax {}

impl Argmax {
    pub(super) fn attend(&self, qkv: Qkv, mut context: AttendContext) -> PatternOutput {
        let (qkv, evicted) = context.append_to_cache(qkv, None);
        let scores = Scores {
            bias: context.bias(&qkv),
            ..Scores::new(context.mask(evicted), qkv.scale())
        };
        let weights = straight_through(scores.of(qkv.query, qkv.key));
        context.attend_with_weights(weights, qkv.value)
    }
}

/// One-hot weights of the best scores, with the gradient of the softmax.
fn straight_through(scores: Tensor<4>) -> Tensor<4> {
    let keys = scores.dims()[3];
    let device = scores.device();
    let soft = softmax(scores.clone());
    let scores = scores.detach();
    let empty = scores.clone().max_dim(3).equal_scalar(f32::NEG_INFINITY);
    let key_indices = Tensor::<1, Int>::arange(0..keys as i64, &device).reshape([1, 1, 1, keys]);
    let shape = || Shape::from(scores.dims());
    let best = scores.clone().argmax(3).expand(shape());
    let hard = best.equal(key_indices.expand(shape())).float();
    let hard = hard.mask_fill(empty.expand(shape()), 0.0);
    // The difference is exactly zero, so it must be taken first: `(1 + p) - p` may round to something other than 1.
    hard + (soft.clone() - soft.detach())
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn the_first_maximum_is_taken_and_nothing_if_all_keys_are_masked() {
        let masked = f32::NEG_INFINITY;
        let scores = [
            [0.1, 0.7, 0.7, masked],
            [masked, 0.3, 0.1, 0.2],
            [masked, masked, masked, masked],
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
