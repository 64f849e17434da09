//! Edge cases: sizes of zero, more queries than keys, logits far from zero, and the share that dropout keeps.

use attentive_tensor::{
    Activation, Device, Int, Mask, NormKind, NormParameters, Scores, Tensor, activate, add,
    apply_weights, attention, attention_weights, cross_entropy, dropout, embedding, feed_forward,
    linear, linear_qkv, norm, softmax,
};
use attentive_testing::{Scale, VALUES, assert_close, assert_near, ulps};

use crate::case::randomness;
use crate::generated;
use crate::runner::{self, Layout, Tracked, values};

fn ones<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::ones(shape, device).require_grad()
}

#[test]
fn dropout_keeps_its_share_and_the_gradient_has_the_same_mask() {
    let device = Device::flex().autodiff();
    for probability in [0.1, 0.5, 0.9] {
        let x = ones([255, 257], &device);
        let y = dropout(x.clone(), probability, Some(&mut randomness()));
        let gradients = y.clone().sum().backward();
        let (y, gradient) = (values(y), values(x.grad(&gradients).unwrap()));
        // Forward and backward multiply by the mask: of ones, both are the mask.
        assert_eq!(y, gradient, "dropout of {probability}");
        let count = y.len() as f64;
        let kept = y.iter().filter(|it| **it != 0.0).count() as f64 / count;
        let std = (probability * (1.0 - probability) / count).sqrt();
        assert_near("kept", kept, 1.0 - probability, Scale::Of(std), 4.0);
        let mean = y.iter().sum::<f64>() / count;
        let std_of_mean = std / (1.0 - probability);
        assert_near("mean", mean, 1.0, Scale::Of(std_of_mean), 4.0);
    }
}

#[test]
fn without_randomness_or_probability_nothing_is_dropped() {
    let device = Device::flex();
    let x = || Tensor::<2>::ones([7, 13], &device) * 3.0;
    assert_eq!(values(dropout(x(), 0.5, None)), values(x()));
    let mut randomness = randomness();
    assert_eq!(
        values(dropout(x(), 0.0, Some(&mut randomness))),
        values(x())
    );
}

#[test]
fn queries_without_keys_get_zeros() {
    let device = Device::flex().autodiff();
    let [query, key, value] =
        [[2, 4, 3, 5], [2, 2, 0, 5], [2, 2, 0, 7]].map(|shape| ones(shape, &device));
    let scores = Scores::new(Mask::none(), 1.0);
    let context = attention(query.clone(), key, value, &scores, 0.0, None);
    assert_eq!(context.dims(), [2, 4, 3, 7]);
    let gradients = context.clone().sum().backward();
    assert!(values(context).iter().all(|it| *it == 0.0));
    let gradient = values(query.grad(&gradients).unwrap());
    assert!(gradient.iter().all(|it| *it == 0.0));
}

#[test]
fn no_queries_and_no_sequences_give_nothing_and_no_gradient() {
    let device = Device::flex().autodiff();
    for (query, key) in [([2, 4, 0, 5], [2, 2, 3, 5]), ([0, 4, 3, 5], [0, 2, 3, 5])] {
        let (query, key) = (ones(query, &device), ones(key, &device));
        let value = ones(key.dims(), &device);
        let scores = Scores::new(Mask::causal(), 1.0);
        let context = attention(query.clone(), key.clone(), value, &scores, 0.0, None);
        assert_eq!(context.dims(), query.dims());
        let gradients = context.sum().backward();
        let gradient = values(key.grad(&gradients).unwrap());
        assert_eq!(gradient, vec![0.0; gradient.len()]);
    }
}

#[test]
fn no_rows_give_no_rows_and_parameters_a_gradient_of_zeros() {
    let device = Device::flex().autodiff();
    let x = ones([0, 5], &device);
    let (weight, bias) = (ones([7, 5], &device), ones([7], &device));
    let layer = (weight.clone(), Some(bias.clone()));
    let y = linear(x.clone(), weight.clone(), Some(bias.clone()));
    let (down, down_bias) = (ones([7, 7], &device), ones([7], &device));
    let last = || (down.clone(), Some(down_bias.clone()));
    let silu = Activation::Silu;
    let z = feed_forward(silu, x.clone(), Some(layer.clone()), layer.clone(), last());
    let z = z + feed_forward(silu, x.clone(), None, layer, last());
    let operands = NormParameters {
        kind: NormKind::Layer,
        weight: bias.clone(),
        bias: None,
        epsilon: 1e-5,
    };
    let y = softmax(activate(Activation::Gelu, norm(y + z, operands)));
    let loss = cross_entropy(y, Tensor::<1, Int>::zeros([0], &device), 0.1);
    assert_eq!(values(loss.clone()), [0.0]);
    let gradients = loss.backward();
    let gradient = values(weight.grad(&gradients).unwrap());
    assert_eq!(gradient, vec![0.0; 35]);
    let gradient = values(down.grad(&gradients).unwrap());
    assert_eq!(gradient, vec![0.0; 49]);
    for bias in [bias, down_bias] {
        let gradient = values(bias.grad(&gradients).unwrap());
        assert_eq!(gradient, vec![0.0; 7]);
    }
}

