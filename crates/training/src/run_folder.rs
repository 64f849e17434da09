//! The folder of a run: the model, the resolved recipe, the metrics, and checkpoints.
//!
//! ```text
//! run/  config.json  model.safetensors  tokenizer.json  generation_config.json    the model as last saved
//!       recipe.toml  metrics.jsonl  loss.svg  .lock
//!       checkpoints/last.safetensors                                              all that resuming needs, in one file
//!       checkpoints/best/                                                         a model folder: lowest held-out loss
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use attentive_model::checkpoint::replace_file;
use attentive_text::Tokenizer;
use serde::{Deserialize, Serialize};

use crate::state::SavedState;
use crate::{Recipe, State, TrainingError};

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

/// What a run writes beside recipe.toml. Removed in this order: without its state, a half-removed run begins anew.
const WRITTEN: [&str; 8] = [
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

    /// Whether a run was started here. Its recipe is the first file that a run writes and the last that is removed.
    pub fn holds_run(&self) -> bool {
        self.recipe_path().exists()
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
        match WRITTEN.iter().find(|name| self.path.join(name).exists()) {
            Some(file) => Err(TrainingError::Foreign {
                folder: folder(),
                file,
            }),
            None => Ok(()),
        }
    }

    /// Keeps other processes from training here for as long as the file is open.
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
            // Some network file systems have no locks; a run is still better than none.
            Err(TryLockError::Error(error)) if error.kind() != ErrorKind::Unsupported => {
                Err(io(&path, error))
            }
            _ => Ok(file),
        }
    }

    /// What the run in the folder saved last, if it saved anything.
    pub fn saved_state(&self) -> Result<Option<SavedState>, TrainingError> {
        let path = self.state_path();
        path.exists().then(|| State::open(&path)).transpose()
    }

    /// The tokenizer of the run in the folder, if it has one already.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, TrainingError> {
        let path = self.path.join("tokenizer.json");
        Ok(path.exists().then(|| Tokenizer::load(&path)).transpose()?)
    }

    /// Makes the folder ready for `recipe`, which is written before anything else.
    pub fn prepare(&self, recipe: &Recipe, start: Start) -> Result<(), TrainingError> {
        if start == Start::Overwrite {
            self.clear()?;
        }
        let checkpoints = self.path.join("checkpoints");
        fs::create_dir_all(&checkpoints).map_err(|source| io(&checkpoints, source))?;
        let path = self.recipe_path();
        replace_file(&path, recipe.to_text().as_bytes()).map_err(|source| io(&path, source))
    }

    /// What was learned belongs to the model, the data and the seed; the rest of a recipe may change on resuming.
    pub fn check_unchanged(&self, held: &Recipe, now: &Recipe) -> Result<(), TrainingError> {
        let mut model = now.model.clone();
        if model.vocabulary == 0 {
            // As many as the tokenizer has, which is what the held recipe says.
            model.vocabulary = held.model.vocabulary;
        }
        let parts = [
            ("model", held.model == model),
            ("tokenizer", held.tokenizer == now.tokenizer),
            ("data", held.data.same_but_for_paths(&now.data)),
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
        for path in WRITTEN.map(|name| self.path.join(name)) {
            let removed = match path == self.best() {
                true => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            };
            gone(&path, removed)?;
        }
        gone(&self.recipe_path(), fs::remove_file(self.recipe_path()))
    }

    /// The metrics so far.
    pub fn metrics(&self) -> Result<Vec<Metric>, TrainingError> {
        let path = self.metrics_path();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) if source.kind() == ErrorKind::NotFound => String::new(),
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
