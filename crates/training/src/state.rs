//! All that resuming needs, in one file, because one file can be replaced at once.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use attentive_model::checkpoint::{CheckpointError, TensorFile, model_tensors, write_tensors};
use attentive_model::{Model, parameters, replace_parameters};
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
        model: &Model,
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

    /// Opens what [`State::save`] wrote.
    pub fn open(path: &Path) -> Result<SavedState, TrainingError> {
        let file = TensorFile::open(path).map_err(|error| unusable(path, error))?;
        let words = file.metadata().get(KEY);
        let words = words.ok_or_else(|| broken(path, "it holds no state".to_owned()))?;
        let state = serde_json::from_str(words).map_err(|error| broken(path, error.to_string()))?;
        Ok(SavedState {
            path: path.to_owned(),
            file,
            state,
        })
    }
}

/// A state on disk whose tensors are still to be read.
#[derive(Debug)]
pub struct SavedState {
    path: PathBuf,
    file: TensorFile,
    /// The numbers that are no tensors.
    pub state: State,
}

impl SavedState {
    /// Reads the weights into `model`, which must be of the same settings, and the optimizer's memory.
    pub fn restore(
        self,
        model: Model,
        config: &AdamWConfig,
    ) -> Result<(State, Model, AdamW), TrainingError> {
        let Self { path, file, state } = self;
        let read = |prefix: &str, name: &str, shape: &[usize]| {
            let numbers = file
                .floats(&format!("{prefix}.{name}"))
                .map_err(|error| unusable(&path, error))?;
            if numbers.len() != shape.iter().product::<usize>() {
                let problem = format!("{prefix}.{name} has another size than the model's");
                return Err(broken(&path, problem));
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

fn broken(path: &Path, problem: String) -> TrainingError {
    TrainingError::BrokenState {
        path: path.to_owned(),
        problem,
    }
}

/// Whatever is wrong with the file, the advice is that for a state.
fn unusable(path: &Path, error: CheckpointError) -> TrainingError {
    match error {
        CheckpointError::Broken { problem, .. } => broken(path, problem),
        other => other.into(),
    }
}