#[test]
fn no_ids_give_no_rows() {
    let device = Device::flex().autodiff();
    let table = ones([3, 5], &device);
    let rows = embedding(table.clone(), Tensor::<2, Int>::zeros([1, 0], &device));
    assert_eq!(rows.dims(), [1, 0, 5]);
    let gradients = rows.sum().backward();
    assert_eq!(values(table.grad(&gradients).unwrap()), vec![0.0; 15]);
}

/// Values that differ from each other.
fn waves<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    let device = Device::flex();
    let count = shape.iter().product::<usize>() as i64;
    let values = Tensor::<1, Int>::arange(0..count, &device).float();
    (values * 0.7).sin().reshape(shape)
}

#[test]
fn a_root_mean_square_norm_adds_its_bias() {
    let normed = |bias: Option<Tensor<1>>| {
        let operands = NormParameters {
            kind: NormKind::Rms,
            weight: waves([5]),
            bias,
            epsilon: 1e-5,
        };
        values(norm(waves([2, 5]), operands))
    };
    let shift = Tensor::<1>::ones([5], &Device::flex()) * 10.0;
    let expected: Vec<f64> = normed(None).into_iter().map(|it| it + 10.0).collect();
    let (shifted, scale) = (normed(Some(shift)), Scale::Largest);
    assert_close("with a bias", &shifted, &expected, scale, ulps(1));
}

/// The visible keys of each query; checks that `attention` and `attention_weights` agree about them.
fn visible_keys(mask: Mask, queries: usize, keys: usize) -> Vec<Vec<usize>> {
    let scores = Scores::new(mask, 0.5);
    let [query, key, value] = [queries, keys, keys].map(|length| waves([1, 1, length, 3]));
    let weights = attention_weights(query.clone(), key.clone(), &scores);
    let applied = values(apply_weights(weights.clone(), value.clone()));
    let context = values(attention(query, key, value, &scores, 0.0, None));
    assert_close("context", &context, &applied, Scale::One, VALUES);
    let visible = |row: &[f64]| (0..keys).filter(|key| row[*key] > 0.0).collect();
    values(weights).chunks(keys).map(visible).collect()
}

/// Of five queries and three keys, the queries are at positions -2, -1, 0, 1 and 2.
#[test]
fn queries_before_the_first_key_see_what_is_near_and_not_later() {
    let none = || vec![];
    assert_eq!(
        visible_keys(Mask::none().with_window(1), 5, 3),
        [none(), none(), vec![0], vec![1], vec![2]]
    );
    assert_eq!(
        visible_keys(Mask::none().with_window(2), 5, 3),
        [none(), vec![0], vec![0, 1], vec![0, 1, 2], vec![1, 2]]
    );
    assert_eq!(
        visible_keys(Mask::causal(), 5, 3),
        [none(), none(), vec![0], vec![0, 1], vec![0, 1, 2]]
    );
    assert_eq!(
        visible_keys(Mask::causal().with_window(2), 5, 3),
        [none(), none(), vec![0], vec![0, 1], vec![1, 2]]
    );
    let widest = Mask::causal().with_window(usize::MAX);
    assert_eq!(
        visible_keys(widest, 5, 3),
        visible_keys(Mask::causal(), 5, 3)
    );
    assert_eq!(
        visible_keys(Mask::none().with_window(0), 2, 3),
        [none(), none()]
    );
}

