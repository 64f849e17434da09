//! Each fused kernel against the composed operation that it replaces: values, and the gradients of every input.

use std::sync::Arc;

use attentive_testing::{Scale, assert_close};
use burn::tensor::{Device, Distribution, Int, Tensor};

use crate::{
    Activation, BlockPattern, FeatureMap, Mask, NormKind, NormParameters, PartialAttention,
    Purpose, Randomness, RotaryAngles, ScoreBias, Scores, Stabilizer, activate, activated_linear,
    add, add_norm, add_norm_with_sum, attention, attention_weights, attention_with_log_sum_exp,
    cross_entropy, dropout, embedding, feed_forward, gated, linear, linear_attention, linear_qkv,
    norm, norm_with_input, positive_features, random_features, rotary, softmax,
};

thread_local! {
    static COMPOSED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Whether this thread runs the composed operations.
pub(super) fn composed_only() -> bool {
    COMPOSED.get()
}

fn values<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    x.into_data().try_to_vec::<f32>().unwrap()
}

fn random<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// Runs `operation` on the same inputs with and without kernels, and compares the result and all gradients.
fn check<const N: usize, const D: usize, const E: usize>(
    name: &str,
    shapes: [[usize; D]; N],
    operation: impl Fn([Tensor<D>; N], &Device) -> Tensor<E>,
) {
    let device = Device::flex();
    device.seed(7);
    let inputs = shapes.map(|shape| random(shape, &device));
    let run = |composed: bool| {
        COMPOSED.set(composed);
        let device = device.clone().autodiff();
        let leaves = inputs
            .clone()
            .map(|input| Tensor::from_inner(input).require_grad());
        let output = operation(leaves.clone(), &device);
        // Weights that differ between elements, so that no mistake cancels out.
        let count = output.shape().num_elements();
        let weights = Tensor::<1, Int>::arange(0..count as i64, &device).float();
        let weights = (weights * 0.7).sin().reshape(output.dims());
        let gradients = (output.clone() * weights).sum().backward();
        COMPOSED.set(false);
        let gradients = leaves.map(|leaf| leaf.grad(&gradients));
        (output.inner(), gradients)
    };
    let ((fused, fused_gradients), (composed, composed_gradients)) = (run(false), run(true));
    let close = |what: &str, ours: &[f32], expected: &[f32]| {
        let what = format!("{name}: {what}");
        assert_close(what, ours, expected, Scale::LargestOr(1.0), 2e-5);
    };
    close("value", &values(fused), &values(composed));
    for (i, (a, b)) in fused_gradients
        .into_iter()
        .zip(composed_gradients)
        .enumerate()
    {
        let (Some(a), Some(b)) = (a, b) else {
            panic!("{name}: input {i} has no gradient");
        };
        close(&format!("gradient {i}"), &values(a), &values(b));
    }
}

const ACTIVATIONS: [Activation; 5] = [
    Activation::Relu,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Silu,
    Activation::Sigmoid,
];

fn row(x: Tensor<2>) -> Tensor<1> {
    let width = x.dims()[1];
    x.reshape([width])
}

/// Backward passes overwrite saved tensors, which other owners must not see.
#[test]
fn shared_storage_is_copied_before_it_is_written() {
    let shared = super::tensor(vec![1.0; 6], [2, 3]);
    let mut ours = super::into_contiguous(shared.clone());
    ours.storage_mut::<f32>().fill(2.0);
    assert_eq!(super::data(&shared), [1.0; 6]);
    assert_eq!(super::data(&ours), [2.0; 6]);
    let address = super::data(&shared).as_ptr();
    let mut ours = super::into_contiguous(shared);
    ours.storage_mut::<f32>().fill(3.0);
    assert_eq!(super::data(&ours).as_ptr(), address, "no longer shared");
}

