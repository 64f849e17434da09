//! What follows from the settings of a stack.

use crate::attention::{
    AttentionConfig, AttentionSpec, CacheSize, RelativePositions, Role, Widths,
};
use crate::block::{BlockConfig, ResidualConfig};
use crate::config::{causal, default_init_std};
use crate::embeddings::EmbeddingConfig;
use crate::positions::{LearnedConfig, PositionsConfig};
use crate::{Flops, StackConfig};

impl StackConfig {
    /// A decoder of these sizes with learned positions and no blocks yet.
    pub fn new(vocabulary: usize, length: usize, width: usize) -> Self {
        Self {
            vocabulary,
            length,
            width,
            role: causal(),
            patches: None,
            embedding: EmbeddingConfig::default(),
            embedding_dropout: 0.0,
            init_std: default_init_std(),
            positions: PositionsConfig::Learned(LearnedConfig::default()),
            globals: None,
            residual: ResidualConfig::default(),
            final_norm: None,
            blocks: Vec::new(),
            order: Vec::new(),
        }
    }

    /// Adds `count` of these blocks after the others.
    #[must_use]
    pub fn blocks(mut self, count: usize, block: BlockConfig) -> Self {
        self.blocks.push(BlockConfig {
            repeat: count,
            ..block
        });
        self
    }

    /// The number of layers of a forward pass.
    pub fn layers(&self) -> usize {
        match self.order.len() {
            0 => self.stored_layers(),
            layers => layers,
        }
    }

    /// The number of blocks with weights of their own.
    pub fn stored_layers(&self) -> usize {
        let repeats = self.blocks.iter().map(|block| block.repeat);
        repeats.fold(0, usize::saturating_add)
    }

    /// The settings of each block with weights of its own, repeats written out.
    pub fn stored_blocks(&self) -> impl Iterator<Item = &BlockConfig> {
        self.blocks
            .iter()
            .flat_map(|block| std::iter::repeat_n(block, block.repeat))
    }

    /// The settings of each layer's block, shared blocks repeated.
    pub fn unrolled_blocks(&self) -> impl Iterator<Item = &BlockConfig> {
        let stored: Vec<&BlockConfig> = self.stored_blocks().collect();
        let order = match self.order.as_slice() {
            [] => (0..stored.len()).collect(),
            order => order.to_vec(),
        };
        order.into_iter().map(move |number| stored[number])
    }

    /// Width of the token and position embeddings.
    pub fn embedding_width(&self) -> usize {
        self.embedding.width.unwrap_or(self.width)
    }

    /// Width of the hidden states that the heads read: all residual streams, concatenated.
    pub fn states_width(&self) -> usize {
        self.width * self.residual.streams()
    }

    /// Query heads of the first block that has heads.
    pub fn heads(&self) -> usize {
        let heads = self.blocks.iter().find_map(|block| block.attention.heads());
        heads.map_or(1, |heads| heads.heads)
    }

    /// Width of one head of the first block that has heads.
    pub fn head_width(&self) -> usize {
        let heads = self.blocks.iter().find_map(|block| block.attention.heads());
        heads.map_or(self.width, |heads| heads.head_width(self.width))
    }

    /// What building an attention of this role takes.
    pub fn attention_spec(&self, role: Role) -> AttentionSpec {
        let std = self.init_std;
        AttentionSpec {
            role,
            widths: Widths::all(self.width),
            length: self.length,
            positions: match self.positions {
                // Positions of two sequences are not comparable.
                _ if role == Role::Cross => RelativePositions::None,
                PositionsConfig::Rotary(_) => RelativePositions::Rotary,
                PositionsConfig::Alibi {} | PositionsConfig::T5Buckets(_) => {
                    RelativePositions::Bias
                }
                _ => RelativePositions::None,
            },
            init_std: std,
            // Each block adds twice to the residual stream; scaling the projections that write into it keeps its variance at
            // one at any depth (Radford et al. 2019).
            residual_std: std / (2.0 * self.stored_layers() as f64).sqrt(),
        }
    }

    /// The canonical form of the settings: defaults written out, consecutive equal blocks merged.
    pub(crate) fn canonical(&self) -> Self {
        let mut config = self.clone();
        config.embedding.scaled = self.embedding.scale(self).map(|_| true);
        if self.order.iter().copied().eq(0..self.stored_layers()) {
            config.order.clear();
        }
        config.blocks.clear();
        for block in &self.blocks {
            let mut block = block.clone();
            block.attention = block.attention.canonical(self.width);
            block.cross = (block.cross.as_ref()).map(|cross| cross.canonical(self.width));
            block.feed_forward = block.feed_forward.canonical();
            match config.blocks.last_mut() {
                Some(last) if equal_except_repeat(last, &block) => last.repeat += block.repeat,
                _ => config.blocks.push(block),
            }
        }
        config
    }

    /// The settings without dropout, which inference does not depend on.
    pub(crate) fn without_dropout(&self) -> Self {
        let mut config = self.clone();
        config.embedding_dropout = 0.0;
        for block in &mut config.blocks {
            block.dropout = 0.0;
            block.attention = block.attention.without_dropout();
            block.cross = (block.cross.as_ref()).map(AttentionConfig::without_dropout);
        }
        config
    }

    /// Flops of one forward pass, per token.
    pub(crate) fn flops(&self) -> Flops {
        let width = self.width as u64;
        let mut total = Flops {
            weights: 0,
            attention: 0,
        };
        for block in self.unrolled_blocks() {
            let feed_forward = block.feed_forward.flops(width);
            // Settings that are too large to build are allowed here; their sums saturate.
            total.weights = total.weights.saturating_add(feed_forward);
            let own = Some((&block.attention, self.role));
            let cross = block.cross.as_ref().map(|cross| (cross, Role::Cross));
            for (attention, role) in own.into_iter().chain(cross) {
                let attention = attention.flops(self.width, self.length, role);
                total.weights = total.weights.saturating_add(attention.weights);
                total.attention = total.attention.saturating_add(attention.attention);
            }
        }
        total
    }

    /// Whether all layers support a KV cache; otherwise each new token takes a pass over the whole sequence.
    pub fn cacheable(&self) -> bool {
        let mut blocks = self.blocks.iter();
        self.role == Role::Causal
            && blocks.all(|block| block.attention.cache(self.width) != CacheSize::Impossible)
    }

    /// Values that each position adds to the KV cache.
    pub fn cache_values_per_token(&self) -> u64 {
        self.cached(|size| match size {
            CacheSize::Growing(values) => values,
            CacheSize::Fixed(_) | CacheSize::Impossible => 0,
        })
    }

    /// Values in the KV cache of the layers whose size does not grow, at most.
    pub fn fixed_cache_values(&self) -> u64 {
        self.cached(|size| match size {
            CacheSize::Fixed(values) => values,
            CacheSize::Growing(_) | CacheSize::Impossible => 0,
        })
    }

    fn cached(&self, values: impl Fn(CacheSize) -> u64) -> u64 {
        let layers = self.unrolled_blocks();
        let values = layers.map(|block| values(block.attention.cache(self.width)));
        values.fold(0, u64::saturating_add)
    }
}

fn equal_except_repeat(one: &BlockConfig, other: &BlockConfig) -> bool {
    let other = BlockConfig {
        repeat: one.repeat,
        ..other.clone()
    };
    *one == other
}
