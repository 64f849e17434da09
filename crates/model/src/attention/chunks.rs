//! Chunks: a sequence is cut, and each position sees its own chunk and those beside it, on a ring. The local attention of Kitaev
//! et al. 2020, whose hashing attention does the same with sorted positions.
//!
//! ```text
//! chunk = 2          keys
//!                    0 1 2 3 4 5      chunks_before = 1
//! queries     0, 1   █ █     █ █      the first sees the last, unless the layer is causal
//!             2, 3   █ █ █ █
//!             4, 5       █ █ █ █
//! ```
//!
//! The numbers are those of Hugging Face's `LocalSelfAttention`: a chunk that is a neighbour on both sides counts twice. Cost
//! grows with the length times the chunk.

use attentive_tensor::{Mask, ScoreBias, Scores};
use burn::module::Module;
use burn::tensor::{Tensor, TensorData};

use super::heads::with_heads;
use super::pattern::{Call, Context, Projected};
use super::reformer::meeting::Meeting;
use super::reformer::order::{FillConfig, Order, check_neighbours, padded};
use super::{
    Attention, AttentionSettings, CacheSize, MultiHead, Pattern, Place, RelativePositions, Role,
};
use crate::checks::size;
use crate::{ConfigError, Initializer, Operations};

with_heads! {
    /// Settings of attention in chunks.
    pub struct ChunksConfig {
        /// How many positions stand together. A sequence that fits into one chunk is not cut.
        pub chunk: usize,
        /// How many chunks before its own a query sees too.
        #[serde(default = "one")]
        pub chunks_before: usize,
        /// How many chunks after its own a query sees too; in a causal layer none of their positions.
        #[serde(default)]
        pub chunks_after: usize,
        /// To which lengths sequences are filled up; to whole chunks unless said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub fill: Option<FillConfig>,
    }
}

fn one() -> usize {
    1
}

impl ChunksConfig {
    /// How many keys a query meets.
    fn met(&self) -> usize {
        let chunks = self.chunks_before.saturating_add(self.chunks_after);
        self.chunk.saturating_mul(chunks.saturating_add(1))
    }
}

impl AttentionSettings for ChunksConfig {
    fn validate(&self, path: &str, place: &Place) -> Result<(), ConfigError> {
        let kind = "chunked";
        place.serve(path, kind, &[Role::Bidirectional, Role::Causal])?;
        place.take_positions(path, kind, &[RelativePositions::Rotary])?;
        self.shared().validate(path, place.widths.queries)?;
        self.shared().refuse_groups(path, kind)?;
        size(&format!("{path}.chunk"), self.chunk)?;
        if let Some(fill) = &self.fill {
            fill.validate(&format!("{path}.fill"), self.chunk)?;
        }
        let neighbours = [self.chunks_before, self.chunks_after];
        let cut = (self.chunk, self.fill.as_ref());
        check_neighbours(path, place.length, cut, neighbours)
    }

    fn build(&self, place: &Place, initial: &mut Initializer) -> Attention {
        let pattern = Pattern::Chunks(Chunks {
            chunk: self.chunk,
            before: self.chunks_before,
            after: self.chunks_after,
            fill: self.fill,
        });
        Attention::MultiHead(MultiHead::new(&self.shared(), pattern, place, initial))
    }

    fn operations(&self, width: usize, length: usize) -> Operations {
        let met = self.met().min(length);
        self.shared().operations(width, met as u64)
    }

    fn cache(&self, width: usize) -> CacheSize {
        if depends_on_length(self.chunks_before, self.chunks_after) {
            return CacheSize::Impossible;
        }
        // Room for as many again, so that old positions need to be moved out only once in a while.
        let reach = self
            .chunk
            .saturating_mul(self.chunks_before.saturating_add(1));
        let held = 2 * reach as u64;
        CacheSize::Fixed(held.saturating_mul(self.shared().key_value_numbers(width)))
    }

    fn describe(&self, width: usize) -> String {
        let kind = format!(
            "chunks of {}, seeing {} before and {} after",
            self.chunk, self.chunks_before, self.chunks_after
        );
        self.shared().describe(&kind, width)
    }
}

/// Whether what a position sees of earlier ones depends on how many follow: chunks after the last are the first ones, and
/// farther before it than there are chunks lies the chunk itself.
fn depends_on_length(before: usize, after: usize) -> bool {
    before > 1 || after > 0
}

/// Softmax attention within chunks and to their neighbours.
#[derive(Module, Debug)]
pub struct Chunks {
    #[module(skip)]
    chunk: usize,
    #[module(skip)]
    before: usize,
    #[module(skip)]
    after: usize,
    #[module(skip)]
    fill: Option<FillConfig>,
}

impl Chunks {
    pub(super) fn attend(&self, heads: Projected, mut call: Call) -> Context {
        if call.pass.cache.is_some() {
            return self.attend_cached(heads, call);
        }
        let [batch, _, length, _] = heads.query.dims();
        if batch == 0 || length == 0 {
            let scores = Scores::new(Mask::none(), 1.0);
            return call.attend(heads, &scores);
        }
        let scale = call.scale(&heads);
        let whole = padded(length, self.chunk, self.fill.as_ref());
        let order = match whole <= self.chunk {
            true => Order::straight(&heads.query, length, length, [0, 0], call.real.as_deref()),
            false => {
                let neighbours = [self.before, self.after];
                let real = call.real.as_deref();
                Order::straight(&heads.query, whole, self.chunk, neighbours, real)
            }
        };
        let meeting = Meeting::of_keys(heads.query * scale, heads.key, &order, call.site.role);
        meeting.gathered(&order, heads.value, &mut call)
    }

    /// Few queries against what a cache holds, each with the keys that its chunk sees.
    ///
    /// # Panics
    /// When the layer sees more than the chunk before its own.
    fn attend_cached(&self, heads: Projected, mut call: Call) -> Context {
        assert!(
            !depends_on_length(self.before, self.after),
            "chunked attention: no cache can serve it, since the ring of chunks depends on the length; \
             give the whole sequence instead"
        );
        let reach = self.chunk.saturating_mul(self.before.saturating_add(1));
        let (heads, dropped) = call.remember(heads, Some(reach));
        let (queries, keys) = (heads.query.dims()[2], heads.key.dims()[2]);
        let first = dropped + keys - queries;
        let hidden = |query: usize, key: usize| {
            let earliest = ((first + query) / self.chunk).saturating_sub(self.before);
            match (dropped + key) / self.chunk < earliest {
                true => f32::NEG_INFINITY,
                false => 0.0,
            }
        };
        let pairs = (0..queries).flat_map(|query| (0..keys).map(move |key| (query, key)));
        let pairs = pairs.map(|(query, key)| hidden(query, key)).collect();
        let pairs = TensorData::new(pairs, [1, 1, queries, keys]);
        let scores = Scores {
            bias: Some(ScoreBias::Pairs(Tensor::from_data(
                pairs,
                &heads.query.device(),
            ))),
            ..Scores::new(call.mask(dropped), call.scale(&heads))
        };
        call.attend(heads, &scores)
    }
}