#[test]
fn linear_layers() {
    check("linear", [[7, 5], [9, 5]], |[x, w], _| linear(x, w, None));
    check(
        "linear with bias",
        [[7, 5], [9, 5], [1, 9]],
        |[x, w, b], _| linear(x, w, Some(row(b))),
    );
    check("one row", [[1, 33], [65, 33], [1, 65]], |[x, w, b], _| {
        linear(x, w, Some(row(b)))
    });
}

#[test]
fn several_projections_of_one_input() {
    check(
        "query, key and value projections",
        [[7, 5], [9, 5], [9, 5], [9, 5], [1, 9]],
        |[x, a, b, c, bias], _| {
            let projections = [(a, None), (b, Some(row(bias))), (c, None)];
            let [a, b, c] = linear_qkv(x, projections);
            a * b + c
        },
    );
    for kind in ACTIVATIONS {
        check(
            &format!("plain feed-forward, {kind:?}"),
            [[7, 5], [9, 5], [1, 9], [4, 9], [1, 4]],
            |[x, up, up_bias, down, bias], _| {
                let (up, down) = ((up, Some(row(up_bias))), (down, Some(row(bias))));
                feed_forward(kind, x, None, up, down)
            },
        );
        check(
            &format!("gated feed-forward, {kind:?}"),
            [[7, 5], [9, 5], [1, 9], [9, 5], [4, 9]],
            |[x, gate, bias, up, down], _| {
                let gate = (gate, Some(row(bias)));
                feed_forward(kind, x, Some(gate), (up, None), (down, None))
            },
        );
        check(
            &format!("linear, then {kind:?}"),
            [[7, 5], [9, 5], [1, 9]],
            |[x, weight, bias], _| activated_linear(kind, x, weight, Some(row(bias))),
        );
    }
}

#[test]
fn an_unused_output_has_no_gradient() {
    check(
        "query and value",
        [[7, 5], [9, 5], [9, 5]],
        |[x, a, c], _| {
            let [a, _, c] = linear_qkv(x, [(a.clone(), None), (a, None), (c, None)]);
            a * c
        },
    );
    check("the sum alone", [[6, 19], [1, 19]], |[x, w], _| {
        let operands = operands(NormKind::Rms, row(w.clone()), None);
        let [x, _] = norm_with_input(x, operands);
        x * w
    });
}

fn operands(kind: NormKind, weight: Tensor<1>, bias: Option<Tensor<1>>) -> NormParameters {
    NormParameters {
        kind,
        weight,
        bias,
        epsilon: 1e-5,
    }
}

#[test]
fn norms() {
    for kind in [NormKind::Layer, NormKind::Rms] {
        check(
            &format!("{kind:?} norm"),
            [[6, 19], [1, 19]],
            |[x, w], _| norm(x, operands(kind, row(w), None)),
        );
        check(
            &format!("{kind:?} norm with its input"),
            [[6, 19], [1, 19]],
            |[x, w], _| {
                let [x, y] = norm_with_input(x, operands(kind, row(w), None));
                x.clone() * y + x
            },
        );
        check(
            &format!("{kind:?} norm of a sum"),
            [[6, 19], [6, 19], [1, 19]],
            |[x, branch, w], _| add_norm(x, branch, operands(kind, row(w), None)),
        );
        check(
            &format!("{kind:?} norm of a sum, with the sum"),
            [[6, 19], [6, 19], [1, 19]],
            |[x, branch, w], _| {
                let [sum, y] = add_norm_with_sum(x, branch, operands(kind, row(w), None));
                sum.clone() * y + sum
            },
        );
        check(
            &format!("{kind:?} norm with a bias"),
            [[6, 19], [1, 19], [1, 19]],
            |[x, w, b], _| norm(x, operands(kind, row(w), Some(row(b)))),
        );
        check(
            &format!("{kind:?} norm of a sum with a bias"),
            [[6, 19], [6, 19], [1, 19], [1, 19]],
            |[x, branch, w, b], _| add_norm(x, branch, operands(kind, row(w), Some(row(b)))),
        );
    }
}

