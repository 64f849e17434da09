//! Reformer: attention by locality-sensitive hashing (LSH). Kitaev et al. 2020.
//!
//! Queries and keys share one projection, so a vector's nearest keys have the same direction. Random rotations hash directions
//! into buckets. For each hash, positions are sorted by bucket and split into chunks; a chunk attends to itself and its
//! neighbours. Time and memory grow with the length times the chunk, not with the square of the length.
//!
//! ```text
//! position   0 1 2 3 4 5 6 7          the chunks of all hashes, whose ends are neighbours:
//! bucket     2 0 1 2 0 0 1 2
//! sorted     1 4 5 2 6 0 3 7            hash 0            hash 1
//! chunks    [1 4][5 2][6 0][3 7]      ┌[  ][  ][  ][  ]  [  ][  ][  ][  ]┐
//!                  └─> sees 1 4, 5 2  └──────────────────────────────────┘
//! ```
//!
//! Each hash has its own rotations; the outputs are averaged with weights in proportion to exp(log-sum-exp). A
//! sequence that fits into one chunk is not hashed.
//!
//! Values match Hugging Face's `LSHSelfAttention`. The score of a query with the key of its own position is -100,000 instead of
//! the large product of a vector with itself, so that a query attends to itself only if there is nothing else. This is not a
//! stand-in for minus infinity: if all hashes see only the query itself, they have equal weights.
//!
//! What causal means here: values of later tokens never reach earlier outputs, and no gradient flows back from them. But
//! sorting sees the whole sequence, so a later token can change which earlier ones share a chunk. That is why the layer cannot
//! use a cache. For the same reason padding, though masked, takes up space in chunks.

pub(super) mod chunk_order;
pub(super) mod lsh_attention;

use std::ops::Range;

use attentive_tensor::torch_normal;
use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use self::chunk_order::{
    ChunkOrder, PaddingConfig, arange, check_neighbours, pad, padded_length, padding_mask, to_i64,
};
use self::lsh_attention::ChunkedWeights;

use super::heads::with_heads;
use super::multi_head::{merge_heads, split_heads};
use super::pattern::AttendContext;
use super::{Attention, AttentionInput, AttentionSettings, AttentionSpec, CacheSize, Role};
use crate::checks::{refuse, size, within};
use crate::setters;
use crate::{AttentionSite, ConfigError, Flops, ForwardContext, Initializer, Linear};

/// Far beyond what helps.
const MAX_BUCKETS: usize = 1 << 16;
const MAX_HASHES: usize = 64;

with_heads! {
    /// Settings of LSH attention.
    pub struct ReformerConfig {
        /// The number of buckets per hash; even, since a rotation gives two opposite ones.
        pub buckets: usize,
        /// The number of hashes, each with its own rotations.
        pub hashes: usize,
        /// How many sorted positions form a chunk.
        pub chunk: usize,
        /// How many chunks before its own a query also attends to.
        #[serde(default = "one")]
        pub chunks_before: usize,
        /// How many chunks after its own a query also attends to.
        #[serde(default)]
        pub chunks_after: usize,
        /// The seed of the random rotations.
        #[serde(default)]
        pub seed: u64,
        /// The random number generator of the rotations; ours by default.
        #[serde(default, skip_serializing_if = "is_ours")]
        pub generator: RotationGenerator,
        /// Even factors of `buckets`, each with its own rotations, so that many buckets need few rotations.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub factors: Vec<usize>,
        /// To which length sequences are padded; to a multiple of the chunk by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub padding: Option<PaddingConfig>,
    }

    /// `heads` heads with `buckets` buckets, `hashes` hashes and chunks of `chunk` positions.
    new(buckets: usize, hashes: usize, chunk: usize) {
        chunks_before: one(),
        chunks_after: 0,
        seed: 0,
        generator: RotationGenerator::default(),
        factors: Vec::new(),
        padding: None,
    }
}

/// The random number generator of the rotations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RotationGenerator {
    /// The generator of all other parameters.
    #[default]
    Ours,
    /// PyTorch's, after its `manual_seed`.
    Torch,
}

fn is_ours(generator: &RotationGenerator) -> bool {
    *generator == RotationGenerator::Ours
}

fn one() -> usize {
    1
}

impl ReformerConfig {
    setters! {
        with_chunks_before(chunks_before: usize);
        with_chunks_after(chunks_after: usize);
        with_seed(seed: u64);
        with_generator(generator: RotationGenerator);
        with_factors(factors: impl Into<Vec<usize>> => Into::into);
        with_padding(padding: PaddingConfig => Some);
    }

    /// The factors of the buckets, each with its own rotations.
    fn bucket_factors(&self) -> Vec<usize> {
        match self.factors.as_slice() {
            [] => vec![self.buckets],
            factors => factors.to_vec(),
        }
    }

