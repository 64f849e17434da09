//! Reformer: attention among vectors that hash alike. Kitaev et al. 2020.
//!
//! Queries and keys are one map, so a vector's nearest keys are those in the same direction, and random rotations sort
//! directions into buckets. Per round, positions stand in the order of their buckets and are cut into chunks; a chunk looks at
//! itself and its neighbours. So cost and memory grow with the length times the chunk, not with the square of the length.
//!
//! ```text
//! position   0 1 2 3 4 5 6 7          the ring of chunks, of all rounds one behind the other:
//! bucket     2 0 1 2 0 0 1 2
//! sorted     1 4 5 2 6 0 3 7            round 0           round 1
//! chunks    [1 4][5 2][6 0][3 7]      ┌[  ][  ][  ][  ]  [  ][  ][  ][  ]┐
//!                  └─> sees 1 4, 5 2  └──────────────────────────────────┘
//! ```
//!
//! Rounds hash by other rotations; their contexts are averaged with the weight that the sums of their exponentials have. A
//! sequence that fits into one chunk is not hashed at all.
//!
//! The numbers are those of Hugging Face's `LSHSelfAttention`. A key of the query's own position scores
//! -100,000 instead of the large product of a vector with itself, so that a query sees itself only if it sees nothing
//! else. Here this is no stand-in for minus infinity: when all rounds see only the query itself, they weigh alike.
//!
//! What causal means here: values of later tokens never flow into earlier outputs, and no gradient goes back from
//! there. But sorting sees the whole sequence, and a later token can change which of the earlier ones share a chunk. That is why
//! no cache can serve it. For the same reason padding, though never seen, takes places in chunks.

pub(super) mod meeting;
pub(super) mod order;
mod torch_normal;

use std::ops::Range;

use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use self::meeting::Meeting;
use self::order::{
    FillConfig, Order, check_neighbours, counted, padded, padding, whole, with_padding,
};
use self::torch_normal::torch_normal;

use super::heads::with_heads;
use super::pattern::{Call, Context};
use super::{
    Attention, AttentionInput, AttentionOutput, AttentionSettings, CacheSize, Place, Role, Sides,
};
use crate::checks::{refuse, size, within};
use crate::{AttentionSite, ConfigError, Initializer, Linear, Operations, Pass};

/// Far beyond what hashing gains by.
const MOST_BUCKETS: usize = 1 << 16;
const MOST_ROUNDS: usize = 64;

with_heads! {
    /// Settings of attention among vectors that hash alike.
    pub struct ReformerConfig {
        /// Into how many buckets a round sorts directions; even, since a rotation gives two opposite ones.
        pub buckets: usize,
        /// How often it hashes, each time by other rotations.
        pub rounds: usize,
        /// How many sorted positions look at each other.
        pub chunk: usize,
        /// How many chunks before its own a query sees too.
        #[serde(default = "one")]
        pub chunks_before: usize,
        /// How many chunks after its own a query sees too.
        #[serde(default)]
        pub chunks_after: usize,
        /// Of the random rotations.
        #[serde(default)]
        pub seed: u64,
        /// By which generator the rotations are drawn from the seed; by ours unless said.
        #[serde(default, skip_serializing_if = "is_ours")]
        pub generator: RotationGenerator,
        /// Even numbers that make up `buckets`, where each has rotations of its own, so that many buckets need few.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub factors: Vec<usize>,
        /// To which lengths sequences are filled up; to whole chunks unless said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub fill: Option<FillConfig>,
    }
}

/// By which generator rotations are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RotationGenerator {
    /// The one of all numbers that are drawn here.
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
    /// The numbers that make up the buckets, each with rotations of its own.
    fn parts(&self) -> Vec<usize> {
        match self.factors.as_slice() {
            [] => vec![self.buckets],
            factors => factors.to_vec(),
        }
    }

    /// Whether the factors make up the buckets.
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
                    "{:?} make up {product} buckets and there are {}; they must be equal",
                    self.factors, self.buckets
                ),
            );
        }
        Ok(())
    }

    /// How many keys a query meets in one round.
    fn met(&self) -> usize {
        let chunks = self.chunks_before.saturating_add(self.chunks_after);
        self.chunk.saturating_mul(chunks.saturating_add(1))
    }
}

