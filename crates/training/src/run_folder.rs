//! The folder of a run: the model, the resolved recipe, the metrics, and checkpoints.
//!
//! ```text
//! run/  config.json  model.safetensors  tokenizer.json  generation_config.json    the model as last saved
//!       recipe.toml  metrics.jsonl  loss.svg  .lock
//!       checkpoints/last.safetensors                                              weights, optimizer and state, for resuming
//!       checkpoints/best/                                                         the model with the lowest held-out loss
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use attentive_checkpoint::replace_file;
use attentive_text::Tokenizer;
use serde::{Deserialize, Serialize};

use crate::state::SavedState;
use crate::{Recipe, TrainingError, TrainingState};

/// The folder of a run.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
}

/// What to do with a run that is already in the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It is an error.
    New,
    /// Resume it; start a new one if there is none.
    Resume,
    /// Remove it.
    Overwrite,
}

/// The files of a run besides recipe.toml. They are removed in this order: without its state, a half-removed run starts
/// from scratch.
const FILES: [&str; 8] = [
    "checkpoints/last.safetensors",
    "checkpoints/best",
    "metrics.jsonl",
    "loss.svg",
    "model.safetensors",
    "tokenizer.json",
    "generation_config.json",
    "config.json",
];

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
        /// The norm of the gradient before clipping.
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

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The checkpoint for resuming.
    pub fn state_path(&self) -> PathBuf {
        self.path.join("checkpoints").join("last.safetensors")
    }

    /// The folder of the model with the lowest held-out loss.
    pub fn best(&self) -> PathBuf {
        self.path.join("checkpoints").join("best")
    }

    /// Whether the folder has a run. Its recipe is the first file to be written and the last to be removed.
    pub fn holds_run(&self) -> bool {
        self.recipe_path().exists()
    }

    fn recipe_path(&self) -> PathBuf {
        self.path.join("recipe.toml")
    }

    fn metrics_path(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// The recipe of the run in the folder, if there is one.
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
        let folder = || self.path.clone();
        let found = self.path.ancestors().find(|path| path.exists());
        if let Some(file) = found.filter(|path| !path.is_dir()) {
            return Err(TrainingError::NotAFolder {
                folder: folder(),
                file: file.to_owned(),
            });
        }
        if self.holds_run() {
            return match start {
                Start::New => Err(TrainingError::Occupied { folder: folder() }),
                Start::Resume | Start::Overwrite => Ok(()),
            };
        }
        match FILES.iter().find(|name| self.path.join(name).exists()) {
            Some(file) => Err(TrainingError::Foreign {
                folder: folder(),
                file,
            }),
            None => Ok(()),
        }
    }

    /// Locks the folder for as long as the file is open.
    pub fn lock(&self) -> Result<File, TrainingError> {
        fs::create_dir_all(&self.path).map_err(|source| io(&self.path, source))?;
        let path = self.path.join(".lock");
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).write(true);
        let file = options.open(&path).map_err(|source| io(&path, source))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(TrainingError::Running {
                folder: self.path.clone(),
            }),
            // Some network file systems do not support locks; training without one is better than not at all.
            Err(TryLockError::Error(error)) if error.kind() != ErrorKind::Unsupported => {
                Err(io(&path, error))
            }
            _ => Ok(file),
        }
    }

    /// The last saved state, if there is one.
    pub fn saved_state(&self) -> Result<Option<SavedState>, TrainingError> {
        let path = self.state_path();
        path.exists()
            .then(|| TrainingState::open(&path))
            .transpose()
    }

    /// The tokenizer of the run, if it was written already.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, TrainingError> {
        let path = self.path.join("tokenizer.json");
        Ok(path.exists().then(|| Tokenizer::load(&path)).transpose()?)
    }

    /// Creates the folder and writes `recipe`, before anything else.
    pub fn prepare(&self, recipe: &Recipe, start: Start) -> Result<(), TrainingError> {
        if start == Start::Overwrite {
            self.clear()?;
        }
        let checkpoints = self.path.join("checkpoints");
        fs::create_dir_all(&checkpoints).map_err(|source| io(&checkpoints, source))?;
        let path = self.recipe_path();
        replace_file(&path, recipe.to_text().as_bytes()).map_err(|source| io(&path, source))
    }

    /// An error unless the model, tokenizer, data and seed are unchanged; the rest of a recipe may change on resuming.
    pub fn check_unchanged(&self, saved: &Recipe, now: &Recipe) -> Result<(), TrainingError> {
        let mut model = now.model.clone();
        if model.stack.vocabulary == 0 {
            // Zero stands for the tokenizer's vocabulary, which the saved recipe has.
            model.stack.vocabulary = saved.model.stack.vocabulary;
        }
        let parts = [
            ("model", saved.model == model),
            ("tokenizer", saved.tokenizer == now.tokenizer),
            ("data", saved.data.same_but_for_paths(&now.data)),
            ("seed", saved.seed == now.seed),
        ];
        match parts.iter().find(|(_, same)| !same) {
            Some((part, _)) => Err(TrainingError::Changed {
                folder: self.path.clone(),
                part,
            }),
            None => Ok(()),
        }
    }

    /// Removes the files of a run, and nothing else.
    fn clear(&self) -> Result<(), TrainingError> {
        for path in FILES.map(|name| self.path.join(name)) {
            let removed = match path == self.best() {
                true => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            };
            ignore_missing(&path, removed)?;
        }
        ignore_missing(&self.recipe_path(), fs::remove_file(self.recipe_path()))
    }

    /// The metrics so far.
    pub fn metrics(&self) -> Result<Vec<Metric>, TrainingError> {
        let path = self.metrics_path();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) if source.kind() == ErrorKind::NotFound => String::new(),
            Err(source) => return Err(io(&path, source)),
        };
        let mut metrics = Vec::new();
        let mut lines = text.lines().enumerate().peekable();
        while let Some((index, line)) = lines.next() {
            match serde_json::from_str(line) {
                Ok(metric) => metrics.push(metric),
                // A killed run may leave an incomplete last line.
                Err(_) if lines.peek().is_none() => break,
                Err(_) => {
                    let number = index + 1;
                    return Err(TrainingError::BrokenMetrics { path, number });
                }
            }
        }
        Ok(metrics)
    }

    /// Opens the metrics for appending after `step`: later lines of a killed run are dropped.
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

/// metrics.jsonl, open for appending.
#[derive(Debug)]
pub struct MetricsFile {
    file: BufWriter<File>,
    path: PathBuf,
}

impl MetricsFile {
    /// Appends a line.
    pub fn add(&mut self, metric: &Metric) -> Result<(), TrainingError> {
        self.file
            .write_all(line(metric).as_bytes())
            .map_err(|source| io(&self.path, source))
    }

    /// Writes all lines to disk.
    pub fn flush(&mut self) -> Result<(), TrainingError> {
        self.file
            .flush()
            .and_then(|()| self.file.get_ref().sync_data())
            .map_err(|source| io(&self.path, source))
    }
}

/// Ignores the error of removing a missing file.
fn ignore_missing(path: &Path, removed: std::io::Result<()>) -> Result<(), TrainingError> {
    match removed {
        Err(source) if source.kind() != ErrorKind::NotFound => Err(io(path, source)),
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