    /// Whether the product of the factors is the number of buckets.
    fn validate_factors(&self, path: &str) -> Result<(), ConfigError> {
        let path = format!("{path}.factors");
        if let Some(odd) = self.factors.iter().find(|it| !it.is_multiple_of(2)) {
            return refuse(
                &path,
                format!("{odd} is odd, and a rotation gives two buckets; use even numbers"),
            );
        }
        let product = self.factors.iter().copied().fold(1, usize::saturating_mul);
        if !self.factors.is_empty() && product != self.buckets {
            return refuse(
                &path,
                format!(
                    "the product of {:?} is {product} and there are {} buckets; they must be equal",
                    self.factors, self.buckets
                ),
            );
        }
        Ok(())
    }

    /// How many keys a query attends to per hash.
    fn visible_keys(&self) -> usize {
        let chunks = self.chunks_before.saturating_add(self.chunks_after);
        self.chunk.saturating_mul(chunks.saturating_add(1))
    }
}

impl AttentionSettings for ReformerConfig {
    fn validate(&self, path: &str, spec: &AttentionSpec) -> Result<(), ConfigError> {
        let kind = "Reformer";
        spec.require_role(path, kind, &[Role::Bidirectional, Role::Causal])?;
        spec.require_positions(path, kind, &[])?;
        self.heads_config().validate(path, spec.widths.queries)?;
        self.heads_config().refuse_head_norm(path, kind)?;
        self.heads_config().refuse_groups(path, kind)?;
        within(&format!("{path}.buckets"), self.buckets, MAX_BUCKETS)?;
        if !self.buckets.is_multiple_of(2) {
            return refuse(
                &format!("{path}.buckets"),
                format!(
                    "{} is odd, and a rotation gives two buckets; use an even number",
                    self.buckets
                ),
            );
        }
        self.validate_factors(path)?;
        within(&format!("{path}.hashes"), self.hashes, MAX_HASHES)?;
        size(&format!("{path}.chunk"), self.chunk)?;
        if let Some(padding) = &self.padding {
            padding.validate(&format!("{path}.padding"), self.chunk)?;
        }
        let neighbours = [self.chunks_before, self.chunks_after];
        let chunk = (self.chunk, self.padding.as_ref());
        check_neighbours(path, spec.length, chunk, neighbours)
    }

    fn build(&self, spec: &AttentionSpec, initializer: &mut Initializer) -> Attention {
        let (heads, width, std) = (self.heads_config(), spec.widths.queries, spec.init_std);
        let head_width = heads.head_width(width);
        let inner_width = heads.heads * head_width;
        let rotations = self.bucket_factors().into_iter().sum::<usize>() / 2;
        let shape = [heads.heads, head_width, self.hashes, rotations];
        let seed = self.seed;
        let rotations = match self.generator {
            RotationGenerator::Ours => initializer.frozen_normal(shape, seed),
            RotationGenerator::Torch => initializer.frozen(shape, move |device| {
                let values = torch_normal(seed, shape.iter().product());
                Tensor::from_data(TensorData::new(values, shape), device)
            }),
        };
        Attention::Reformer(Reformer {
            query_key: Linear::new(width, inner_width, heads.bias, std, initializer),
            value: Linear::new(width, inner_width, heads.bias, std, initializer),
            output: Linear::new(
                inner_width,
                spec.widths.output,
                heads.output_bias,
                spec.residual_std,
                initializer,
            ),
            rotations,
            config: self.clone(),
            role: spec.role,
        })
    }

    fn flops(&self, width: usize, length: usize, _role: Role) -> Flops {
        let inner_width = (self.heads * self.heads_config().head_width(width)) as u64;
        let per_key = 4 * inner_width;
        let attention = if length <= self.chunk {
            per_key.saturating_mul(length as u64)
        } else {
            let hashes = self.hashes as u64;
            let rotated: usize = self.bucket_factors().into_iter().sum();
            let hashing = (inner_width * hashes).saturating_mul(rotated as u64);
            let keys = hashes.saturating_mul(self.visible_keys() as u64);
            per_key.saturating_mul(keys).saturating_add(hashing)
        };
        Flops {
            weights: 6 * width as u64 * inner_width,
            attention,
        }
    }

    fn cache(&self, _width: usize) -> CacheSize {
        CacheSize::Impossible
    }

    fn describe(&self, width: usize) -> String {
        let kind = format!(
            "Reformer, chunks of {} with {} hashes of {} buckets",
            self.chunk, self.hashes, self.buckets
        );
        self.heads_config().describe(&kind, width)
    }
}

/// LSH attention.
#[derive(Module, Debug)]
pub struct Reformer {
    query_key: Linear,
    value: Linear,
    output: Linear,
    /// `[heads, head_width, hashes, rotations]`, with half as many rotations as the sum of the bucket factors; not trained.
    rotations: Param<Tensor<4>>,
    #[module(skip)]
    config: ReformerConfig,
    #[module(skip)]
    pub(super) role: Role,
}

