//! The gradients of a model's parameters, in the order of its fields, so that sums over them have one order.

use attentive_tensor::sum_of_squares;
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;

/// One flat gradient per parameter (none where the loss does not depend on it), and a factor on all of them.
///
/// The factor waits until the gradients are used, which spares a pass over memory.
#[derive(Clone, Debug)]
pub struct Gradients {
    parts: Vec<Option<Tensor<1>>>,
    factor: f64,
}

impl Gradients {
    /// Differentiates `loss` by the parameters of `model`.
    pub fn of<M: Module>(loss: &Tensor<1>, model: &M) -> Self {
        let mut collector = Collector {
            source: loss.backward(),
            found: Vec::new(),
        };
        model.visit(&mut collector);
        Self {
            parts: collector.found,
            factor: 1.0,
        }
    }

    /// The sum with another pass's gradients.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let ratio = other.factor / self.factor;
        let taken = |part: Tensor<1>| if ratio == 1.0 { part } else { part * ratio };
        let pairs = self.parts.into_iter().zip(other.parts);
        let parts = pairs
            .map(|(one, other)| match (one, other.map(taken)) {
                (Some(one), Some(other)) => Some(one + other),
                (one, other) => one.or(other),
            })
            .collect();
        Self { parts, ..self }
    }

    /// All gradients times `factor`.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self {
            factor: self.factor * factor,
            ..self
        }
    }

    /// The length of all gradients taken as one vector.
    pub fn norm(&self) -> f64 {
        let squares: f64 = self.parts.iter().flatten().map(sum_of_squares).sum();
        squares.sqrt() * self.factor
    }

    /// Shortens the gradients to `limit` if they are longer, and gives the length they had. Pascanu et al. 2012.
    #[must_use]
    pub fn clipped(self, limit: f64) -> (Self, f64) {
        let norm = self.norm();
        // Written so that a norm that is not a number leaves its trace instead of passing for a short one.
        let clipped = if norm <= limit {
            self
        } else {
            self.scaled(limit / (norm + 1e-6))
        };
        (clipped, norm)
    }

    /// The gradient of each parameter, in the order of the model's fields, and the factor that is still to be applied.
    pub fn into_parts(self) -> (Vec<Option<Tensor<1>>>, f64) {
        (self.parts, self.factor)
    }
}

struct Collector {
    source: burn::tensor::Gradients,
    found: Vec<Option<Tensor<1>>>,
}

impl ModuleVisitor for Collector {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let gradient = param.val().grad_remove(&mut self.source);
        self.found.push(gradient.map(|gradient| {
            let count = gradient.shape().num_elements();
            gradient.reshape([count])
        }));
    }
}