/// A constant added to all logits of a row changes nothing. PyTorch's f32 is within 1e-7 of that, since it subtracts the
/// largest logit first.
#[test]
fn cross_entropy_far_from_zero_is_as_exact_as_near_it() {
    let gradient = |shift: f64| {
        // Sixteenths, so that the shift is exact.
        let logits = (waves([3, 11]) * 48.0).round() / 16.0 + shift;
        let logits = Tensor::from_inner(logits).require_grad();
        let targets = Tensor::from_ints([3, 0, 10], &logits.device());
        let loss = cross_entropy(logits.clone(), targets, 0.1);
        let gradients = loss.clone().backward();
        [values(loss), values(logits.grad(&gradients).unwrap())]
    };
    for far in [500.0, -600.0, 30_000.0] {
        let what = format!("shifted by {far}");
        for (near, far) in gradient(0.0).iter().zip(gradient(far)) {
            assert_close(&what, &far, near, Scale::One, 1e-7);
        }
    }
}

/// Recycled buffers hold stale values. The gradients of zeros here are large enough to come from the pool.
#[test]
fn a_gradient_of_zeros_is_not_stale_memory() {
    let device = Device::flex().autodiff();
    let weight = ones([64, 64], &device);
    let bias = ones([4096], &device);
    // A sum acquires no buffer and recycles that of its first term.
    let plain = Device::flex();
    let recycle_ones = || {
        for _ in 0..4 {
            let ones = || Tensor::<1>::ones([4096], &plain);
            add(ones(), ones());
        }
    };
    let zeros = |what: &str, loss: Tensor<1>, leaf: &Tensor<2>| {
        recycle_ones();
        let gradient = values(leaf.grad(&loss.backward()).unwrap());
        assert!(gradient.iter().all(|it| *it == 0.0), "{what}");
    };
    let nothing = ones([0, 64], &device);
    zeros(
        "linear",
        linear(nothing.clone(), weight.clone(), None).sum(),
        &weight,
    );
    let layer = || (weight.clone(), None);
    let silu = Activation::Silu;
    for gate in [None, Some(layer())] {
        let y = feed_forward(silu, nothing.clone(), gate, layer(), layer());
        zeros("feed forward", y.sum(), &weight);
    }
    // The output is empty, so the gradient is zero.
    let empty_down = || (Tensor::ones([0, 64], &device), None);
    for gate in [None, Some(layer())] {
        recycle_ones();
        let x = ones([64, 64], &device);
        let y = feed_forward(silu, x.clone(), gate, layer(), empty_down());
        let gradients = y.sum().backward();
        for leaf in [&x, &weight] {
            let gradient = values(leaf.grad(&gradients).unwrap());
            assert!(
                gradient.iter().all(|it| *it == 0.0),
                "feed forward to nothing"
            );
        }
    }
    let [query, ..] = linear_qkv(nothing, [layer(), layer(), layer()]);
    zeros("query projection", query.sum(), &weight);
    let ids = Tensor::<2, Int>::zeros([1, 0], &device);
    zeros("embedding", embedding(weight.clone(), ids).sum(), &weight);
    let operands = NormParameters {
        kind: NormKind::Rms,
        weight: weight.clone().reshape([4096]),
        bias: Some(bias),
        epsilon: 1e-5,
    };
    zeros(
        "norm",
        norm(ones([0, 4096], &device), operands).sum(),
        &weight,
    );
    let key = || weight.clone().reshape([1, 1, 64, 64]);
    let scores = Scores::new(Mask::causal(), 1.0);
    let query = ones([1, 1, 0, 64], &device);
    let context = attention(query, key(), key(), &scores, 0.0, None);
    zeros("attention without queries", context.sum(), &weight);
    let unseen = Scores::new(Mask::none().with_window(0), 1.0);
    let query = ones([1, 1, 64, 64], &device);
    recycle_ones();
    let context = attention(query, key(), key(), &unseen, 0.0, None);
    assert!(values(context.clone()).iter().all(|it| *it == 0.0));
    zeros("attention without visible keys", context.sum(), &weight);
    recycle_ones();
    let [query, nothing] = [[1, 1, 64, 64], [1, 1, 0, 64]].map(|shape| ones(shape, &device));
    let scores = Scores::new(Mask::none(), 1.0);
    let context = attention(query, nothing.clone(), nothing, &scores, 0.0, None);
    assert!(values(context).iter().all(|it| *it == 0.0));
}

/// Their values and gradients are checked with those of all other cases.
#[test]
fn an_axis_of_size_zero_stays_one() {
    for (case, shape) in generated::empty() {
        let ours = runner::run(&case, Layout::Contiguous, Tracked::All);
        assert_eq!(ours.outputs.last().unwrap().shape, shape, "{}", case.name);
    }
}
