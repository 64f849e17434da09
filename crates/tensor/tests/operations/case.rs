//! A case: an operation with its settings, its inputs, and the upstream gradient of each output.

use std::collections::BTreeMap;
use std::sync::Arc;

use attentive_tensor::{
    Activation, BlockPattern, FeatureMap, Mask, NormKind, Purpose, Randomness, Stabilizer,
};
use serde::Deserialize;

/// Shape and values; f64 represents every f32.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
}

impl Array {
    /// The size of the last axis.
    pub fn width(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// The rows along the last axis; also where that axis has size zero.
    pub fn rows(&self) -> impl Iterator<Item = &[f64]> {
        let width = self.width();
        let leading = self
            .shape
            .split_last()
            .map_or(&[][..], |(_, leading)| leading);
        let count = leading.iter().product::<usize>();
        (0..count).map(move |row| &self.values[row * width..(row + 1) * width])
    }

    /// The shape of a tensor of rank `D`.
    pub fn dims<const D: usize>(&self) -> [usize; D] {
        let shape = self.shape.clone();
        let shape: Result<[usize; D], _> = shape.try_into();
        shape.unwrap_or_else(|shape| panic!("{shape:?} has not {D} axes"))
    }
}

/// The largest magnitude.
pub fn max_abs(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |max, x| max.max(x.abs()))
}

pub type Arrays = BTreeMap<String, Array>;

pub struct Case {
    pub name: String,
    pub operation: Operation,
    pub inputs: Arrays,
    /// The gradient of each output. All zeros mean that the loss does not depend on the output.
    pub upstream: Vec<Vec<f64>>,
}

impl Case {
    /// The magnitude of the upstream gradients: the scale of gradients that are zero in exact arithmetic.
    pub fn upstream_size(&self) -> f64 {
        self.upstream
            .iter()
            .map(|values| max_abs(values))
            .fold(0.0, f64::max)
    }
}

/// An operation and its settings, as `reference/operations` serializes them.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case")]
pub enum Operation {
    Linear,
    ActivatedLinear {
        activation: Activation,
    },
    /// Gated where there is an input `gate`.
    FeedForward {
        activation: Activation,
    },
    #[serde(rename = "three_linears")]
    LinearQkv,
    Add,
    Norm(Norm),
    #[serde(rename = "norm_beside")]
    NormWithInput(Norm),
    #[serde(rename = "norm_beside_sum")]
    AddNormWithSum(Norm),
    #[serde(rename = "norm_of_sum")]
    AddNorm(Norm),
    Activate {
        activation: Activation,
    },
    Gated {
        activation: Activation,
    },
    Softmax,
    Dropout {
        probability: f64,
    },
    Rotary {
        theta: f64,
        positions: Vec<Vec<i64>>,
    },
    Embedding {
        ids: Vec<Vec<i64>>,
    },
    CrossEntropy {
        targets: Vec<i64>,
        label_smoothing: f64,
    },
    Attention(Attention),
    #[serde(rename = "attention_with_log_sums")]
    AttentionWithLogSumExp(Attention),
    /// As many parts as there are inputs `context0`, `context1` and so on.
    #[serde(rename = "merge_attended")]
    MergePartialAttention,
    AttentionWeights(Attention),
    ApplyWeights,
    /// The scale is one.
    MaskedSoftmax(Attention),
    LinearAttention(LinearAttention),
    PositiveFeatures {
        map: FeatureMap,
    },
    RandomFeatures {
        stabilizer: Stabilizer,
    },
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Norm {
    kind: NormName,
    pub epsilon: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum NormName {
    Layer,
    Rms,
}

impl Norm {
    pub fn new(kind: NormKind, epsilon: f64) -> Self {
        let kind = match kind {
            NormKind::Layer => NormName::Layer,
            NormKind::Rms => NormName::Rms,
        };
        Self { kind, epsilon }
    }

    pub fn kind(self) -> NormKind {
        match self.kind {
            NormName::Layer => NormKind::Layer,
            NormName::Rms => NormKind::Rms,
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct Attention {
    pub scale: f64,
    pub causal: bool,
    pub window: Option<usize>,
    /// The range of the keys that are not padding, for each sequence.
    pub keys: Option<Vec<[usize; 2]>>,
    #[serde(default)]
    pub blocks: Option<Blocks>,
    /// Golden cases have none: PyTorch samples other masks.
    #[serde(default)]
    pub dropout: f64,
}

/// The block size and, per head or for all heads, per block of queries, the visible blocks of keys.
#[derive(Clone, Debug, Deserialize)]
pub struct Blocks {
    pub block: usize,
    pub rows: Vec<Vec<Vec<usize>>>,
}

impl Attention {
    pub fn mask(&self) -> Mask {
        let mut mask = match self.causal {
            true => Mask::causal(),
            false => Mask::none(),
        };
        if let Some(window) = self.window {
            mask = mask.with_window(window);
        }
        if let Some(Blocks { block, rows }) = &self.blocks {
            mask = mask.with_blocks(Arc::new(BlockPattern::new(*block, rows.clone())));
        }
        match &self.keys {
            Some(keys) => mask.with_keys(keys.iter().map(|[start, end]| *start..*end).collect()),
            None => mask,
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct LinearAttention {
    pub causal: bool,
    /// The range of the keys that are not padding, for each sequence.
    pub keys: Option<Vec<[usize; 2]>>,
    /// The initial state. Not an input, since it has no gradient.
    pub start: Option<InitialState>,
}

/// The values of a state, in row-major order.
#[derive(Clone, Debug, Deserialize)]
pub struct InitialState {
    #[serde(rename = "sums")]
    pub kv_sums: Vec<f64>,
    #[serde(rename = "totals")]
    pub key_sums: Vec<f64>,
}

impl LinearAttention {
    pub fn mask(&self) -> Mask {
        self.as_attention().mask()
    }

    /// The same mask, as settings of softmax attention.
    pub fn as_attention(&self) -> Attention {
        Attention {
            causal: self.causal,
            keys: self.keys.clone(),
            ..Attention::default()
        }
    }
}

/// The randomness of every case: dropout masks are a function of it, so the reference recomputes them.
pub fn randomness() -> Randomness {
    Randomness::new(Purpose::Dropout, 11, 13)
}
