//! The gradients of a model's parameters, in the order of its fields, so that sums over them have one order.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;

/// One flat gradient per parameter; none where the loss does not depend on it.
#[derive(Clone, Debug)]
pub struct Gradients(Vec<Option<Tensor<1>>>);

impl Gradients {
    /// Differentiates `loss` by the parameters of `model`.
    pub fn of<M: Module>(loss: &Tensor<1>, model: &M) -> Self {
        let mut collector = Collector {
            source: loss.backward(),
            found: Vec::new(),
        };
        model.visit(&mut collector);
        Self(collector.found)
    }

    /// The sum with another pass's gradients.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let pairs = self.0.into_iter().zip(other.0);
        Self(
            pairs
                .map(|(one, other)| match (one, other) {
                    (Some(one), Some(other)) => Some(one + other),
                    (one, other) => one.or(other),
                })
                .collect(),
        )
    }

    /// All gradients times `factor`.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        let scaled = |gradient: Option<Tensor<1>>| gradient.map(|gradient| gradient * factor);
        Self(self.0.into_iter().map(scaled).collect())
    }

    /// The length of all gradients taken as one vector.
    pub fn norm(&self) -> f64 {
        let squares = |gradient: &Tensor<1>| -> f64 {
            f64::from(gradient.clone().square().sum().into_scalar::<f32>())
        };
        self.0.iter().flatten().map(squares).sum::<f64>().sqrt()
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

    /// The gradient of each parameter, in the order of the model's fields.
    pub fn into_vec(self) -> Vec<Option<Tensor<1>>> {
        self.0
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
