//! Hooks into a forward pass, to read or replace its values.

use burn::tensor::Tensor;

use crate::attention::Role;

/// A point of a model where the residual stream `[batch, length, width]` can be observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Site {
    /// The sum of token and position embeddings.
    Embedding,
    /// The output of a block.
    Block {
        /// The block's number, from zero.
        layer: usize,
    },
    /// The input of the heads, after the last norm.
    Final,
}

/// An attention of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionSite {
    /// The block's number, from zero.
    pub layer: usize,
    /// Its role: a decoder's block has self-attention and cross-attention.
    pub role: Role,
}

/// A hook into a forward pass. Returning the value reads it; returning another ablates or patches.
pub trait Observer {
    /// The residual stream at `site`.
    fn hidden(&mut self, site: Site, value: Tensor<3>) -> Tensor<3> {
        let _ = site;
        value
    }

    /// Whether to call [`Observer::weights`] for this attention; otherwise its weights are not computed.
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

/// Records what it observes.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    /// Whether to record attention weights.
    pub record_weights: bool,
    /// The residual stream: after the embedding, after each block, after the last norm.
    pub hidden: Vec<(Site, Tensor<3>)>,
    /// The attention weights, in the order of computation.
    pub weights: Vec<(AttentionSite, Tensor<4>)>,
}

impl Observer for Recorder {
    fn hidden(&mut self, site: Site, value: Tensor<3>) -> Tensor<3> {
        self.hidden.push((site, value.clone()));
        value
    }

    fn wants_weights(&self, _site: AttentionSite) -> bool {
        self.record_weights
    }

    fn weights(&mut self, site: AttentionSite, value: Tensor<4>) -> Tensor<4> {
        self.weights.push((site, value.clone()));
        value
    }
}
