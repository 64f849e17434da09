//! Kernelized linear attention over features of queries and keys. Katharopoulos et al. 2020; with random features,
//! Choromanski et al. 2021.
//!
//! The weight of a key is a dot product of features instead of an exponential, so sums over keys can be accumulated: time
//! is linear in the length, and decoding needs a state of constant size.

use burn::tensor::{Bool, Shape, Tensor, TensorData};

use crate::exact_dims::ExactDims;
use crate::fused::{self, LinearOptions};
use crate::{Mask, apply_weights};

/// Queries per chunk of the composed form.
const CHUNK: usize = 64;

/// Sums over keys: the recurrent state, of constant size. No gradient flows through it.
#[derive(Clone, Debug)]
pub struct LinearState {
    /// `Σ φk vᵀ`, `[batch, key_value_heads, features, value_width]`
    pub kv_sums: Tensor<4>,
    /// `Σ φk`, `[batch, key_value_heads, features]`
    pub key_sums: Tensor<3>,
}

/// The result of [`linear_attention`].
#[derive(Clone, Debug)]
pub struct LinearAttentionOutput {
    /// The context of each query, `[batch, heads, queries, value_width]`.
    pub context: Tensor<4>,
    /// The state after all keys.
    pub state: LinearState,
}

/// `Σ φq·φk v / Σ φq·φk` over the visible keys of each query; zeros where the denominator is zero.
///
/// `query` is `[batch, heads, queries, features]`, `key` and `value` `[batch, key_value_heads, keys, …]`; features should not
/// be negative. The mask may be causal and may have ranges of keys. With a state, the keys follow those in it, which
/// every query sees, and ranges count from the first of the new keys. No gradient flows into or out of a state.
///
/// # Panics
/// When the shapes do not match each other, the mask or the state, or the mask has a window.
pub fn linear_attention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    mask: &Mask,
    state: Option<LinearState>,
) -> LinearAttentionOutput {
    check(&query, &key, &value, mask, state.as_ref());
    let [batch, heads, _, features] = query.dims();
    // The kernel and the chunked form need heads that are not empty.
    let is_nonempty = batch > 0 && heads > 0 && features > 0 && value.dims()[3] > 0;
    if fused::has_kernels(&query) && is_nonempty {
        let options = LinearOptions {
            causal: mask.is_causal(),
            keys: mask.keys().map(<[_]>::to_vec),
        };
        return fused::linear_attention([query, key, value], state, options);
    }
    let (key, value) = zero_padding(key, value, mask);
    let state = state.map(|state| LinearState {
        kv_sums: state.kv_sums.detach(),
        key_sums: state.key_sums.detach(),
    });
    match is_nonempty {
        true => chunked(query, key, value, mask, state),
        false => of_empty_heads(query, key, value, state),
    }
}

/// Panics where the operands do not match each other.
fn check(
    query: &Tensor<4>,
    key: &Tensor<4>,
    value: &Tensor<4>,
    mask: &Mask,
    state: Option<&LinearState>,
) {
    let [batch, heads, _, features] = query.dims();
    let [key_batch, key_value_heads, _, key_features] = key.dims();
    assert!(
        key_batch == batch
            && key_features == features
            && key_value_heads > 0
            && heads.is_multiple_of(key_value_heads),
        "linear_attention: queries {:?} do not match keys {:?}",
        query.dims(),
        key.dims()
    );
    assert_eq!(
        value.dims()[..3],
        key.dims()[..3],
        "linear_attention: values {:?} do not match keys {:?}",
        value.dims(),
        key.dims()
    );
    if let Some(size) = mask.window() {
        panic!(
            "linear_attention: a window of {size} is not supported, since sums over keys forget none"
        );
    }
    assert!(
        mask.blocks().is_none(),
        "linear_attention: a pattern of blocks is not supported, since sums over keys are for all queries"
    );
    if let Some(ranges) = mask.keys() {
        assert_eq!(
            ranges.len(),
            batch,
            "linear_attention: {} ranges of keys do not match queries {:?}",
            ranges.len(),
            query.dims()
        );
    }
    if let Some(LinearState { kv_sums, key_sums }) = state {
        let width = value.dims()[3];
        assert_eq!(
            kv_sums.dims(),
            [batch, key_value_heads, features, width],
            "linear_attention: the state's kv_sums {:?} do not match keys {:?} and values {:?}",
            kv_sums.dims(),
            key.dims(),
            value.dims()
        );
        assert_eq!(
            key_sums.dims(),
            [batch, key_value_heads, features],
            "linear_attention: the state's key_sums {:?} do not match keys {:?}",
            key_sums.dims(),
            key.dims()
        );
    }
}

