//! The edges that no table of cases shows: sizes of zero, and what dropout keeps.

use attentive_tensor::{
    Activation, Device, Int, Mask, NormKind, NormOperands, Scores, Tensor, activate, attention,
    cross_entropy, dropout, embedding, gated_linear, linear, norm, softmax,
};

use crate::case::randomness;
use crate::ours::numbers;

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
        let (y, slopes) = (numbers(y), numbers(x.grad(&gradients).unwrap()));
        // The operation multiplies by its mask, and so does its backward pass: of ones, both are the mask.
        assert_eq!(y, slopes, "dropout of {probability}");
        let count = y.len() as f64;
        let kept = y.iter().filter(|it| **it != 0.0).count() as f64 / count;
        let deviation = (probability * (1.0 - probability) / count).sqrt();
        assert!(
            (kept - (1.0 - probability)).abs() < 4.0 * deviation,
            "{kept} kept"
        );
        let mean = y.iter().sum::<f64>() / count;
        assert!(
            (mean - 1.0).abs() < 4.0 * deviation / (1.0 - probability),
            "mean {mean}"
        );
    }
}

#[test]
fn without_randomness_or_probability_nothing_is_dropped() {
    let device = Device::flex();
    let x = || Tensor::<2>::ones([7, 13], &device) * 3.0;
    assert_eq!(numbers(dropout(x(), 0.5, None)), numbers(x()));
    let mut randomness = randomness();
    assert_eq!(
        numbers(dropout(x(), 0.0, Some(&mut randomness))),
        numbers(x())
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
    assert!(numbers(context).iter().all(|it| *it == 0.0));
    let slopes = numbers(query.grad(&gradients).unwrap());
    assert!(slopes.iter().all(|it| *it == 0.0));
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
        let slopes = numbers(key.grad(&gradients).unwrap());
        assert_eq!(slopes, vec![0.0; slopes.len()]);
    }
}

#[test]
fn no_rows_give_no_rows_and_parameters_a_gradient_of_zeros() {
    let device = Device::flex().autodiff();
    let x = ones([0, 5], &device);
    let (weight, bias) = (ones([7, 5], &device), ones([7], &device));
    let map = (weight.clone(), Some(bias.clone()));
    let y = linear(x.clone(), weight.clone(), Some(bias.clone()));
    let z = gated_linear(Activation::Silu, x.clone(), map.clone(), map);
    let operands = NormOperands {
        kind: NormKind::Layer,
        weight: bias.clone(),
        bias: None,
        epsilon: 1e-5,
    };
    let y = softmax(activate(Activation::Gelu, norm(y + z, operands)));
    let loss = cross_entropy(y, Tensor::<1, Int>::zeros([0], &device), 0.1);
    assert_eq!(numbers(loss.clone()), [0.0]);
    let gradients = loss.backward();
    let slopes = numbers(weight.grad(&gradients).unwrap());
    assert_eq!(slopes, vec![0.0; 35]);
    let slopes = numbers(bias.grad(&gradients).unwrap());
    assert_eq!(slopes, vec![0.0; 7]);
}

#[test]
fn no_ids_give_no_rows() {
    let device = Device::flex().autodiff();
    let table = ones([3, 5], &device);
    let rows = embedding(table.clone(), Tensor::<2, Int>::zeros([1, 0], &device));
    assert_eq!(rows.dims(), [1, 0, 5]);
    let gradients = rows.sum().backward();
    assert_eq!(numbers(table.grad(&gradients).unwrap()), vec![0.0; 15]);
}
