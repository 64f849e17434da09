//! Kernel regression as attention: values are averaged with weights that fall with the distance of their keys from the query.
//! Nadaraya 1964; Watson 1964.
//!
//! ```text
//! weight ∝ kernel(|query - key| / width)        output = Σ weight · value
//!
//! gaussian       e^(-u²/2)
//! boxcar         1 where u < 1
//! epanechnikov   1 - u² where u < 1; its factor ¾ cancels out. Dive into Deep Learning calls the triangle 1 - u so.
//! constant       1
//! ```
//!
//! Queries, keys and values are taken as they are, or from heads with maps of their own. Where all kernels are zero, so is
//! the result. Differences are taken number by number, `[batch, heads, queries, keys, width]`: the shorter way over squares and
//! a product loses what is near in data that is far from zero.

use attentive_tensor::{Mask, masked_softmax};
use burn::module::{Module, Param};
use burn::tensor::activation::relu;
use burn::tensor::{Bool, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use super::pattern::{Call, Context, Projected};
use super::{
    Attention, AttentionSettings, CacheSize, CommonSettings, HeadsConfig, Pattern, Place, Role,
    place::rotated, unprojected::maybe_projected,
};
use crate::checks::{probability, refuse};
use crate::{ConfigError, Initializer, Operations};

/// Settings of kernel regression.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NadarayaWatsonConfig {
    /// How weights fall with distance.
    pub kernel: KernelShape,
    /// The distance that counts as one.
    #[serde(default = "one")]
    pub width: f64,
    /// Whether the width is trained.
    #[serde(default)]
    pub learn_width: LearnWidth,
    /// Whether a position looks at itself.
    #[serde(default)]
    pub own: OwnPosition,
    /// How many heads map queries, keys and values first; without, these are taken as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<usize>,
    /// Dropout on the attention weights.
    #[serde(default)]
    pub dropout: f64,
}

fn one() -> f64 {
    1.0
}

/// How weights fall with distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelShape {
    /// A bell.
    Gaussian,
    /// All within a width alike.
    Boxcar,
    /// A parabola.
    Epanechnikov,
    /// All alike.
    Constant,
}

/// Whether the width is trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LearnWidth {
    /// It stays as it is.
    #[default]
    Fixed,
    /// Its logarithm is a parameter, so that it stays positive.
    Learned,
}

/// Whether a position looks at itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnPosition {
    /// It does.
    #[default]
    Included,
    /// It does not. A width that is trained to repeat the values needs this: otherwise each position best repeats its own,
    /// by a width of zero.
    LeftOut,
}

impl CommonSettings for NadarayaWatsonConfig {
    fn dropout_mut(&mut self) -> Option<&mut f64> {
        Some(&mut self.dropout)
    }

    fn heads(&self) -> Option<HeadsConfig> {
        let heads = self.heads?;
        Some(HeadsConfig::plain(heads, self.dropout))
    }
}

impl AttentionSettings for NadarayaWatsonConfig {
    fn validate(&self, path: &str, place: &Place) -> Result<(), ConfigError> {
        place.take_positions(path, "nadaraya_watson", rotated(self.heads))?;
        probability(&format!("{path}.dropout"), self.dropout)?;
        // Squares of numbers outside, and their inverses, are no f32.
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
                "a boxcar or constant kernel has no slope to learn a width from; use fixed, or a gaussian or epanechnikov kernel",
            );
        }
        if self.own == OwnPosition::LeftOut && place.role != Role::Bidirectional {
            return refuse(
                &format!("{path}.own"),
                "only bidirectional attention can leave its own position out; use included",
            );
        }
        let widths = place.widths;
        if let Some(heads) = self.heads() {
            return heads.validate_plain(path, widths.queries);
        }
        if widths.queries != widths.keys {
            return refuse(
                &format!("{path}.kind"),
                format!(
                    "distances need queries (width {}) as wide as keys (width {}); make them so, or say heads",
                    widths.queries, widths.keys
                ),
            );
        }
        place.give_values(path, "nadaraya_watson")
    }

    fn build(&self, place: &Place, initial: &mut Initializer) -> Attention {
        let learned = self.learn_width == LearnWidth::Learned;
        let pattern = Pattern::NadarayaWatson(NadarayaWatson {
            log_width: learned.then(|| initial.constant([1], self.width.ln() as f32)),
            width: self.width,
            kernel: self.kernel,
            own: self.own,
        });
        maybe_projected(pattern, self.heads(), self.dropout, place, initial)
    }

    fn operations(&self, width: usize, length: usize) -> Operations {
        // A difference, its square and their sum for each number of a pair; then a product and a sum.
        let met = (length as u64).div_ceil(2);
        Operations {
            weights: self
                .heads()
                .map_or(0, |heads| heads.operations(width, 0).weights),
            attention: (5 * width as u64).saturating_mul(met),
        }
    }

    fn cache(&self, width: usize) -> CacheSize {
        CacheSize::Growing(2 * width as u64)
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
            LearnWidth::Learned => "learned width, at first",
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
    /// Whether it has no slope anywhere.
    fn is_flat(self) -> bool {
        matches!(self, Self::Boxcar | Self::Constant)
    }
}