impl Reformer {
    /// The attention output of each query, `[batch, queries, width]`.
    ///
    /// # Panics
    /// When there is a cache.
    pub fn forward(&self, input: AttentionInput, pass: &mut ForwardContext) -> Tensor<3> {
        assert!(
            pass.cache.is_none(),
            "Reformer attention: it cannot use a cache, since each new position may change which earlier ones share a chunk; \
             give the whole sequence instead"
        );
        let layer = input.layer;
        let (x, memory) = input.queries_and_memory(self.role, pass);
        let [batch, length, _] = x.dims();
        if batch == 0 || length == 0 {
            // burn has no argmax of an empty axis.
            let inner_width = self.output.weight.dims()[1];
            let empty = Tensor::zeros([batch, length, inner_width], &x.device());
            return self.output.forward(empty);
        }
        let query_key = self.split_heads(self.query_key.forward(x.clone()));
        let value = self.split_heads(self.value.forward(x));
        let mut context = AttendContext {
            site: AttentionSite {
                layer,
                role: self.role,
            },
            non_padding: memory.non_padding,
            dropout: self.config.dropout,
            pass,
        };
        let order = self.order(&query_key, context.non_padding.as_deref());
        let weights = ChunkedWeights::lsh(query_key, &order, self.role);
        let attended = weights.attend(&order, value, &mut context);
        self.output.forward(merge_heads(attended.output))
    }

    fn split_heads(&self, x: Tensor<3>) -> Tensor<4> {
        let heads = self.config.heads;
        let head_width = x.dims()[2] / heads;
        split_heads(x, heads, head_width, None)
    }

    /// The order of these vectors `[batch, heads, length, head_width]` by bucket.
    fn order(&self, vectors: &Tensor<4>, non_padding: Option<&[Range<usize>]>) -> ChunkOrder {
        let [batch, heads, length, _] = vectors.dims();
        let (chunk, rows) = (self.config.chunk, batch * heads);
        let device = vectors.device();
        let padded_length = padded_length(length, chunk, self.config.padding.as_ref());
        if padded_length <= chunk {
            return ChunkOrder::by_position(vectors, length, length, [0, 0], non_padding);
        }
        let (hashes, buckets) = (self.config.hashes, self.config.buckets);
        let bucket_ids = self.bucket_ids(vectors.clone().detach(), padded_length);
        let is_padded = padded_length > length || non_padding.is_some();
        let bucket_ids = if is_padded {
            // Padding has a bucket of its own, after all others.
            let padding = padding_mask(vectors, padded_length, non_padding);
            let padding = padding.reshape([rows, 1, padded_length]);
            bucket_ids.mask_fill(
                padding.expand([rows, hashes, padded_length]),
                buckets as i64,
            )
        } else {
            bucket_ids
        };
        // Sort keys of bucket and position: no two are equal, so any sort is stable.
        let positions = arange(padded_length, &device);
        let sorted = (bucket_ids * padded_length as i64 + positions.unsqueeze()).sort(2);
        let sorted = sorted.reshape([rows, hashes * padded_length]);
        ChunkOrder {
            padding: is_padded.then(|| {
                let first_padding = (buckets * padded_length) as i64;
                sorted.clone().greater_equal_scalar(first_padding)
            }),
            positions: sorted.remainder_scalar(padded_length as i64),
            hashes,
            chunk,
            before: self.config.chunks_before,
            after: self.config.chunks_after,
        }
    }

    /// The bucket of each vector for each hash, `[batch · heads, hashes, padded_length]`.
    fn bucket_ids(&self, vectors: Tensor<4>, padded_length: usize) -> Tensor<3, Int> {
        let [heads, head_width, hashes, count] = self.rotations.dims();
        let batch = vectors.dims()[0];
        let rotations = self.rotations.val().detach();
        let rotations = rotations.reshape([1, heads, head_width, hashes * count]);
        let rotated = pad(vectors, padded_length).matmul(rotations);
        let rotated = rotated.reshape([batch * heads, padded_length, hashes, count]);
        let (mut start, mut stride) = (0, 1);
        let parts = self.config.bucket_factors().into_iter().map(|factor| {
            let rotated = rotated.clone().narrow(3, start, factor / 2);
            let both = Tensor::cat(vec![rotated.clone(), -rotated], 3);
            let part = to_i64(both.argmax(3).squeeze_dim::<3>(3)) * stride;
            (start, stride) = (start + factor / 2, stride * factor as i64);
            part
        });
        let bucket_ids = parts.reduce(Tensor::add).expect("there is a factor");
        bucket_ids.swap_dims(1, 2)
    }
}
