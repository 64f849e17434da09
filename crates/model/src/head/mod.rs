//! Heads: the language-model head, pooling, and the classifiers of sequences and of tokens.

mod classifiers;
mod lm_head;
mod pooler;

pub use classifiers::{
    ClassLogits, SequenceClassifier, SequenceClassifierConfig, TokenClassifierConfig,
    TokenClassifierLayer, TokenTask,
};
pub use lm_head::{HeadConfig, LmHead, LmHeadConfig, TransformConfig};
pub use pooler::{PooledFrom, Pooler, PoolerConfig, PoolerProjection};
