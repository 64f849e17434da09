//! The folder of a run: the model, the resolved recipe, the metrics, and checkpoints.
//!
//! ```text
//! run/  config.json  model.safetensors  tokenizer.json  generation_config.json    the model as last saved
//!       recipe.toml  metrics.jsonl  loss.svg
//!       checkpoints/last.safetensors                                              all that resuming needs, in one file
//!       checkpoints/best/                                                         a model folder: lowest held-out loss
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use attentive_model::checkpoint::replace_file;
use attentive_text::Tokenizer;
use serde::{Deserialize, Serialize};

use crate::{Recipe, TrainingError};

/// The folder of a run.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
}

/// What to do about a run that is already in the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// There must be none.
    New,
    /// Go on with it; begin if there is none.
    Resume,
    /// Remove it.
    Overwrite,
}

/// One line of metrics.jsonl.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Metric {
    /// After a step.
    Step {
        /// Steps done.
        step: u64,
        /// The loss before the step.
        loss: f64,
        /// The learning rate of the step.
        learning_rate: f64,
        /// The length of the gradient before it was shortened.
        gradient_norm: f64,
    },
    /// After an evaluation.
    Evaluation {
        /// Steps done.
        step: u64,
        /// The loss on the held-out tokens.
        held_out_loss: f64,
    },
}

impl Metric {
    fn step(&self) -> u64 {
        match self {
            Self::Step { step, .. } | Self::Evaluation { step, .. } => *step,
        }
    }
}

impl RunFolder {
    /// The folder at `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file with all that resuming needs.
    pub fn state_path(&self) -> PathBuf {
        self.path.join("checkpoints").join("last.safetensors")
    }

    /// The model folder with the lowest held-out loss.
    pub fn best(&self) -> PathBuf {
        self.path.join("checkpoints").join("best")
    }

    fn recipe_path(&self) -> PathBuf {
        self.path.join("recipe.toml")
    }

    fn metrics_path(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// The recipe of the run that is in the folder, if there is one.
    pub fn recipe(&self) -> Result<Option<Recipe>, TrainingError> {
        let path = self.recipe_path();
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path).map_err(|source| io(&path, source))?;
        let recipe = Recipe::parse(&text, &[]);
        recipe
            .map(Some)
            .map_err(|error| TrainingError::SavedRecipe { path, error })
    }

    /// Whether a run may start here.
    pub fn check(&self, start: Start) -> Result<(), TrainingError> {
        if start == Start::New && self.recipe_path().exists() {
            return Err(TrainingError::Occupied {
                folder: self.path.clone(),
            });
        }
        Ok(())
    }

    /// The tokenizer of the run that is to be resumed, if there is one already.
    pub fn tokenizer(&self, start: Start) -> Result<Option<Tokenizer>, TrainingError> {
        let path = self.path.join("tokenizer.json");
        let held = start == Start::Resume && self.recipe_path().exists() && path.exists();
        Ok(held.then(|| Tokenizer::load(&path)).transpose()?)
    }

    /// Makes the folder ready for `recipe`.
    pub fn prepare(&self, recipe: &Recipe, start: Start) -> Result<(), TrainingError> {
        self.check(start)?;
        match start {
            Start::New => {}
            Start::Resume => {
                if let Some(held) = self.recipe()? {
                    self.check_unchanged(&held, recipe)?;
                }
            }
            Start::Overwrite => self.clear()?,
        }
        let checkpoints = self.path.join("checkpoints");
        fs::create_dir_all(&checkpoints).map_err(|source| io(&checkpoints, source))?;
        let path = self.recipe_path();
        replace_file(&path, recipe.to_text().as_bytes()).map_err(|source| io(&path, source))
    }

    /// What was learned belongs to the model, the data and the seed; the rest of a recipe may change on resuming.
    fn check_unchanged(&self, held: &Recipe, now: &Recipe) -> Result<(), TrainingError> {
        let parts = [
            ("model", held.model == now.model),
            ("tokenizer", held.tokenizer == now.tokenizer),
            ("data", held.data == now.data),
            ("seed", held.seed == now.seed),
        ];
        match parts.iter().find(|(_, same)| !same) {
            Some((part, _)) => Err(TrainingError::Changed {
                folder: self.path.clone(),
                part,
            }),
            None => Ok(()),
        }
    }

    /// Removes what a run writes, and nothing else.
    fn clear(&self) -> Result<(), TrainingError> {
        let files = [
            "recipe.toml",
            "metrics.jsonl",
            "loss.svg",
            "config.json",
            "generation_config.json",
            "tokenizer.json",
            "model.safetensors",
        ];
        let files = files.map(|name| self.path.join(name));
        for path in files.iter().chain([&self.state_path()]) {
            gone(path, fs::remove_file(path))?;
        }
        gone(&self.best(), fs::remove_dir_all(self.best()))
    }

    /// The metrics so far.
    pub fn metrics(&self) -> Result<Vec<Metric>, TrainingError> {
        let path = self.metrics_path();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(io(&path, source)),
        };
        // A killed run may leave half a line at the end.
        Ok(text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect())
    }

    /// Opens the metrics to go on after `step`: what a killed run wrote beyond its last save is forgotten.
    pub fn metrics_from(&self, step: u64) -> Result<MetricsFile, TrainingError> {
        let path = self.metrics_path();
        let mut metrics = self.metrics()?;
        metrics.retain(|metric| metric.step() <= step);
        let text: String = metrics.iter().map(line).collect();
        replace_file(&path, text.as_bytes()).map_err(|source| io(&path, source))?;
        let file = OpenOptions::new()
            .append(true)
            .open(&path)
            .map_err(|source| io(&path, source))?;
        Ok(MetricsFile {
            file: BufWriter::new(file),
            path,
        })
    }
}

/// The open metrics of a run.
#[derive(Debug)]
pub struct MetricsFile {
    file: BufWriter<File>,
    path: PathBuf,
}

impl MetricsFile {
    /// Adds a line.
    pub fn add(&mut self, metric: &Metric) -> Result<(), TrainingError> {
        self.file
            .write_all(line(metric).as_bytes())
            .map_err(|source| io(&self.path, source))
    }

    /// Brings all lines to disk.
    pub fn flush(&mut self) -> Result<(), TrainingError> {
        self.file
            .flush()
            .and_then(|()| self.file.get_ref().sync_data())
            .map_err(|source| io(&self.path, source))
    }
}

/// What was not there needs no removing.
fn gone(path: &Path, removed: std::io::Result<()>) -> Result<(), TrainingError> {
    match removed {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(io(path, source)),
        _ => Ok(()),
    }
}

fn line(metric: &Metric) -> String {
    serde_json::to_string(metric).expect("metrics serialize") + "\n"
}

fn io(path: &Path, source: std::io::Error) -> TrainingError {
    TrainingError::Io {
        path: path.to_owned(),
        source,
    }
}
