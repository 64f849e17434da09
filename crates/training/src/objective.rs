//! Objectives: what a batch asks of a model, and how far the model is from it.

use attentive_model::{Extras, Input, Model, Randomness};
use attentive_tensor::cross_entropy;
use burn::tensor::{Device, Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};

/// Which objective, and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ObjectiveConfig {
    /// Predict each next token from those before it.
    Causal {
        /// How much probability is spread evenly over the vocabulary while training.
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

/// Ids to read and ids to predict, both `[batch, length]`.
#[derive(Clone, Debug)]
pub struct Batch {
    /// What the model reads.
    pub inputs: Tensor<2, Int>,
    /// What it shall predict.
    pub targets: Tensor<2, Int>,
}

impl ObjectiveConfig {
    /// Makes a batch of windows, each one id longer than the model reads.
    pub fn prepare(&self, windows: &[&[u32]], device: &Device) -> Batch {
        let Self::Causal { .. } = self;
        let length = windows.first().map_or(0, |window| window.len() - 1);
        let stack = |from: usize| {
            let ids = windows
                .iter()
                .flat_map(|window| window[from..from + length].iter().map(|id| *id as i64));
            let data = TensorData::new(ids.collect::<Vec<i64>>(), [windows.len(), length]);
            Tensor::from_data(data, device)
        };
        Batch {
            inputs: stack(0),
            targets: stack(1),
        }
    }

    /// The loss to train on, in nats per target, with what the model's layers add to it.
    pub fn loss(&self, model: &Model, batch: Batch, randomness: &mut Randomness) -> Tensor<1> {
        let Self::Causal { label_smoothing } = self;
        let Distance { loss, auxiliary } =
            self.distance(model, batch, Some(randomness), *label_smoothing);
        match auxiliary {
            Some(auxiliary) => loss + auxiliary,
            None => loss,
        }
    }

    /// The loss to judge by: of the predictions alone, without dropout or smoothing.
    pub fn held_out_loss(&self, model: &Model, batch: Batch) -> f64 {
        let Distance { loss, .. } = self.distance(model, batch, None, 0.0);
        f64::from(loss.into_scalar::<f32>())
    }

    fn distance(
        &self,
        model: &Model,
        batch: Batch,
        randomness: Option<&mut Randomness>,
        label_smoothing: f64,
    ) -> Distance {
        let [rows, length] = batch.inputs.dims();
        let extras = Extras {
            randomness,
            ..Extras::default()
        };
        let output = model.forward(Input::new(batch.inputs), extras);
        let auxiliary = output.auxiliary_loss.clone();
        let words = output.into_words();
        let [_, _, vocabulary] = words.dims();
        Distance {
            loss: cross_entropy(
                words.reshape([rows * length, vocabulary]),
                batch.targets.reshape([rows * length]),
                label_smoothing,
            ),
            auxiliary,
        }
    }
}

/// How far a model's predictions are, and what its layers add to that while training.
struct Distance {
    loss: Tensor<1>,
    auxiliary: Option<Tensor<1>>,
}
