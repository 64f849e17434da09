//! Training: recipes, objectives, AdamW, the learning rate schedule, and the training loop.

mod adamw;
mod data;
mod error;
mod event;
mod gradients;
mod objective;
mod plan;
mod recipe;
mod recipe_text;
pub mod recipes;
mod run_folder;
mod save_schedule;
mod schedule;
mod state;
mod trainer;

pub use adamw::{AdamW, AdamWConfig};
pub use data::{DataConfig, TrainingData};
pub use error::TrainingError;
pub use event::{Event, Listener, Outcome};
pub use gradients::Gradients;
pub use objective::{Batch, ObjectiveConfig};
pub use plan::Plan;
pub use recipe::{Recipe, SampleConfig, TrainingConfig};
pub use recipe_text::RecipeError;
pub use run_folder::{Metric, RunFolder, Start};
pub use save_schedule::SaveEvery;
pub use schedule::ScheduleConfig;
pub use state::{SavedState, TrainingState};
pub use trainer::{Summary, Trainer};
