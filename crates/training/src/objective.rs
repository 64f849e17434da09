//! Training objectives: the inputs and targets of a batch, and the loss.

use attentive_model::{ForwardOptions, Input, Model, Randomness, ids_tensor};
use attentive_tensor::cross_entropy;
use burn::tensor::{Device, Int, Tensor};
use serde::{Deserialize, Serialize};

/// An objective and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ObjectiveConfig {
    /// Causal language modelling: predict each next token.
    Causal {
        /// The target probability that is spread uniformly over the vocabulary.
        #[serde(default)]
        label_smoothing: f64,
    },
}

impl Default for ObjectiveConfig {
    fn default() -> Self {
        Self::Causal {
            label_smoothing: 0.0,
        }
    }
}

/// Input and target ids, both `[batch, length]`.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The model's input.
    pub inputs: Tensor<2, Int>,
    /// The ids to predict.
    pub targets: Tensor<2, Int>,
}

impl ObjectiveConfig {
    /// A batch of windows, each one id longer than the model's input.
    pub fn prepare(&self, windows: &[&[u32]], device: &Device) -> Batch {
        let Self::Causal { .. } = self;
        let length = windows.first().map_or(0, |window| window.len() - 1);
        let stack = |from: usize| {
            let rows = windows.iter().map(|window| &window[from..from + length]);
            ids_tensor(&rows.collect::<Vec<&[u32]>>(), device)
        };
        Batch {
            inputs: stack(0),
            targets: stack(1),
        }
    }

    /// The training loss in nats per target, with the model's auxiliary losses.
    pub fn loss(&self, model: &Model, batch: Batch, randomness: &mut Randomness) -> Tensor<1> {
        let Self::Causal { label_smoothing } = self;
        let ObjectiveOutput { loss, auxiliary } =
            self.forward(model, batch, Some(randomness), *label_smoothing);
        match auxiliary {
            Some(auxiliary) => loss + auxiliary,
            None => loss,
        }
    }

    /// The evaluation loss: without dropout, label smoothing and auxiliary losses.
    pub fn held_out_loss(&self, model: &Model, batch: Batch) -> f64 {
        let ObjectiveOutput { loss, .. } = self.forward(model, batch, None, 0.0);
        f64::from(loss.into_scalar::<f32>())
    }

    fn forward(
        &self,
        model: &Model,
        batch: Batch,
        randomness: Option<&mut Randomness>,
        label_smoothing: f64,
    ) -> ObjectiveOutput {
        let [rows, length] = batch.inputs.dims();
        let options = ForwardOptions {
            randomness,
            ..ForwardOptions::default()
        };
        let output = model.forward(Input::new(batch.inputs), options);
        let auxiliary = output.auxiliary_loss.clone();
        let logits = output.into_logits();
        let [_, _, vocabulary] = logits.dims();
        ObjectiveOutput {
            loss: cross_entropy(
                logits.reshape([rows * length, vocabulary]),
                batch.targets.reshape([rows * length]),
                label_smoothing,
            ),
            auxiliary,
        }
    }
}

/// The loss of the predictions and the auxiliary loss of the model's layers.
struct ObjectiveOutput {
    loss: Tensor<1>,
    auxiliary: Option<Tensor<1>>,
}
