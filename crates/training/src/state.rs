//! The checkpoint for resuming: one file, so that it can be replaced atomically.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use attentive_checkpoint::{CheckpointError, TensorFile, model_tensors, write_tensors};
use attentive_model::{Model, parameters, replace_parameters};
use burn::tensor::TensorData;
use serde::{Deserialize, Serialize};

use crate::adamw::MomentData;
use crate::{AdamW, AdamWConfig, TrainingError};

/// The state of a run, tensors aside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingState {
    /// Steps done.
    pub step: u64,
    /// The lowest held-out loss so far, and its step.
    pub best: Option<(f64, u64)>,
    /// A hash of the corpus.
    pub fingerprint: u64,
}

/// The key in the metadata of the safetensors file.
const KEY: &str = "state";

impl TrainingState {
    /// Writes the state, the weights and the optimizer's moments.
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
        let json = serde_json::to_string(self).expect("the state serializes");
        write_tensors(path, tensors, HashMap::from([(KEY.to_owned(), json)]))
    }

    /// Opens what [`TrainingState::save`] wrote.
    pub fn open(path: &Path) -> Result<SavedState, TrainingError> {
        let file = TensorFile::open(path).map_err(|error| state_error(path, error))?;
        let json = file.metadata().get(KEY);
        let json = json.ok_or_else(|| broken(path, "it holds no state".to_owned()))?;
        let state = serde_json::from_str(json).map_err(|error| broken(path, error.to_string()))?;
        Ok(SavedState {
            path: path.to_owned(),
            file,
            state,
        })
    }
}

/// A saved state whose tensors are not read yet.
#[derive(Debug)]
pub struct SavedState {
    path: PathBuf,
    file: TensorFile,
    /// The state, tensors aside.
    pub state: TrainingState,
}

impl SavedState {
    /// Loads the weights into `model`, which must have the same configuration, and the optimizer's moments.
    pub fn restore(
        self,
        model: Model,
        config: &AdamWConfig,
    ) -> Result<(TrainingState, Model, AdamW), TrainingError> {
        let Self { path, file, state } = self;
        let read = |prefix: &str, name: &str, shape: &[usize]| {
            let values = file
                .floats(&format!("{prefix}.{name}"))
                .map_err(|error| state_error(&path, error))?;
            if values.len() != shape.iter().product::<usize>() {
                let problem = format!("{prefix}.{name} has another size than the model's");
                return Err(broken(&path, problem));
            }
            Ok(TensorData::new(values, shape.to_vec()))
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
        // Like gradients, the moments are on the device without autodiff.
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

/// Turns the error of a broken checkpoint into one whose advice fits a run.
fn state_error(path: &Path, error: CheckpointError) -> TrainingError {
    match error {
        CheckpointError::Broken { problem, .. } => broken(path, problem),
        other => other.into(),
    }
}