/// Keys and values with zeros at padding, which adds nothing to any sum.
fn zero_padding(key: Tensor<4>, value: Tensor<4>, mask: &Mask) -> (Tensor<4>, Tensor<4>) {
    let Some(ranges) = mask.keys() else {
        return (key, value);
    };
    let [batch, _, keys, _] = key.dims();
    let padding: Vec<bool> = ranges
        .iter()
        .flat_map(|range| (0..keys).map(|key| !range.contains(&key)))
        .collect();
    let padding = TensorData::new(padding, [batch, 1, keys, 1]);
    let padding = Tensor::<4, Bool>::from_data(padding, &key.device());
    let [key, value] = [key, value].map(|x| {
        // A `Shape`, because burn refuses arrays with a size of zero.
        let padding = padding.clone().expand(Shape::from(x.dims()));
        x.mask_fill(padding, 0.0)
    });
    (key, value)
}

/// The sums over keys so far; gradients flow through them.
struct RunningSums {
    kv_sums: Tensor<4>,
    /// `[batch, key_value_heads, features, 1]`
    key_sums: Tensor<4>,
}

impl RunningSums {
    fn new(key: &Tensor<4>, value: &Tensor<4>, start: Option<LinearState>) -> Self {
        let [batch, heads, _, features] = key.dims();
        let column = [batch, heads, features, 1];
        match start {
            Some(LinearState { kv_sums, key_sums }) => Self {
                kv_sums,
                key_sums: key_sums.reshape(ExactDims(column)),
            },
            None => {
                let size = [batch, heads, features, value.dims()[3]];
                let zeros =
                    |size: [usize; 4]| Tensor::<4>::zeros(size, &key.device()).cast(key.dtype());
                Self {
                    kv_sums: zeros(size),
                    key_sums: zeros(column),
                }
            }
        }
    }

    fn accumulate(self, key: Tensor<4>, value: Tensor<4>) -> Self {
        let transposed = key.swap_dims(2, 3);
        Self {
            kv_sums: self.kv_sums + transposed.clone().matmul(value),
            key_sums: self.key_sums + transposed.sum_dim(3),
        }
    }

    fn state(self) -> LinearState {
        let [batch, heads, features, _] = self.key_sums.dims();
        LinearState {
            kv_sums: self.kv_sums.detach(),
            key_sums: self
                .key_sums
                .detach()
                .reshape(ExactDims([batch, heads, features])),
        }
    }
}

fn chunked(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    mask: &Mask,
    state: Option<LinearState>,
) -> LinearAttentionOutput {
    let (queries, keys) = (query.dims()[2], key.dims()[2]);
    let mut running = RunningSums::new(&key, &value, state);
    let prefix = match mask.is_causal() {
        true => keys.saturating_sub(queries),
        false => keys,
    };
    let slice = |x: &Tensor<4>, start: usize, end: usize| x.clone().narrow(2, start, end - start);
    if prefix > 0 {
        running = running.accumulate(slice(&key, 0, prefix), slice(&value, 0, prefix));
    }
    if queries == 0 {
        let context = chunk_context(query, &running, None);
        let state = running.state();
        return LinearAttentionOutput { context, state };
    }
    let mut parts = Vec::new();
    for first in (0..queries).step_by(CHUNK) {
        let end = queries.min(first + CHUNK);
        let rows = slice(&query, first, end);
        // A query's position is `query + keys - queries`, which may be negative: the subtraction comes last.
        let position = |query: usize| (query + keys).saturating_sub(queries);
        let (start, stop) = (position(first), position(end));
        if !mask.is_causal() || start == stop {
            parts.push(chunk_context(rows, &running, None));
            continue;
        }
        let shift = end - first - (stop - start);
        let pair = (slice(&key, start, stop), slice(&value, start, stop));
        let seen = Some((pair.clone(), shift));
        parts.push(chunk_context(rows, &running, seen));
        running = running.accumulate(pair.0, pair.1);
    }
    LinearAttentionOutput {
        context: Tensor::cat(parts, 2),
        state: running.state(),
    }
}