impl AttentionSettings for ReformerConfig {
    fn validate(&self, path: &str, place: &Place) -> Result<(), ConfigError> {
        let kind = "Reformer";
        place.serve(path, kind, &[Role::Bidirectional, Role::Causal])?;
        place.take_positions(path, kind, &[])?;
        self.shared().validate(path, place.widths.queries)?;
        self.shared().refuse_head_norm(path, kind)?;
        self.shared().refuse_groups(path, kind)?;
        within(&format!("{path}.buckets"), self.buckets, MOST_BUCKETS)?;
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
        within(&format!("{path}.rounds"), self.rounds, MOST_ROUNDS)?;
        size(&format!("{path}.chunk"), self.chunk)?;
        if let Some(fill) = &self.fill {
            fill.validate(&format!("{path}.fill"), self.chunk)?;
        }
        let neighbours = [self.chunks_before, self.chunks_after];
        let cut = (self.chunk, self.fill.as_ref());
        check_neighbours(path, place.length, cut, neighbours)
    }

    fn build(&self, place: &Place, initial: &mut Initializer) -> Attention {
        let (shared, width, deviation) = (self.shared(), place.widths.queries, place.deviation);
        let head_width = shared.head_width(width);
        let inner = shared.heads * head_width;
        let half = self.parts().into_iter().sum::<usize>() / 2;
        let shape = [shared.heads, head_width, self.rounds, half];
        let seed = self.seed;
        let rotations = match self.generator {
            RotationGenerator::Ours => initial.frozen_normal(shape, seed),
            RotationGenerator::Torch => initial.frozen(shape, move |device| {
                let numbers = torch_normal(seed, shape.iter().product());
                Tensor::from_data(TensorData::new(numbers, shape), device)
            }),
        };
        Attention::Reformer(Reformer {
            query_key: Linear::new(width, inner, shared.bias, deviation, initial),
            value: Linear::new(width, inner, shared.bias, deviation, initial),
            output: Linear::new(
                inner,
                place.widths.output,
                shared.output_bias,
                place.residual_deviation,
                initial,
            ),
            rotations,
            config: self.clone(),
            role: place.role,
        })
    }

    fn operations(&self, width: usize, length: usize) -> Operations {
        let inner = (self.heads * self.shared().head_width(width)) as u64;
        let each = 4 * inner;
        let attention = if length <= self.chunk {
            each.saturating_mul(length as u64)
        } else {
            let rounds = self.rounds as u64;
            let rotated: usize = self.parts().into_iter().sum();
            let hashing = (inner * rounds).saturating_mul(rotated as u64);
            let met = rounds.saturating_mul(self.met() as u64);
            each.saturating_mul(met).saturating_add(hashing)
        };
        Operations {
            weights: 6 * width as u64 * inner,
            attention,
        }
    }

    fn cache(&self, _width: usize) -> CacheSize {
        CacheSize::Impossible
    }

    fn describe(&self, width: usize) -> String {
        let kind = format!(
            "Reformer, chunks of {} in {} rounds of {} buckets",
            self.chunk, self.rounds, self.buckets
        );
        self.shared().describe(&kind, width)
    }
}

/// Attention among vectors that hash alike.
#[derive(Module, Debug)]
pub struct Reformer {
    query_key: Linear,
    value: Linear,
    output: Linear,
    /// `[heads, head_width, rounds, buckets / 2]`, of factors half their sum; drawn once and never trained.
    rotations: Param<Tensor<4>>,
    #[module(skip)]
    config: ReformerConfig,
    #[module(skip)]
    pub(super) role: Role,
}