#[test]
fn activations() {
    for kind in ACTIVATIONS {
        check(&format!("{kind:?}"), [[5, 13]], |[x], _| activate(kind, x));
        check(
            &format!("gated {kind:?}"),
            [[5, 13], [5, 13]],
            |[gate, up], _| gated(kind, gate, up),
        );
    }
}

#[test]
fn attentions() {
    let lists = [vec![0, 1], vec![1], vec![0, 2, 4], vec![], vec![3, 4]];
    let blocks = Arc::new(BlockPattern::new(2, vec![lists.to_vec()]));
    let masks = [
        ("none", Mask::none()),
        ("causal", Mask::causal()),
        ("padded", Mask::causal().with_keys(vec![0..5, 4..9])),
        ("window", Mask::causal().with_window(3)),
        ("window both ways", Mask::none().with_window(2)),
        ("blocks", Mask::none().with_blocks(blocks.clone())),
        (
            "causal blocks with padding",
            Mask::causal()
                .with_blocks(blocks)
                .with_keys(vec![0..5, 4..9]),
        ),
    ];
    for (name, mask) in masks {
        let scores = Scores::new(mask, 0.4);
        check(
            name,
            [[2, 4, 9, 6], [2, 2, 9, 6], [2, 2, 9, 6]],
            |[q, k, v], _| attention(q, k, v, &scores, 0.0, None),
        );
        check(
            &format!("{name}, the weights"),
            [[2, 4, 9, 6], [2, 2, 9, 6], [1, 4, 1, 9]],
            |[q, k, bias], _| {
                let scores = Scores {
                    bias: Some(ScoreBias::Keys(bias.reshape([1, 4, 9]))),
                    ..scores.clone()
                };
                attention_weights(q, k, &scores)
            },
        );
        check(
            &format!("{name} with log-sum-exp"),
            [[2, 4, 9, 6], [2, 2, 9, 6], [2, 2, 9, 6]],
            |[q, k, v], _| {
                let PartialAttention {
                    context,
                    log_sum_exp,
                } = attention_with_log_sum_exp(q, k, v, &scores, 0.0, None);
                // A row without visible keys has no finite log-sum-exp.
                let empty = log_sum_exp.clone().equal_scalar(f32::NEG_INFINITY);
                context * log_sum_exp.mask_fill(empty, 0.0).unsqueeze_dim(3)
            },
        );
        check(
            &format!("{name} from projections"),
            [[2, 9, 4, 6], [2, 9, 2, 6], [2, 9, 2, 6]],
            |heads, _| {
                let [q, k, v] = heads.map(|it| it.swap_dims(1, 2));
                let randomness = &mut Randomness::new(Purpose::Dropout, 3, 4);
                attention(q, k, v, &scores, 0.3, Some(randomness)).swap_dims(1, 2)
            },
        );
        check(
            &format!("{name} with a bias"),
            [[2, 4, 9, 9], [2, 4, 9, 9], [2, 4, 9, 9], [1, 4, 9, 9]],
            |[q, k, v, bias], _| {
                let scores = Scores {
                    bias: Some(ScoreBias::Pairs(bias)),
                    ..scores.clone()
                };
                attention(q, k, v, &scores, 0.0, None)
            },
        );
        check(
            &format!("{name} with a bias of keys"),
            [[2, 4, 9, 9], [2, 2, 9, 9], [2, 2, 9, 9], [2, 4, 1, 9]],
            |[q, k, v, bias], _| {
                let scores = Scores {
                    bias: Some(ScoreBias::Keys(bias.reshape([2, 4, 9]))),
                    ..scores.clone()
                };
                attention(q, k, v, &scores, 0.0, None)
            },
        );
        check(
            &format!("{name} with a bias of distances"),
            [[2, 4, 9, 9], [2, 2, 9, 9], [2, 2, 9, 9], [1, 1, 4, 17]],
            |[q, k, v, bias], _| {
                let scores = Scores {
                    bias: Some(ScoreBias::Distances(bias.reshape([4, 17]))),
                    ..scores.clone()
                };
                attention(q, k, v, &scores, 0.0, None)
            },
        );
    }
}