/// Averages the values of near keys.
#[derive(Module, Debug)]
pub struct NadarayaWatson {
    /// `[1]`, where the width is learned
    log_width: Option<Param<Tensor<1>>>,
    #[module(skip)]
    width: f64,
    #[module(skip)]
    kernel: KernelShape,
    #[module(skip)]
    own: OwnPosition,
}

impl NadarayaWatson {
    pub(super) fn attend(&self, heads: Projected, mut call: Call) -> Context {
        let (heads, _) = call.remember(heads, None);
        let squares = self.squares(heads.query, heads.key);
        let weights = self.weights(squares, &call.mask(0));
        call.weigh(weights, heads.value)
    }

    /// The distance that counts as one, as it is now.
    pub fn width(&self) -> f64 {
        match &self.log_width {
            Some(log_width) => f64::from(log_width.val().into_scalar::<f32>()).exp(),
            None => self.width,
        }
    }

    /// The squares of distances over width, `[batch, heads, queries, keys]`.
    fn squares(&self, query: Tensor<4>, key: Tensor<4>) -> Tensor<4> {
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
        let own = (self.own == OwnPosition::LeftOut).then(|| own_pairs(&squares));
        if self.kernel == KernelShape::Gaussian {
            // The same after normalisation, and no weights vanish together because all keys are far.
            let mut scores = squares * -0.5;
            if let Some(own) = own {
                scores = scores.mask_fill(own, f32::NEG_INFINITY);
            }
            return masked_softmax(scores, mask);
        }
        let mut kernels = match self.kernel {
            KernelShape::Epanechnikov => relu(1.0 - squares),
            KernelShape::Boxcar => {
                let near = squares.clone().lower_scalar(1.0);
                filled(squares, near)
            }
            KernelShape::Constant | KernelShape::Gaussian => {
                let all = squares.clone().lower_equal_scalar(f32::INFINITY);
                filled(squares, all)
            }
        };
        if let Some(own) = own {
            kernels = kernels.mask_fill(own, 0.0);
        }
        if let Some(forbidden) = mask.forbidden(batch, queries, keys, &kernels.device()) {
            let forbidden = forbidden.expand(kernels.shape());
            kernels = kernels.mask_fill(forbidden, 0.0);
        }
        let sums = kernels.clone().sum_dim(3);
        let empty = sums.clone().equal_scalar(0.0);
        kernels / sums.mask_fill(empty, 1.0)
    }
}

/// One for these pairs and zero for the others. Queries and keys get a gradient of zeros, where made of nothing they would
/// get none.
fn filled(squares: Tensor<4>, ones: Tensor<4, Bool>) -> Tensor<4> {
    squares
        .mask_fill(ones.clone(), 1.0)
        .mask_fill(ones.bool_not(), 0.0)
}

/// The pairs of a position with itself, for `[batch, heads, queries, keys]`; the queries are the last of the keys' positions.
fn own_pairs(squares: &Tensor<4>) -> Tensor<4, Bool> {
    let [_, _, queries, keys] = squares.dims();
    let pairs = (0..queries)
        .flat_map(|query| (0..keys).map(move |key| key + queries == query + keys))
        .collect::<Vec<bool>>();
    let pairs = TensorData::new(pairs, [1, 1, queries, keys]);
    Tensor::<4, Bool>::from_data(pairs, &squares.device()).expand(squares.shape())
}
