//! Looking at a pass while it runs, and changing it.

use burn::tensor::Tensor;

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

/// Sees values as they pass by. Returning the value reads it; returning another ablates or patches.
pub trait Observer {
    /// The residual stream at `site`.
    fn hidden(&mut self, site: Site, value: Tensor<3>) -> Tensor<3> {
        let _ = site;
        value
    }

    /// Whether [`Observer::weights`] shall be called for this layer; the weights are not computed otherwise.
    fn wants_weights(&self, layer: usize) -> bool {
        let _ = layer;
        false
    }

    /// The attention weights of a layer, `[batch, heads, queries, keys]`, before dropout.
    fn weights(&mut self, layer: usize, value: Tensor<4>) -> Tensor<4> {
        let _ = layer;
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
    /// The attention weights of each layer.
    pub weights: Vec<Tensor<4>>,
}

impl Observer for Recorder {
    fn hidden(&mut self, site: Site, value: Tensor<3>) -> Tensor<3> {
        self.hidden.push((site, value.clone()));
        value
    }

    fn wants_weights(&self, _layer: usize) -> bool {
        self.keep_weights
    }

    fn weights(&mut self, _layer: usize, value: Tensor<4>) -> Tensor<4> {
        self.weights.push(value.clone());
        value
    }
}