/// The context of a chunk of queries: of the keys in the state, and of the keys of the same chunk, of which query `i` sees
/// the first `i + 1 - shift`.
fn chunk_context(
    query: Tensor<4>,
    state: &RunningSums,
    keys: Option<((Tensor<4>, Tensor<4>), usize)>,
) -> Tensor<4> {
    let [batch, heads, queries, features] = query.dims();
    let [_, key_value_heads, _, width] = state.kv_sums.dims();
    let grouped = [
        batch,
        key_value_heads,
        heads / key_value_heads * queries,
        features,
    ];
    let query = query.reshape(ExactDims(grouped));
    let mut numerator = query.clone().matmul(state.kv_sums.clone());
    let mut denominator = query.clone().matmul(state.key_sums.clone());
    if let Some(((key, value), shift)) = keys {
        let count = key.dims()[2];
        let scores = query.matmul(key.swap_dims(2, 3));
        let later: Vec<bool> = (0..queries)
            .flat_map(|row| (0..count).map(move |key| key + shift > row))
            .collect();
        let later = TensorData::new(later, [1, 1, queries, count]);
        let later = Tensor::<4, Bool>::from_data(later, &scores.device());
        let size = [batch, heads, queries, count];
        let scores = scores
            .reshape(ExactDims(size))
            .mask_fill(later.expand(Shape::from(size)), 0.0)
            .reshape(ExactDims([batch, key_value_heads, grouped[2], count]));
        denominator = denominator + scores.clone().sum_dim(3);
        numerator = numerator + scores.matmul(value);
    }
    let empty = denominator.clone().equal_scalar(0.0);
    let full = Shape::from(numerator.dims());
    let context = numerator / denominator.mask_fill(empty.clone(), 1.0);
    context
        .mask_fill(empty.expand(full), 0.0)
        .reshape(ExactDims([batch, heads, queries, width]))
}

/// Linear attention of empty heads, by definition.
fn of_empty_heads(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    state: Option<LinearState>,
) -> LinearAttentionOutput {
    let [batch, heads, queries, features] = query.dims();
    let [_, key_value_heads, keys, _] = key.dims();
    let grouped = [
        batch,
        key_value_heads,
        heads / key_value_heads * queries,
        features,
    ];
    let weights = query
        .reshape(ExactDims(grouped))
        .matmul(key.clone().swap_dims(2, 3))
        .reshape(ExactDims([batch, heads, queries, keys]));
    let context = apply_weights(weights, value.clone());
    let running = RunningSums::new(&key, &value, state);
    let state = running.accumulate(key, value).state();
    LinearAttentionOutput { context, state }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attentive_testing::{Scale, assert_close, ulps_of_sum};
    use burn::tensor::{Device, Distribution};

    /// Positive values.
    fn rows(heads: usize, length: usize, width: usize) -> Tensor<4> {
        let device = Device::flex();
        device.seed(5);
        Tensor::random([2, heads, length, width], Distribution::Default, &device) + 0.01
    }

    /// All terms are positive, so that rounding errors are relative to each sum. Two computations of as many terms differ.
    fn close<const D: usize>(what: &str, ours: Tensor<D>, expected: Tensor<D>, terms: usize) {
        let [ours, expected] = [ours, expected].map(|x| x.into_data().try_to_vec::<f32>().unwrap());
        let sums: Vec<f64> = expected.iter().map(|it| f64::from(*it)).collect();
        assert_close(
            what,
            &ours,
            &sums,
            Scale::Terms(&sums),
            ulps_of_sum(2 * terms),
        );
    }

    #[test]
    fn a_pass_in_chunks_equals_the_whole() {
        let (query, key, value) = (rows(4, 70, 8), rows(2, 70, 8), rows(2, 70, 5));
        let mask = Mask::causal();
        let attend = |range: std::ops::Range<usize>, state| {
            let slice = |x: &Tensor<4>| x.clone().narrow(2, range.start, range.len());
            linear_attention(slice(&query), slice(&key), slice(&value), &mask, state)
        };
        let whole = attend(0..70, None);
        let (mut parts, mut state) = (Vec::new(), None);
        for range in [0..1, 1..2, 2..67, 67..70] {
            let attended = attend(range, state);
            parts.push(attended.context);
            state = Some(attended.state);
        }
        let state = state.unwrap();
        // Numerator and denominator sum over 70 positions and 8 features.
        close(
            "context",
            Tensor::cat(parts, 2),
            whole.context,
            2 * (70 + 8),
        );
        close("kv_sums", state.kv_sums, whole.state.kv_sums, 70);
        close("key_sums", state.key_sums, whole.state.key_sums, 70);
    }
}
