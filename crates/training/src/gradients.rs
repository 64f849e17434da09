//! The gradients of a model's parameters, in the order of its fields, so that sums over them are reproducible.

use attentive_tensor::sum_of_squares;
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;

/// One flat gradient per parameter (none where the loss does not depend on it), and a scale for all of them.
///
/// The optimizer applies the scale, which saves a pass over memory.
#[derive(Clone, Debug)]
pub struct Gradients {
    parts: Vec<Option<Tensor<1>>>,
    scale: f64,
}

impl Gradients {
    /// The gradients of `loss` with respect to the parameters of `model`.
    pub fn backward<M: Module>(loss: &Tensor<1>, model: &M) -> Self {
        // burn walks its graph; a fused operation's node calls `FusedOperation::backward` (`fused/autodiff.rs` of `tensor`).
        let gradients = loss.backward();
        let mut collector = Collector {
            gradients,
            found: Vec::new(),
        };
        model.visit(&mut collector);
        Self {
            parts: collector.found,
            scale: 1.0,
        }
    }

    /// Accumulates the gradients of another micro-batch.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let ratio = other.scale / self.scale;
        let rescaled = |part: Tensor<1>| if ratio == 1.0 { part } else { part * ratio };
        let pairs = self.parts.into_iter().zip(other.parts);
        let parts = pairs
            .map(|(one, other)| match (one, other.map(rescaled)) {
                (Some(one), Some(other)) => Some(one + other),
                (one, other) => one.or(other),
            })
            .collect();
        Self { parts, ..self }
    }

    /// All gradients times `scale`.
    #[must_use]
    pub fn scaled(self, scale: f64) -> Self {
        Self {
            scale: self.scale * scale,
            ..self
        }
    }

    /// The global norm.
    pub fn norm(&self) -> f64 {
        let squares: f64 = self.parts.iter().flatten().map(sum_of_squares).sum();
        squares.sqrt() * self.scale
    }

    /// Clips the global norm to `limit`; returns the norm before clipping. Pascanu et al. 2012.
    #[must_use]
    pub fn clipped(self, limit: f64) -> (Self, f64) {
        let norm = self.norm();
        // A NaN norm takes the second branch, so that it is not mistaken for a small one.
        let clipped = if norm <= limit {
            self
        } else {
            self.scaled(limit / (norm + 1e-6))
        };
        (clipped, norm)
    }

    /// The gradient of each parameter, in the order of the model's fields, and the scale to apply to them.
    pub fn into_parts(self) -> (Vec<Option<Tensor<1>>>, f64) {
        (self.parts, self.scale)
    }
}

/// Takes each parameter's gradient out of burn's graph, in the order of the model's fields.
struct Collector {
    gradients: burn::tensor::Gradients,
    found: Vec<Option<Tensor<1>>>,
}

impl ModuleVisitor for Collector {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let gradient = param.val().grad_remove(&mut self.gradients);
        self.found.push(gradient.map(|gradient| {
            let count = gradient.shape().num_elements();
            gradient.reshape([count])
        }));
    }
}
