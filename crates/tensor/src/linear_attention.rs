//! Kernelized linear attention over features of queries and keys. Katharopoulos et al. 2020; with random features,
//! Choromanski et al. 2021.
//!
//! The weight of a key is the product of two rows of features instead of an exponential, so sums over keys can be kept
//! and added to: time is linear in the length, and decoding needs a state of constant size.

use burn::tensor::{Bool, Shape, Tensor, TensorData};

use crate::exactly::Exactly;
use crate::fused::{self, LinearOptions};
use crate::{Mask, apply_weights};

/// Queries per chunk of the composed form.
const CHUNK: usize = 64;

/// Sums over keys: all that later queries need to know of them, whatever the length. It carries no gradient.
#[derive(Clone, Debug)]
pub struct LinearState {
    /// `Σ φk vᵀ`, `[batch, key_value_heads, features, value_width]`
    pub sums: Tensor<4>,
    /// `Σ φk`, `[batch, key_value_heads, features]`
    pub totals: Tensor<3>,
}

/// What [`linear_attention`] gives.
#[derive(Clone, Debug)]
pub struct LinearAttended {
    /// The context of each query, `[batch, heads, queries, value_width]`.
    pub context: Tensor<4>,
    /// The state after all keys.
    pub state: LinearState,
}

/// `Σ φq·φk v / Σ φq·φk` over the keys that each query sees; zeros where the sum below is zero.
///
/// `query` is `[batch, heads, queries, features]`, `key` and `value` `[batch, key_value_heads, keys, …]`; features should not
/// be negative. The mask may be causal and may have ranges of keys. With a state, the keys come after those in it, which
/// every query sees, and ranges count from the first of the new keys. No gradient flows into or out of a state.
///
/// # Panics
/// When the shapes do not fit each other, the mask or the state, or the mask has a window.
pub fn linear_attention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    mask: &Mask,
    state: Option<LinearState>,
) -> LinearAttended {
    check(&query, &key, &value, mask, state.as_ref());
    let [batch, heads, _, features] = query.dims();
    // Kernel and chunks are for heads that hold something.
    let holds_something = batch > 0 && heads > 0 && features > 0 && value.dims()[3] > 0;
    if fused::has_kernels(&query) && holds_something {
        let options = LinearOptions {
            causal: mask.is_causal(),
            keys: mask.keys().map(<[_]>::to_vec),
        };
        return fused::attend_linearly(query, key, value, state, options);
    }
    let (key, value) = without_padding(key, value, mask);
    let state = state.map(|state| LinearState {
        sums: state.sums.detach(),
        totals: state.totals.detach(),
    });
    match holds_something {
        true => in_chunks(query, key, value, mask, state),
        false => of_nothing(query, key, value, state),
    }
}

/// Panics where the operands do not fit each other.
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
        "linear_attention: queries {:?} do not fit keys {:?}",
        query.dims(),
        key.dims()
    );
    assert_eq!(
        value.dims()[..3],
        key.dims()[..3],
        "linear_attention: values {:?} do not fit keys {:?}",
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
            "linear_attention: {} ranges of keys do not fit queries {:?}",
            ranges.len(),
            query.dims()
        );
    }
    if let Some(LinearState { sums, totals }) = state {
        let width = value.dims()[3];
        assert_eq!(
            sums.dims(),
            [batch, key_value_heads, features, width],
            "linear_attention: the state's sums {:?} do not fit keys {:?} and values {:?}",
            sums.dims(),
            key.dims(),
            value.dims()
        );
        assert_eq!(
            totals.dims(),
            [batch, key_value_heads, features],
            "linear_attention: the state's totals {:?} do not fit keys {:?}",
            totals.dims(),
            key.dims()
        );
    }
}

/// Keys and values with zeros where there is padding: such keys add nothing to any sum.
fn without_padding(key: Tensor<4>, value: Tensor<4>, mask: &Mask) -> (Tensor<4>, Tensor<4>) {
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
        // A `Shape` and not an array, of which burn refuses a size of zero.
        let padding = padding.clone().expand(Shape::from(x.dims()));
        x.mask_fill(padding, 0.0)
    });
    (key, value)
}

/// Sums over keys while they grow; gradients flow through them.
struct Running {
    sums: Tensor<4>,
    /// `[batch, key_value_heads, features, 1]`
    totals: Tensor<4>,
}

impl Running {
    fn new(key: &Tensor<4>, value: &Tensor<4>, start: Option<LinearState>) -> Self {
        let [batch, heads, _, features] = key.dims();
        let column = [batch, heads, features, 1];
        match start {
            Some(LinearState { sums, totals }) => Self {
                sums,
                totals: totals.reshape(Exactly(column)),
            },
            None => {
                let size = [batch, heads, features, value.dims()[3]];
                let zeros =
                    |size: [usize; 4]| Tensor::<4>::zeros(size, &key.device()).cast(key.dtype());
                Self {
                    sums: zeros(size),
                    totals: zeros(column),
                }
            }
        }
    }

    fn absorb(self, key: Tensor<4>, value: Tensor<4>) -> Self {
        let turned = key.swap_dims(2, 3);
        Self {
            sums: self.sums + turned.clone().matmul(value),
            totals: self.totals + turned.sum_dim(3),
        }
    }

