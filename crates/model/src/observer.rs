//! Looking at a pass while it runs, and changing it.

use burn::tensor::Tensor;

use crate::Role;

/// A place in a model where the residual stream can be seen, `[batch, length, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Site {
    /// The sum of token and position embeddings.
    Embedding,
    /// What a block gives to the next.
    Block {
        /// The block's number, from zero.
        layer: usize,
    },
    /// What the head reads, after the last norm.
    Final,
}

/// An attention of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionSite {
    /// The block's number, from zero.
    pub layer: usize,
    /// What it is used for: a decoder's block has one over its own sequence and one over the encoder's.
    pub role: Role,
}

/// Sees values as they pass by. Returning the value reads it; returning another ablates or patches.
pub trait Observer {
    /// The residual stream at `site`.
    fn hidden(&mut self, site: Site, value: Tensor<3>) -> Tensor<3> {
        let _ = site;
        value
    }

    /// Whether [`Observer::weights`] shall be called for this attention; the weights are not computed otherwise.
    fn wants_weights(&self, site: AttentionSite) -> bool {
        let _ = site;
        false
    }

    /// The weights of an attention, `[batch, heads, queries, keys]`, before dropout.
    fn weights(&mut self, site: AttentionSite, value: Tensor<4>) -> Tensor<4> {
        let _ = site;
        value
    }
}

/// Keeps what it sees.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    /// Whether to keep attention weights.
    pub keep_weights: bool,
    /// The residual stream: after the embedding, after each block, after the last norm.
    pub hidden: Vec<(Site, Tensor<3>)>,
    /// The attention weights, in the order in which they were made.
    pub weights: Vec<(AttentionSite, Tensor<4>)>,
}

impl Observer for Recorder {
    fn hidden(&mut self, site: Site, value: Tensor<3>) -> Tensor<3> {
        self.hidden.push((site, value.clone()));
        value
    }

    fn wants_weights(&self, _site: AttentionSite) -> bool {
        self.keep_weights
    }

    fn weights(&mut self, site: AttentionSite, value: Tensor<4>) -> Tensor<4> {
        self.weights.push((site, value.clone()));
        value
    }
}
