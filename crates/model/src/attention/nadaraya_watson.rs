//! Kernel regression as attention: a weighted average of the values, whose weights decrease with the distance of query and key.
//! Nadaraya 1964; Watson 1964.
//!
//! ```text
//! weight ∝ kernel(|query - key| / width)        output = Σ weight · value
//!
//! gaussian       e^(-u²/2)
//! boxcar         1 where u < 1
//! epanechnikov   1 - u² where u < 1; its factor ¾ cancels out. In Dive into Deep Learning, this is the name of 1 - u.
//! constant       1
//! ```
//!
//! Queries, keys and values are raw, or projected to heads. If all kernels are zero, so is the output. Distances are computed
//! from the differences `[batch, heads, queries, keys, width]`: `|q|² - 2 q·k + |k|²` would cancel catastrophically for near
//! points far from zero.

use attentive_tensor::{Mask, masked_softmax};
use burn::module::{Module, Param};
use burn::tensor::activation::relu;
use burn::tensor::{Bool, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use super::pattern::{AttendContext, PatternOutput, Qkv};
use super::{
    Attention, AttentionSettings, AttentionSpec, CommonSettings, HeadsConfig, Pattern, Role,
    spec::rotary_with_heads, unprojected::with_optional_heads,
};
use crate::checks::{probability, refuse};
use crate::setters;
use crate::{ConfigError, Flops, Initializer};

/// Settings of kernel regression.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NadarayaWatsonConfig {
    /// The kernel function.
    pub kernel: KernelShape,
    /// The bandwidth of the kernel.
    #[serde(default = "one")]
    pub width: f64,
    /// Whether the bandwidth is trained.
    #[serde(default)]
    pub learn_width: LearnWidth,
    /// Whether a query attends to its own position.
    #[serde(default)]
    pub query_position: QueryPosition,
    /// The number of heads; without heads, there are no projections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<usize>,
    /// Dropout on the attention weights.
    #[serde(default)]
    pub dropout: f64,
}

fn one() -> f64 {
    1.0
}

/// The kernel function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelShape {
    /// A Gaussian.
    Gaussian,
    /// Equal weights within the bandwidth.
    Boxcar,
    /// A parabola.
    Epanechnikov,
    /// Equal weights.
    Constant,
}

/// Whether the bandwidth is trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LearnWidth {
    /// The bandwidth is constant.
    #[default]
    Fixed,
    /// The logarithm of the bandwidth is a parameter, which keeps the bandwidth positive.
    Learned,
}

/// Whether a query attends to its own position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryPosition {
    /// It attends to its own position.
    #[default]
    Included,
    /// Leave-one-out. Needed to train a bandwidth on the values themselves: otherwise the best bandwidth is zero, where
    /// each position predicts its own value.
    LeftOut,
}

impl NadarayaWatsonConfig {
    /// A fixed bandwidth of one, without heads, and so without projections.
    pub fn new(kernel: KernelShape) -> Self {
        Self {
            kernel,
            width: one(),
            learn_width: LearnWidth::default(),
            query_position: QueryPosition::default(),
            heads: None,
            dropout: 0.0,
        }
    }

    setters! {
        with_width(width: f64);
        with_learn_width(learn_width: LearnWidth);
        with_query_position(query_position: QueryPosition);
        with_heads(heads: usize => Some);
        with_dropout(dropout: f64);
    }
}

impl CommonSettings for NadarayaWatsonConfig {
    fn dropout_mut(&mut self) -> Option<&mut f64> {
        Some(&mut self.dropout)
    }

    fn heads(&self) -> Option<HeadsConfig> {
        let heads = self.heads?;
        Some(HeadsConfig::new(heads).with_dropout(self.dropout))
    }
}

impl AttentionSettings for NadarayaWatsonConfig {
    fn validate(&self, path: &str, spec: &AttentionSpec) -> Result<(), ConfigError> {
        spec.require_positions(path, "nadaraya_watson", rotary_with_heads(self.heads))?;
        probability(&format!("{path}.dropout"), self.dropout)?;
        // Squares beyond this range, or their inverses, overflow f32.
        if !(1e-18..=1e18).contains(&self.width) {
            return refuse(
                &format!("{path}.width"),
                format!("{} is out of range; use 1e-18 to 1e18", self.width),
            );
        }
        let (flat, learned) = (self.kernel.is_flat(), self.learn_width);
        if flat && learned == LearnWidth::Learned {
            return refuse(
                &format!("{path}.learn_width"),
                "a boxcar or constant kernel has no gradient to train the width with; use fixed, or a gaussian or epanechnikov kernel",
            );
        }
        if self.query_position == QueryPosition::LeftOut && spec.role != Role::Bidirectional {
            return refuse(
                &format!("{path}.query_position"),
                "only bidirectional attention can leave out the query's own position; use included",
            );
        }
        let widths = spec.widths;
        if let Some(heads) = self.heads() {
            return heads.validate_plain(path, widths.queries);
        }
        if widths.queries != widths.keys {
            return refuse(
                &format!("{path}.kind"),
                format!(
                    "distances need queries (width {}) as wide as keys (width {}); use equal widths, or set heads",
                    widths.queries, widths.keys
                ),
            );
        }
        spec.require_value_width(path, "nadaraya_watson")
    }

    fn build(&self, spec: &AttentionSpec, initializer: &mut Initializer) -> Attention {
        let learned = self.learn_width == LearnWidth::Learned;
        let pattern = Pattern::NadarayaWatson(NadarayaWatson {
            log_width: learned.then(|| initializer.constant([1], self.width.ln() as f32)),
            width: self.width,
            kernel: self.kernel,
            query_position: self.query_position,
        });
        with_optional_heads(pattern, self.heads(), self.dropout, spec, initializer)
    }