    fn state(self) -> LinearState {
        let [batch, heads, features, _] = self.totals.dims();
        LinearState {
            sums: self.sums.detach(),
            totals: self
                .totals
                .detach()
                .reshape(Exactly([batch, heads, features])),
        }
    }
}

fn in_chunks(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    mask: &Mask,
    state: Option<LinearState>,
) -> LinearAttended {
    let (queries, keys) = (query.dims()[2], key.dims()[2]);
    let mut running = Running::new(&key, &value, state);
    let before = match mask.is_causal() {
        true => keys.saturating_sub(queries),
        false => keys,
    };
    let cut = |x: &Tensor<4>, start: usize, end: usize| x.clone().narrow(2, start, end - start);
    if before > 0 {
        running = running.absorb(cut(&key, 0, before), cut(&value, 0, before));
    }
    if queries == 0 {
        let context = of_chunk(query, &running, None);
        let state = running.state();
        return LinearAttended { context, state };
    }
    let mut parts = Vec::new();
    for first in (0..queries).step_by(CHUNK) {
        let end = queries.min(first + CHUNK);
        let rows = cut(&query, first, end);
        // A query's position is `query + keys - queries`, which may be below zero: the subtraction comes last.
        let place = |query: usize| (query + keys).saturating_sub(queries);
        let (start, stop) = (place(first), place(end));
        if !mask.is_causal() || start == stop {
            parts.push(of_chunk(rows, &running, None));
            continue;
        }
        let shift = end - first - (stop - start);
        let pair = (cut(&key, start, stop), cut(&value, start, stop));
        let seen = Some((pair.clone(), shift));
        parts.push(of_chunk(rows, &running, seen));
        running = running.absorb(pair.0, pair.1);
    }
    LinearAttended {
        context: Tensor::cat(parts, 2),
        state: running.state(),
    }
}

/// The context of some queries: of the keys in the state, and of those at their own positions, of which query `i` sees the
/// first `i + 1 - shift`.
fn of_chunk(
    query: Tensor<4>,
    state: &Running,
    keys: Option<((Tensor<4>, Tensor<4>), usize)>,
) -> Tensor<4> {
    let [batch, heads, queries, features] = query.dims();
    let [_, shared, _, width] = state.sums.dims();
    let grouped = [batch, shared, heads / shared * queries, features];
    let query = query.reshape(Exactly(grouped));
    let mut above = query.clone().matmul(state.sums.clone());
    let mut below = query.clone().matmul(state.totals.clone());
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
            .reshape(Exactly(size))
            .mask_fill(later.expand(Shape::from(size)), 0.0)
            .reshape(Exactly([batch, shared, grouped[2], count]));
        below = below + scores.clone().sum_dim(3);
        above = above + scores.matmul(value);
    }
    let empty = below.clone().equal_scalar(0.0);
    let whole = Shape::from(above.dims());
    let context = above / below.mask_fill(empty.clone(), 1.0);
    context
        .mask_fill(empty.expand(whole), 0.0)
        .reshape(Exactly([batch, heads, queries, width]))
}

/// Where heads hold nothing, all sums are zero or none.
fn of_nothing(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    state: Option<LinearState>,
) -> LinearAttended {
    let [batch, heads, queries, features] = query.dims();
    let [_, shared, keys, _] = key.dims();
    let grouped = [batch, shared, heads / shared * queries, features];
    let weights = query
        .reshape(Exactly(grouped))
        .matmul(key.clone().swap_dims(2, 3))
        .reshape(Exactly([batch, heads, queries, keys]));
    let context = apply_weights(weights, value.clone());
    let running = Running::new(&key, &value, state);
    let state = running.absorb(key, value).state();
    LinearAttended { context, state }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Distribution};

    /// Positive numbers.
    fn rows(heads: usize, length: usize, width: usize) -> Tensor<4> {
        let device = Device::flex();
        device.seed(5);
        Tensor::random([2, heads, length, width], Distribution::Default, &device) + 0.01
    }

    #[test]
    fn a_pass_in_pieces_equals_the_whole() {
        let (query, key, value) = (rows(4, 70, 8), rows(2, 70, 8), rows(2, 70, 5));
        let mask = Mask::causal();
        let attend = |range: std::ops::Range<usize>, state| {
            let cut = |x: &Tensor<4>| x.clone().narrow(2, range.start, range.len());
            linear_attention(cut(&query), cut(&key), cut(&value), &mask, state)
        };
        let whole = attend(0..70, None);
        let (mut parts, mut state) = (Vec::new(), None);
        for range in [0..1, 1..2, 2..67, 67..70] {
            let attended = attend(range, state);
            parts.push(attended.context);
            state = Some(attended.state);
        }
        let context = Tensor::cat(parts, 2);
        assert!(context.all_close(whole.context, Some(1e-5), Some(1e-6)));
        let state = state.unwrap();
        let close = state
            .sums
            .all_close(whole.state.sums, Some(1e-5), Some(1e-6));
        assert!(close);
        let close = state
            .totals
            .all_close(whole.state.totals, Some(1e-5), Some(1e-6));
        assert!(close);
    }
}
