//! Chunks: the sequence is split into chunks, and each position attends to its own chunk and neighbouring ones; the last chunk
//! and the first are neighbours. The local attention of Kitaev et al. 2020, whose LSH attention does the same with sorted
//! positions.
//!
//! ```text
//! chunk = 2          keys
//!                    0 1 2 3 4 5      chunks_before = 1
//! queries     0, 1   █ █     █ █      the first attends to the last, unless the layer is causal
//!             2, 3   █ █ █ █
//!             4, 5       █ █ █ █
//! ```
//!
//! Values match Hugging Face's `LocalSelfAttention`: a chunk that is a neighbour on both sides counts twice. The cost grows with
//! the length times the chunk.

use attentive_tensor::{Mask, Scores};
use burn::module::Module;

use super::heads::with_heads;
use super::pairwise_bias::{mask_bias, pairwise_bias};
use super::pattern::{AttendContext, PatternOutput, Qkv};
use super::reformer::chunk_order::{ChunkOrder, PaddingConfig, check_neighbours, padded_length};
use super::reformer::lsh_attention::ChunkedWeights;
use super::{
    Attention, AttentionSettings, AttentionSpec, CacheSize, Pattern, RelativePositions, Role,
};
use crate::checks::size;
use crate::setters;
use crate::{ConfigError, Flops, Initializer};

with_heads! {
    /// Settings of attention in chunks.
    pub struct ChunksConfig {
        /// Positions per chunk. A sequence that fits into one chunk is not split.
        pub chunk: usize,
        /// How many chunks before its own a query also attends to.
        #[serde(default = "one")]
        pub chunks_before: usize,
        /// How many chunks after its own a query also attends to; a causal layer masks them.
        #[serde(default)]
        pub chunks_after: usize,
        /// To which length sequences are padded; to a multiple of the chunk by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub padding: Option<PaddingConfig>,
    }

    /// `heads` heads with chunks of this size.
    new(chunk: usize) { chunks_before: one(), chunks_after: 0, padding: None }
}

fn one() -> usize {
    1
}

impl ChunksConfig {
    setters! {
        with_chunks_before(chunks_before: usize);
        with_chunks_after(chunks_after: usize);
        with_padding(padding: PaddingConfig => Some);
    }

    /// How many keys a query attends to.
    fn visible_keys(&self) -> usize {
        let chunks = self.chunks_before.saturating_add(self.chunks_after);
        self.chunk.saturating_mul(chunks.saturating_add(1))
    }
}

impl AttentionSettings for ChunksConfig {
    fn validate(&self, path: &str, spec: &AttentionSpec) -> Result<(), ConfigError> {
        let kind = "chunked";
        spec.require_role(path, kind, &[Role::Bidirectional, Role::Causal])?;
        spec.require_positions(path, kind, &[RelativePositions::Rotary])?;
        self.heads_config().validate(path, spec.widths.queries)?;
        self.heads_config().refuse_groups(path, kind)?;
        size(&format!("{path}.chunk"), self.chunk)?;
        if let Some(padding) = &self.padding {
            padding.validate(&format!("{path}.padding"), self.chunk)?;
        }
        let neighbours = [self.chunks_before, self.chunks_after];
        let chunk = (self.chunk, self.padding.as_ref());
        check_neighbours(path, spec.length, chunk, neighbours)
    }

    fn build(&self, spec: &AttentionSpec, initializer: &mut Initializer) -> Attention {
        let pattern = Pattern::Chunks(Chunks {
            chunk: self.chunk,
            before: self.chunks_before,
            after: self.chunks_after,
            padding: self.padding,
        });
        self.heads_config().build(pattern, spec, initializer)
    }

    fn flops(&self, width: usize, length: usize, _role: Role) -> Flops {
        let keys = self.visible_keys().min(length);
        self.heads_config().flops(width, keys as u64)
    }

    fn cache(&self, width: usize) -> CacheSize {
        if depends_on_length(self.chunks_before, self.chunks_after) {
            return CacheSize::Impossible;
        }
        // The buffer has twice the window's capacity, so that its contents are rarely moved.
        let window = self
            .chunk
            .saturating_mul(self.chunks_before.saturating_add(1));
        let capacity = 2 * window as u64;
        CacheSize::Fixed(capacity.saturating_mul(self.heads_config().key_value_size(width)))
    }

    fn describe(&self, width: usize) -> String {
        let kind = format!(
            "chunks of {}, with {} before and {} after",
            self.chunk, self.chunks_before, self.chunks_after
        );
        self.heads_config().describe(&kind, width)
    }
}

/// Whether the earlier keys that a query attends to depend on the length: the chunk after the last is the first, and a neighbour
/// farther away than there are chunks is the chunk itself.
fn depends_on_length(before: usize, after: usize) -> bool {
    before > 1 || after > 0
}

/// Softmax attention over a chunk and its neighbours.
#[derive(Module, Debug)]
pub struct Chunks {
    #[module(skip)]
    chunk: usize,
    #[module(skip)]
    before: usize,
    #[module(skip)]
    after: usize,
    #[module(skip)]
    padding: Option<PaddingConfig>,
}

impl Chunks {
    pub(super) fn attend(&self, qkv: Qkv, mut context: AttendContext) -> PatternOutput {
        if context.pass.cache.is_some() {
            return self.attend_cached(qkv, context);
        }
        let [batch, _, length, _] = qkv.query.dims();
        if batch == 0 || length == 0 {
            let scores = Scores::new(Mask::none(), 1.0);
            return context.attend(qkv, &scores);
        }
        let scale = qkv.scale();
        let padded_length = padded_length(length, self.chunk, self.padding.as_ref());
        let (padded_length, chunk, neighbours) = match padded_length <= self.chunk {
            true => (length, length, [0, 0]),
            false => (padded_length, self.chunk, [self.before, self.after]),
        };
        let non_padding = context.non_padding.as_deref();
        let order =
            ChunkOrder::by_position(&qkv.query, padded_length, chunk, neighbours, non_padding);
        let weights =
            ChunkedWeights::softmax(qkv.query * scale, qkv.key, &order, context.site.role);
        weights.attend(&order, qkv.value, &mut context)
    }

    /// New queries against the cached keys of their chunks.
    ///
    /// # Panics
    /// When the layer attends to more than one chunk before its own, or to one after.
    fn attend_cached(&self, qkv: Qkv, mut context: AttendContext) -> PatternOutput {
        assert!(
            !depends_on_length(self.before, self.after),
            "chunked attention: it cannot use a cache, since which chunks are neighbours depends on the length; \
             give the whole sequence instead"
        );
        let window = self.chunk.saturating_mul(self.before.saturating_add(1));
        let (qkv, evicted) = context.append_to_cache(qkv, Some(window));
        let (queries, keys) = (qkv.query.dims()[2], qkv.key.dims()[2]);
        let first = evicted + keys - queries;
        let device = qkv.query.device();
        let bias = pairwise_bias([1, queries, keys], &device, |_, query, key| {
            let earliest = ((first + query) / self.chunk).saturating_sub(self.before);
            mask_bias((evicted + key) / self.chunk >= earliest)
        });
        let scores = Scores {
            bias: Some(bias),
            ..Scores::new(context.mask(evicted), qkv.scale())
        };
        context.attend(qkv, &scores)
    }
}