    fn flops(&self, width: usize, length: usize, role: Role) -> Flops {
        // Per pair and feature: a difference, a square and a sum for the distance, and a product and a sum for the output.
        let keys = role.average_keys(length) as u64;
        Flops {
            weights: self
                .heads()
                .map_or(0, |heads| heads.flops(width, 0).weights),
            attention: (5 * width as u64).saturating_mul(keys),
        }
    }

    fn describe(&self, width: usize) -> String {
        let kernel = match self.kernel {
            KernelShape::Gaussian => "gaussian",
            KernelShape::Boxcar => "boxcar",
            KernelShape::Epanechnikov => "epanechnikov",
            KernelShape::Constant => "constant",
        };
        let learned = match self.learn_width {
            LearnWidth::Fixed => "width",
            LearnWidth::Learned => "learned width, initially",
        };
        let regression = format!(
            "kernel regression, {kernel} kernel of {learned} {}",
            self.width
        );
        match self.heads() {
            Some(heads) => heads.describe(&regression, width),
            None => regression,
        }
    }
}

impl KernelShape {
    /// Whether its gradient is zero everywhere.
    fn is_flat(self) -> bool {
        matches!(self, Self::Boxcar | Self::Constant)
    }
}

/// Kernel regression.
#[derive(Module, Debug)]
pub struct NadarayaWatson {
    /// `[1]`, if the bandwidth is trained
    log_width: Option<Param<Tensor<1>>>,
    #[module(skip)]
    width: f64,
    #[module(skip)]
    kernel: KernelShape,
    #[module(skip)]
    query_position: QueryPosition,
}

impl NadarayaWatson {
    pub(super) fn attend(&self, qkv: Qkv, mut context: AttendContext) -> PatternOutput {
        let (qkv, _) = context.append_to_cache(qkv, None);
        let distances = self.squared_distances(qkv.query, qkv.key);
        let weights = self.weights(distances, &context.mask(0));
        context.attend_with_weights(weights, qkv.value)
    }

    /// The current bandwidth.
    pub fn width(&self) -> f64 {
        match &self.log_width {
            Some(log_width) => f64::from(log_width.val().into_scalar::<f32>()).exp(),
            None => self.width,
        }
    }

    /// The squared distances in units of the bandwidth, `[batch, heads, queries, keys]`.
    fn squared_distances(&self, query: Tensor<4>, key: Tensor<4>) -> Tensor<4> {
        let [batch, heads, queries, width] = query.dims();
        let keys = key.dims()[2];
        let query = query.reshape([batch, heads, queries, 1, width]);
        let differences = query - key.reshape([batch, heads, 1, keys, width]);
        let squares = (differences.clone() * differences).sum_dim(4);
        let squares = squares.reshape([batch, heads, queries, keys]);
        match &self.log_width {
            Some(log_width) => squares * (log_width.val() * -2.0).exp().reshape([1, 1, 1, 1]),
            None => squares / (self.width * self.width),
        }
    }

    fn weights(&self, squares: Tensor<4>, mask: &Mask) -> Tensor<4> {
        let [batch, _, queries, keys] = squares.dims();
        let is_self = (self.query_position == QueryPosition::LeftOut).then(|| self_pairs(&squares));
        if self.kernel == KernelShape::Gaussian {
            // The softmax is the same after normalization, and cannot underflow when all keys are far away.
            let mut scores = squares * -0.5;
            if let Some(is_self) = is_self {
                scores = scores.mask_fill(is_self, f32::NEG_INFINITY);
            }
            return masked_softmax(scores, mask);
        }
        let mut kernels = match self.kernel {
            KernelShape::Epanechnikov => relu(1.0 - squares),
            KernelShape::Boxcar => {
                let near = squares.clone().lower_scalar(1.0);
                indicator(squares, near)
            }
            KernelShape::Constant | KernelShape::Gaussian => {
                let all = squares.clone().lower_equal_scalar(f32::INFINITY);
                indicator(squares, all)
            }
        };
        if let Some(is_self) = is_self {
            kernels = kernels.mask_fill(is_self, 0.0);
        }
        if let Some(masked) = mask.materialize(batch, queries, keys, &kernels.device()) {
            let masked = masked.expand(kernels.shape());
            kernels = kernels.mask_fill(masked, 0.0);
        }
        let sums = kernels.clone().sum_dim(3);
        let empty = sums.clone().equal_scalar(0.0);
        kernels / sums.mask_fill(empty, 1.0)
    }
}

/// One for these pairs and zero for the others. Computed from the distances, so that queries and keys get a gradient of
/// zeros rather than none.
fn indicator(squares: Tensor<4>, ones: Tensor<4, Bool>) -> Tensor<4> {
    squares
        .mask_fill(ones.clone(), 1.0)
        .mask_fill(ones.bool_not(), 0.0)
}

/// The pairs of a position with itself, for `[batch, heads, queries, keys]`; the queries are the last of the keys' positions.
fn self_pairs(squares: &Tensor<4>) -> Tensor<4, Bool> {
    let [_, _, queries, keys] = squares.dims();
    let pairs = (0..queries)
        .flat_map(|query| (0..keys).map(move |key| key + queries == query + keys))
        .collect::<Vec<bool>>();
    let pairs = TensorData::new(pairs, [1, 1, queries, keys]);
    Tensor::<4, Bool>::from_data(pairs, &squares.device()).expand(squares.shape())
}
