//! All that resuming needs, in one file, because one file can be replaced at once.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use attentive_model::checkpoint::{CheckpointError, TensorFile, model_tensors, write_tensors};
use attentive_model::{LanguageModel, parameters, replace_parameters};
use burn::tensor::TensorData;
use serde::{Deserialize, Serialize};

use crate::adamw::MomentData;
use crate::{AdamW, AdamWConfig, TrainingError};

/// The numbers of a run that are no tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Steps done.
    pub step: u64,
    /// The lowest held-out loss so far, and its step.
    pub best: Option<(f64, u64)>,
    /// Of the corpus.
    pub fingerprint: u64,
}

/// The key of the free text in the file's header.
const KEY: &str = "state";

impl State {
    /// Writes the state, the weights and the optimizer's memory.
    pub fn save(
        &self,
        path: &Path,
        model: &LanguageModel,
        optimizer: &AdamW,
    ) -> Result<(), CheckpointError> {
        let mut tensors = BTreeMap::new();
        for (name, data) in model_tensors(model) {
            tensors.insert(format!("model.{name}"), data);
        }
        for (parameter, moments) in parameters(model).iter().zip(optimizer.moments()) {
            if let Some(MomentData { first, second }) = moments {
                tensors.insert(format!("first.{}", parameter.name), first);
                tensors.insert(format!("second.{}", parameter.name), second);
            }
        }
        let words = serde_json::to_string(self).expect("the state serializes");
        write_tensors(path, tensors, HashMap::from([(KEY.to_owned(), words)]))
    }

    /// Reads what [`State::save`] wrote into `model`, which must be of the same settings.
    pub fn load(
        path: &Path,
        model: LanguageModel,
        config: &AdamWConfig,
    ) -> Result<(Self, LanguageModel, AdamW), TrainingError> {
        let broken = |problem: String| TrainingError::BrokenState {
            path: path.to_owned(),
            problem,
        };
        let file = TensorFile::open(path)?;
        let words = file.metadata().remove(KEY).unwrap_or_default();
        let state: Self =
            serde_json::from_str(&words).map_err(|error| broken(error.to_string()))?;
        let read = |prefix: &str, name: &str, shape: &[usize]| {
            let numbers = file.floats(&format!("{prefix}.{name}"))?;
            if numbers.len() != shape.iter().product::<usize>() {
                return Err(broken(format!(
                    "{prefix}.{name} has another size than the model's"
                )));
            }
            Ok(TensorData::new(numbers, shape.to_vec()))
        };
        let mut weights = HashMap::new();
        let mut moments = Vec::new();
        for parameter in parameters(&model) {
            let name = &parameter.name;
            weights.insert(name.clone(), read("model", name, &parameter.shape)?);
            let count = [parameter.shape.iter().product()];
            moments.push(match file.shape(&format!("first.{name}")) {
                Some(_) => Some(MomentData {
                    first: read("first", name, &count)?,
                    second: read("second", name, &count)?,
                }),
                None => None,
            });
        }
        // The moments live where the gradients do: on the device without autodiff.
        let device = model.device().inner();
        let optimizer = AdamW::restored(config, state.step, moments, &device);
        Ok((state, replace_parameters(model, weights), optimizer))
    }
}
