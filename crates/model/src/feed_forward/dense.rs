//! One feed-forward layer for all tokens, plain or gated.

use attentive_tensor::{Activation, feed_forward};
use burn::module::Module;
use burn::tensor::Tensor;
use serde_json::json;

use super::ExpertForm;
use crate::{Initializer, Linear};

/// What a layer is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub gated: ExpertForm,
    pub hidden_width: usize,
    pub activation: Activation,
    pub bias: bool,
}

impl Form {
    /// Operations per token in a model of this width.
    pub fn operations(&self, width: u64) -> u64 {
        let maps = match self.gated {
            ExpertForm::Plain => 2,
            ExpertForm::Gated => 3,
        };
        2 * maps * width * self.hidden_width as u64
    }

    pub fn describe(&self) -> String {
        let (form, activation) = (json!(self.gated), json!(self.activation));
        format!(
            "{} feed-forward of width {}, {}",
            form.as_str().unwrap_or_default(),
            self.hidden_width,
            activation.as_str().unwrap_or_default()
        )
    }
}

/// A feed-forward layer, applied to each position alone.
#[derive(Module, Debug)]
pub struct Dense {
    gate: Option<Linear>,
    up: Linear,
    down: Linear,
    #[module(skip)]
    activation: Activation,
}

impl Dense {
    /// Builds the layer; the second spread is that of the map that writes into the residual stream.
    pub(super) fn new(
        form: &Form,
        width: usize,
        [deviation, residual_deviation]: [f64; 2],
        initial: &mut Initializer,
    ) -> Self {
        let Form {
            gated,
            hidden_width,
            activation,
            bias,
        } = *form;
        let gated = gated == ExpertForm::Gated;
        Self {
            gate: gated.then(|| Linear::new(width, hidden_width, bias, deviation, initial)),
            up: Linear::new(width, hidden_width, bias, deviation, initial),
            down: Linear::new(hidden_width, width, bias, residual_deviation, initial),
            activation,
        }
    }

    /// `[…, width]` to `[…, width]`
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let gate = self.gate.as_ref().map(Linear::operands);
        feed_forward(
            self.activation,
            x,
            gate,
            self.up.operands(),
            self.down.operands(),
        )
    }
}
