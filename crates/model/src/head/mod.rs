//! Heads: the language-model head, pooling, and the classifiers of sequences and of tokens.

mod lm_head;
mod pooler;
mod sequence_classifier;
mod token_classifier;

pub use lm_head::{HeadConfig, LmHead, LmHeadConfig, TransformConfig};
pub use pooler::{PooledFrom, Pooler, PoolerConfig, PoolerProjection};
pub use sequence_classifier::{ClassLogits, SequenceClassifier, SequenceClassifierConfig};
pub use token_classifier::{
    TokenClassifier, TokenClassifierConfig, TokenClassifierLayer, TokenTask,
};
