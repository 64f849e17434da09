//! What reads the hidden states: scores of the vocabulary, a vector or classes of the whole sequence, labels of each
//! position.

mod pooler;
mod sequence;
mod words;

pub use pooler::{PooledFrom, Pooler, PoolerConfig, PoolerMap};
pub use sequence::{ClassScores, Classes, ClassesConfig, LabelsConfig, LabelsLayer, LabelsUse};
pub use words::{HeadConfig, TransformConfig, Words, WordsConfig};