impl Reformer {
    /// Lets the queries gather.
    ///
    /// # Panics
    /// When there is a cache.
    pub fn forward(&self, input: AttentionInput, pass: &mut Pass) -> AttentionOutput {
        assert!(
            pass.cache.is_none(),
            "Reformer attention: no cache can serve it, since each new position may change which earlier ones meet; \
             give the whole sequence instead"
        );
        let Sides { queries, real, .. } = input.sides(self.role, pass);
        let [batch, length, _] = queries.dims();
        if batch == 0 || length == 0 {
            return self.of_nothing(queries);
        }
        let query = self.split(self.query_key.forward(queries.clone()));
        let value = self.split(self.value.forward(queries));
        let mut call = Call {
            site: AttentionSite {
                layer: input.layer,
                role: self.role,
            },
            real,
            dropout: self.config.dropout,
            pass,
        };
        let [_, heads, _, head_width] = query.dims();
        let order = self.order(&query, call.real.as_deref());
        let meeting = Meeting::new(query, &order, self.role);
        let Context { context, weights } = meeting.gathered(&order, value, &mut call);
        let context = context
            .swap_dims(1, 2)
            .reshape([batch, length, heads * head_width]);
        AttentionOutput {
            output: self.output.forward(context),
            weights,
        }
    }

    /// What an axis of no length gives: burn finds no largest number there.
    fn of_nothing(&self, queries: Tensor<3>) -> AttentionOutput {
        let [batch, length, _] = queries.dims();
        let inner = self.output.weight.dims()[1];
        let context = Tensor::zeros([batch, length, inner], &queries.device());
        AttentionOutput {
            output: self.output.forward(context),
            weights: None,
        }
    }

    /// `[batch, length, heads · head_width]` to `[batch, heads, length, head_width]`
    fn split(&self, x: Tensor<3>) -> Tensor<4> {
        let [batch, length, inner] = x.dims();
        let heads = self.config.heads;
        x.reshape([batch, length, heads, inner / heads])
            .swap_dims(1, 2)
    }

    /// The order in which these vectors `[batch, heads, length, head_width]` stand.
    fn order(&self, vectors: &Tensor<4>, real: Option<&[Range<usize>]>) -> Order {
        let [batch, heads, length, _] = vectors.dims();
        let (chunk, rows) = (self.config.chunk, batch * heads);
        let device = vectors.device();
        let padded = padded(length, chunk, self.config.fill.as_ref());
        if padded <= chunk {
            return Order::straight(vectors, length, length, [0, 0], real);
        }
        let (rounds, buckets) = (self.config.rounds, self.config.buckets);
        let hashes = self.hashes(vectors.clone().detach(), padded);
        let is_padded = padded > length || real.is_some();
        let hashes = if is_padded {
            // A bucket of their own, behind all others.
            let padding = padding(vectors, padded, real).reshape([rows, 1, padded]);
            hashes.mask_fill(padding.expand([rows, rounds, padded]), buckets as i64)
        } else {
            hashes
        };
        // Within a bucket by position: with it in the number, no two are equal, and any sort is stable.
        let places = counted(padded, &device);
        let sorted = (hashes * padded as i64 + places.unsqueeze()).sort(2);
        let sorted = sorted.reshape([rows, rounds * padded]);
        Order {
            padding: is_padded.then(|| {
                let first = (buckets * padded) as i64;
                sorted.clone().greater_equal_scalar(first)
            }),
            positions: sorted.remainder_scalar(padded as i64),
            rounds,
            chunk,
            before: self.config.chunks_before,
            after: self.config.chunks_after,
        }
    }

    /// The buckets of vectors in each round, `[batch · heads, rounds, padded]`.
    fn hashes(&self, vectors: Tensor<4>, padded: usize) -> Tensor<3, Int> {
        let [heads, head_width, rounds, half] = self.rotations.dims();
        let batch = vectors.dims()[0];
        let rotations = self.rotations.val().detach();
        let rotations = rotations.reshape([1, heads, head_width, rounds * half]);
        let rotated = with_padding(vectors, padded).matmul(rotations);
        let rotated = rotated.reshape([batch * heads, padded, rounds, half]);
        let (mut start, mut product) = (0, 1);
        let parts = self.config.parts().into_iter().map(|factor| {
            let rotated = rotated.clone().narrow(3, start, factor / 2);
            let both = Tensor::cat(vec![rotated.clone(), -rotated], 3);
            let hashes = whole(both.argmax(3).squeeze_dim::<3>(3)) * product;
            (start, product) = (start + factor / 2, product * factor as i64);
            hashes
        });
        let hashes = parts.reduce(Tensor::add).expect("there is a factor");
        hashes.swap_dims(1, 2)
    }
}
