//! One feed-forward layer for all tokens, plain or gated.

use attentive_tensor::{Activation, feed_forward};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde_json::json;

use super::ExpertForm;
use crate::{Initializer, Linear};

/// The shape of one layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayerShape {
    pub form: ExpertForm,
    pub hidden_width: usize,
    pub activation: Activation,
    pub bias: bool,
}

impl LayerShape {
    /// Flops per token in a model of this width.
    pub fn flops(&self, width: u64) -> u64 {
        let projections = match self.form {
            ExpertForm::Plain => 2,
            ExpertForm::Gated => 3,
        };
        2 * projections * width * self.hidden_width as u64
    }

    pub fn describe(&self) -> String {
        let (form, activation) = (json!(self.form), json!(self.activation));
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
    /// Builds the layer; `residual_std` initializes the projection that writes into the residual stream.
    pub(super) fn new(
        shape: &LayerShape,
        width: usize,
        [std, residual_std]: [f64; 2],
        initializer: &mut Initializer,
    ) -> Self {
        let LayerShape {
            form,
            hidden_width,
            activation,
            bias,
        } = *shape;
        let gated = form == ExpertForm::Gated;
        Self {
            gate: gated.then(|| Linear::new(width, hidden_width, bias, std, initializer)),
            up: Linear::new(width, hidden_width, bias, std, initializer),
            down: Linear::new(hidden_width, width, bias, residual_std, initializer),
            activation,
        }
    }

    pub(super) fn device(&self) -> Device {
        self.up.weight.lazy_device()
    }

    /// `[…, width]` to `[…, width]`
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let gate = self.gate.as_ref().map(Linear::parameters);
        feed_forward(
            self.activation,
            x,
            gate,
            self.up.parameters(),
            self.down.parameters(),
        )
    }
}