#[test]
fn the_weights_are_the_composed_ones_to_a_millionth() {
    let device = Device::flex();
    device.seed(5);
    let (query, key) = (
        random([2, 4, 131, 24], &device),
        random([2, 2, 131, 24], &device),
    );
    for mask in [Mask::none(), Mask::causal().with_window(50)] {
        let weights = |composed: bool| {
            COMPOSED.set(composed);
            let scores = Scores::new(mask.clone(), 0.2);
            let weights = attention_weights(query.clone(), key.clone(), &scores);
            COMPOSED.set(false);
            values(weights)
        };
        let [fused, composed] = [false, true].map(weights);
        assert_close("weights", &fused, &composed, Scale::One, 1e-6);
    }
}

#[test]
fn linear_attentions() {
    let masks = [
        ("none", Mask::none()),
        ("causal", Mask::causal()),
        ("padded", Mask::causal().with_keys(vec![0..50, 40..70])),
    ];
    for (name, mask) in masks {
        check(
            &format!("linear attention, {name}"),
            [[2, 4, 70, 6], [2, 2, 70, 6], [2, 2, 70, 6]],
            |[q, k, v], _| {
                let [q, k] = [q, k].map(|it| positive_features(it, FeatureMap::EluPlusOne));
                linear_attention(q, k, v, &mask, None).context
            },
        );
        check(
            &format!("linear attention from a state, {name}"),
            [[2, 70, 4, 6], [2, 70, 2, 6], [2, 70, 2, 6]],
            |heads, _| {
                let [q, k, v] = heads.map(|it| it.swap_dims(1, 2));
                let [q, k] = [q, k].map(|it| positive_features(it, FeatureMap::Softplus));
                let before = linear_attention(q.clone(), k.clone(), v.clone(), &mask, None);
                let attended = linear_attention(q, k, v, &mask, Some(before.state));
                attended.context.swap_dims(1, 2)
            },
        );
    }
}

#[test]
fn features() {
    for map in [
        FeatureMap::EluPlusOne,
        FeatureMap::Relu,
        FeatureMap::Exp,
        FeatureMap::Softplus,
    ] {
        check(&format!("{map:?}"), [[2, 3, 5, 7]], |[x], _| {
            positive_features(x, map)
        });
    }
    for stabilizer in [
        Stabilizer::RowMaximum,
        Stabilizer::KeysMaximum,
        Stabilizer::Constant,
    ] {
        check(
            &format!("random features, {stabilizer:?}"),
            [[2, 3, 5, 8], [1, 1, 11, 8]],
            |[x, projection], _| random_features(x, projection.reshape([11, 8]), stabilizer, 1e-4),
        );
    }
}

#[test]
fn the_rest() {
    check("rotary", [[2, 3, 5, 8]], |[x], device| {
        let positions = Tensor::<2, Int>::from_ints([[0, 1, 2, 3, 4], [7, 7, 8, 9, 30]], device);
        let frequencies = [1.0, 0.3, 0.1, 0.03];
        rotary(
            x,
            &RotaryAngles::from_frequencies(positions, &frequencies, 1.0),
        )
    });
    check("embedding", [[6, 4]], |[table], device| {
        embedding(table, Tensor::from_ints([[0, 5, 5], [2, 0, 5]], device))
    });
    check("sum", [[2, 3], [2, 3]], |[x, y], _| add(x.clone(), y) * x);
    check("softmax", [[4, 9]], |[x], _| softmax(x));
    check("dropout", [[40, 50]], |[x], _| {
        dropout(x, 0.2, Some(&mut Randomness::new(Purpose::Dropout, 1, 2)))
    });
    for smoothing in [0.0, 0.1] {
        check("cross-entropy", [[5, 11]], |[logits], device| {
            cross_entropy(
                logits,
                Tensor::from_ints([3, -100, 0, 10, 3], device),
                smoothing,
            )
        });
    }
}
