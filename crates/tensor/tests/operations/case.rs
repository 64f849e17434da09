//! A case: an operation with its settings, its inputs, and what flows back into each of its outputs.

use std::collections::BTreeMap;
use std::sync::Arc;

use attentive_tensor::{
    Activation, BlockPattern, FeatureMap, Mask, NormKind, Purpose, Randomness, Stabilizer,
};
use serde::Deserialize;

/// Sizes and numbers; f64, which holds every f32.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    pub shape: Vec<usize>,
    pub numbers: Vec<f64>,
}

impl Array {
    /// The size of the last axis.
    pub fn width(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// The numbers of each place of the other axes; there are such places where the last axis has no length, too.
    pub fn rows(&self) -> impl Iterator<Item = &[f64]> {
        let width = self.width();
        let leading = self
            .shape
            .split_last()
            .map_or(&[][..], |(_, leading)| leading);
        let count = leading.iter().product::<usize>();
        (0..count).map(move |row| &self.numbers[row * width..(row + 1) * width])
    }

    /// The sizes of a tensor of so many axes.
    pub fn dims<const D: usize>(&self) -> [usize; D] {
        let shape = self.shape.clone();
        let shape: Result<[usize; D], _> = shape.try_into();
        shape.unwrap_or_else(|shape| panic!("{shape:?} has not {D} axes"))
    }
}

/// The largest size of any number.
pub fn largest(numbers: &[f64]) -> f64 {
    numbers.iter().fold(0.0, |most, x| most.max(x.abs()))
}

pub type Arrays = BTreeMap<String, Array>;

pub struct Case {
    pub name: String,
    pub operation: Operation,
    pub inputs: Arrays,
    /// The gradient of each output. Numbers that are all zero mean that nobody reads the output.
    pub upstream: Vec<Vec<f64>>,
}

impl Case {
    /// The size of what flows back, for gradients that are zero in exact arithmetic and have no size of their own.
    pub fn upstream_size(&self) -> f64 {
        self.upstream
            .iter()
            .map(|numbers| largest(numbers))
            .fold(0.0, f64::max)
    }
}

/// An operation and its settings, in the words of `reference/operations`.
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
    ThreeLinears,
    Add,
    Norm(Norm),
    NormBeside(Norm),
    NormBesideSum(Norm),
    NormOfSum(Norm),
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
    AttentionWithLogSums(Attention),
    /// As many parts as there are inputs `context0`, `context1` and so on.
    MergeAttended,
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
    /// First and end of the keys that are not padding, for each sequence.
    pub keys: Option<Vec<[usize; 2]>>,
    #[serde(default)]
    pub blocks: Option<Blocks>,
    /// PyTorch's masks are not ours, so the golden cases have none.
    #[serde(default)]
    pub dropout: f64,
}

/// The size of a block and, for each head or for all, for each block of queries, the blocks of keys that it sees.
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
    /// First and end of the keys that are not padding, for each sequence.
    pub keys: Option<Vec<[usize; 2]>>,
    /// The state of keys that came before. No input, since it has no gradient.
    pub start: Option<Start>,
}

/// The numbers of a state, in the order of its axes.
#[derive(Clone, Debug, Deserialize)]
pub struct Start {
    pub sums: Vec<f64>,
    pub totals: Vec<f64>,
}

impl LinearAttention {
    pub fn mask(&self) -> Mask {
        self.as_attention().mask()
    }

    /// Who may attend to whom, in the words of softmax attention.
    pub fn as_attention(&self) -> Attention {
        Attention {
            causal: self.causal,
            keys: self.keys.clone(),
            ..Attention::default()
        }
    }
}

/// The randomness of every case: what is dropped is a function of it, so the twin can make the same mask again.
pub fn randomness() -> Randomness {
    Randomness::new(Purpose::Dropout, 11, 13)
}
