//! The checks, and the suite that runs them over every example × every role that builds.

use std::panic::{AssertUnwindSafe, catch_unwind};

use attentive_model::attention::{AttentionConfig, CacheSize, Memory, Role};
use attentive_model::parameters;
use attentive_testing::{Scale, VALUES, assert_close, assert_near, ulps_of_sum};
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor};

use crate::examples::{Example, Gradient, LaterTokens, examples};
use crate::test_layer::{
    BATCH, LENGTH, MEMORY, Observed, ROLES, TestLayer, WIDTH, assert_differs, assert_same, noise,
    values,
};

/// Returns whether the check applies to the layer.
type Check = fn(&Example, &TestLayer) -> bool;

const CHECKS: &[(&str, Check)] = &[
    ("shapes", shapes),
    ("gradients", gradients),
    ("causality", causality),
    ("padding", padding),
    ("fully padded", fully_padded),
    ("cache", cache),
    ("cache with padding", cache_with_padding),
    ("weights", weights),
    ("dropout", dropout),
];

/// All failures are reported together, one line per example, role and check.
#[test]
fn every_kind_in_every_role_that_builds_holds_to_the_contract() {
    let (mut layers, mut checks, mut refused) = (0, 0, 0);
    let mut failures = Vec::new();
    for example in examples() {
        for role in ROLES {
            let about = format!("{}, {role:?}", example.name);
            let build = || {
                let config: AttentionConfig = serde_json::from_str(example.config).unwrap();
                TestLayer::new(&config, role, &Device::flex())
            };
            let layer = match catch_unwind(build) {
                Ok(Ok(layer)) => layer,
                Ok(Err(_)) => {
                    refused += 1;
                    continue;
                }
                Err(panic) => {
                    failures.push(format!("{about}, building: {}", message(&*panic)));
                    continue;
                }
            };
            layers += 1;
            for (name, check) in CHECKS {
                match catch_unwind(AssertUnwindSafe(|| check(example, &layer))) {
                    Ok(applies) => checks += usize::from(applies),
                    Err(panic) => failures.push(format!("{about}, {name}: {}", message(&*panic))),
                }
            }
        }
    }
    println!("{layers} layers, {checks} checks; {refused} pairs of example and role are refused");
    assert!(
        failures.is_empty(),
        "{} checks failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(layers > examples().len());
}

/// The message of a panic.
fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(message), _) => message,
        (None, Some(message)) => message,
        (None, None) => "a panic without a message",
    }
}

fn shapes(_: &Example, layer: &TestLayer) -> bool {
    for (batch, length) in [(BATCH, LENGTH), (1, 1), (3, 24), (0, 5)] {
        let device = Device::flex();
        let x = noise([batch, length, WIDTH], 1, &device);
        let memory = (layer.role == Role::Cross)
            .then(|| Memory::new(noise([batch, MEMORY, WIDTH], 2, &device)));
        let output = layer.run(x, memory, &mut Default::default());
        assert_eq!(output.dims(), [batch, length, WIDTH], "the shape");
        assert!(
            values(output).iter().all(|it| it.is_finite()),
            "values are not finite at {batch} × {length}"
        );
    }
    true
}

/// The directional derivatives, of the input and of each parameter.
fn gradients(example: &Example, layer: &TestLayer) -> bool {
    if example.gradient == Gradient::StraightThrough {
        return false;
    }
    let plain = Device::flex();
    let autodiff = Device::flex().autodiff();
    let tracked = TestLayer::new(&layer.config, layer.role, &autodiff).unwrap();
    let x = noise([BATCH, LENGTH, WIDTH], 3, &autodiff).require_grad();
    let upstream = |device: &Device| noise([BATCH, LENGTH, WIDTH], 4, device);
    let loss = (tracked.output(x.clone()) * upstream(&autodiff)).sum();
    let gradients = loss.backward();

    let direction = noise([BATCH, LENGTH, WIDTH], 6, &plain);
    let derivative: f32 = {
        // Without a gradient, the output is a step function of the input.
        let gradient = x.grad(&gradients);
        gradient.map_or(0.0, |gradient| {
            (gradient * direction.clone()).sum().into_scalar()
        })
    };
    let start = noise([BATCH, LENGTH, WIDTH], 3, &plain);
    let loss = |step: f32| -> f64 {
        let moved = start.clone() + direction.clone() * step;
        let output = layer.output(moved) * upstream(&plain);
        values(output).into_iter().map(f64::from).sum()
    };
    check_derivative(derivative, loss, "the input");

    let mut derivatives = DirectionalDerivatives {
        gradients: &gradients,
        found: Vec::new(),
    };
    let _ = tracked.layer.clone().map(&mut derivatives);
    let parameters = parameters(&layer.layer);
    assert_eq!(parameters.len(), derivatives.found.len(), "parameters");
    for (index, (parameter, derivative)) in parameters.iter().zip(derivatives.found).enumerate() {
        let Some(derivative) = derivative else {
            continue;
        };
        let loss = |step: f32| -> f64 {
            let mover = &mut MoveParameter {
                step,
                after: Some(index),
            };
            let moved = TestLayer {
                layer: layer.layer.clone().map(mover),
                config: layer.config.clone(),
                role: layer.role,
            };
            let output = moved.output(start.clone()) * upstream(&plain);
            values(output).into_iter().map(f64::from).sum()
        };
        check_derivative(derivative, loss, &parameter.name);
    }
    true
}

/// The smaller step of finite differences.
const STEP: f32 = 2e-3;

/// Compares a derivative with central differences of two steps, extrapolated to remove the quadratic error (Richardson).
///
/// Four standard deviations of an output's rounding error are at most four times `ulps_of_sum(4 * 24)` ([`assert_same`]). The loss is the
/// sum of the outputs times noise of variance one: its error grows with the square root of their number. In the extrapolation
/// `2/3 (loss(h) - loss(-h)) / h - 1/12 (loss(2h) - loss(-2h)) / h` the errors of four losses add up, as roots of sums of squares, to
/// `0.95 / h` times that of one. Next to these, which are divided by a step, the gradient's own are small. The error that the
/// extrapolation leaves is of a higher order than the one that it removes, a third of the distance between the differences.
fn check_derivative(derivative: f32, loss: impl Fn(f32) -> f64, of: &str) {
    let difference = |step: f32| (loss(step) - loss(-step)) / (2.0 * f64::from(step));
    let [near, far] = [STEP, 2.0 * STEP].map(difference);
    let expected = (4.0 * near - far) / 3.0;
    let outputs = (BATCH * LENGTH * WIDTH) as f64;
    let rounding = 4.0 * ulps_of_sum(4 * 24) * outputs.sqrt() / f64::from(STEP);
    let bound = rounding + (near - far).abs();
    let what = format!("the derivative of {of}");
    assert_near(what, derivative, expected, Scale::One, bound);
}

/// Collects the sum of gradient times direction of each parameter; none where it is not trained.
struct DirectionalDerivatives<'g> {
    gradients: &'g burn::tensor::Gradients,
    found: Vec<Option<f32>>,
}

impl ModuleMapper for DirectionalDerivatives<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let tensor = param.val();
        self.found.push(tensor.is_require_grad().then(|| {
            tensor.grad(self.gradients).map_or(0.0, |gradient| {
                let direction = noise(tensor.dims(), DIRECTION, &Device::flex());
                (gradient * direction).sum().into_scalar::<f32>()
            })
        }));
        param
    }
}

/// Moves the parameter after this many others along its direction.
struct MoveParameter {
    step: f32,
    /// None after the move.
    after: Option<usize>,
}

/// The seed of the direction in which a parameter moves.
const DIRECTION: u64 = 20;

impl ModuleMapper for MoveParameter {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let after = self.after;
        self.after = after.and_then(|after| after.checked_sub(1));
        if after != Some(0) {
            return param;
        }
        let step = self.step;
        param.map(|tensor| {
            let direction = noise(tensor.dims(), DIRECTION, &tensor.device());
            tensor + direction * step
        })
    }
}

fn causality(example: &Example, layer: &TestLayer) -> bool {
    if layer.role != Role::Causal {
        return false;
    }
    let device = Device::flex();
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device);
    for kept in [1, 4, LENGTH - 1] {
        let late = LENGTH - kept;
        let later = x.clone().narrow(1, kept, late);
        let later = match example.later_tokens {
            LaterTokens::Replaced => noise([BATCH, late, WIDTH], 9, &device),
            LaterTokens::Scaled => later * 2.0,
        };
        let changed = Tensor::cat(vec![x.clone().narrow(1, 0, kept), later], 1);
        let (one, other) = (layer.output(x.clone()), layer.output(changed));
        let early = |x: &Tensor<3>| values(x.clone().narrow(1, 0, kept));
        assert_eq!(
            early(&other),
            early(&one),
            "later tokens change {kept} earlier ones"
        );
        let late = |x: Tensor<3>| x.narrow(1, kept, late);
        assert_differs("later tokens themselves", late(one), late(other));
    }
    true
}

/// Padding has no effect on other positions.
fn padding(_: &Example, layer: &TestLayer) -> bool {
    let device = Device::flex();
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device);
    let other = noise([BATCH, LENGTH, WIDTH], 11, &device);
    let memory = noise([BATCH, MEMORY, WIDTH], 2, &device);
    let other_memory = noise([BATCH, MEMORY, WIDTH], 12, &device);
    let non_padding = [0..6, 2..MEMORY];
    let spoil = |x: Tensor<3>, other: Tensor<3>| {
        let rows = non_padding.iter().enumerate().map(|(row, non_padding)| {
            let piece = |x: &Tensor<3>, from: usize, to: usize| {
                x.clone().narrow(0, row, 1).narrow(1, from, to - from)
            };
            let length = x.dims()[1];
            let mut parts = vec![piece(&x, non_padding.start, non_padding.end)];
            if non_padding.start > 0 {
                parts.insert(0, piece(&other, 0, non_padding.start));
            }
            if non_padding.end < length {
                parts.push(piece(&other, non_padding.end, length));
            }
            Tensor::cat(parts, 1)
        });
        Tensor::cat(rows.collect(), 0)
    };
    let run = |x: Tensor<3>, memory: Tensor<3>| {
        let memory = (layer.role == Role::Cross).then(|| Memory::new(memory));
        layer.output_with_padding(x, memory, non_padding.to_vec())
    };
    let (clean, spoilt) = if layer.role == Role::Cross {
        (
            run(x.clone(), memory.clone()),
            run(x, spoil(memory, other_memory)),
        )
    } else {
        (run(x.clone(), memory.clone()), run(spoil(x, other), memory))
    };
    for (row, non_padding) in non_padding.iter().enumerate() {
        // In cross-attention no query is padding.
        let rows = if layer.role == Role::Cross {
            0..LENGTH
        } else {
            non_padding.clone()
        };
        let of = |x: &Tensor<3>| {
            let row = x.clone().narrow(0, row, 1);
            values(row.narrow(1, rows.start, rows.len()))
        };
        assert_eq!(of(&spoilt), of(&clean), "padding changes row {row}");
    }
    true
}

/// The output of a fully padded sequence is zero, and gradients are finite.
fn fully_padded(_: &Example, layer: &TestLayer) -> bool {
    let device = Device::flex().autodiff();
    let layer = TestLayer::new(&layer.config, layer.role, &device).unwrap();
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device).require_grad();
    let memory = layer.memory(&device);
    let keys = if layer.role == Role::Cross {
        MEMORY
    } else {
        LENGTH
    };
    let output = layer.output_with_padding(x.clone(), memory, vec![0..0, 0..keys]);
    let empty = values(output.clone().narrow(0, 0, 1));
    assert!(
        empty.iter().all(|it| *it == 0.0),
        "the output of a fully padded sequence is {empty:?}"
    );
    let gradients = output.powf_scalar(2.0).sum().backward();
    let gradients = x.grad(&gradients).map_or_else(Vec::new, values);
    assert!(
        gradients.iter().all(|it| it.is_finite()),
        "gradients of a fully padded sequence are not finite"
    );
    true
}

fn cache(_: &Example, layer: &TestLayer) -> bool {
    if layer.role == Role::Bidirectional || layer.config.cache(WIDTH) == CacheSize::Impossible {
        return false;
    }
    let device = Device::flex();
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device);
    let whole = layer.output(x.clone());
    for lengths in PASS_LENGTHS {
        let output = layer.output_with_cache(x.clone(), lengths, 0);
        let what = format!("in passes of {lengths:?}");
        assert_same(what, output, whole.clone());
    }
    true
}

/// How a sequence is split into passes with a cache.
const PASS_LENGTHS: &[&[usize]] = &[&[1; LENGTH], &[5, 1, 1, 3, 1], &[2, 9], &[10, 1]];

/// A cache keeps track of padding on the left.
fn cache_with_padding(_: &Example, layer: &TestLayer) -> bool {
    if layer.role != Role::Causal || layer.config.cache(WIDTH) == CacheSize::Impossible {
        return false;
    }
    let x = noise([BATCH, LENGTH, WIDTH], 1, &Device::flex());
    let padding = 4;
    let whole = layer.output_with_padding(x.clone(), None, vec![0..LENGTH, padding..LENGTH]);
    for lengths in PASS_LENGTHS {
        let output = layer.output_with_cache(x.clone(), lengths, padding);
        let non_padding = |x: &Tensor<3>| x.clone().narrow(1, padding, LENGTH - padding);
        let what = format!("padded, in passes of {lengths:?}");
        assert_same(what, non_padding(&output), non_padding(&whole));
    }
    true
}

fn weights(_: &Example, layer: &TestLayer) -> bool {
    let x = noise([BATCH, LENGTH, WIDTH], 1, &Device::flex());
    let Observed { output, weights } = layer.observed(x.clone());
    let what = "observing the weights changes the output";
    assert_same(what, output, layer.output(x));
    let Some(weights) = weights else {
        return false;
    };
    let [batch, _, queries, _] = weights.dims();
    assert_eq!([batch, queries], [BATCH, LENGTH], "the weights' shape");
    let sums = values(weights.clone().sum_dim(3));
    let (what, ones) = ("sums of weights", vec![1f32; sums.len()]);
    assert_close(what, &sums, &ones, Scale::One, VALUES);
    assert!(
        values(weights).iter().all(|it| *it >= 0.0),
        "a weight is negative"
    );
    true
}

/// Dropout, if supported, has an effect in training and none in inference.
fn dropout(_: &Example, layer: &TestLayer) -> bool {
    let mut config = serde_json::to_value(&layer.config).unwrap();
    config["dropout"] = serde_json::json!(0.5);
    let config: AttentionConfig = serde_json::from_value(config).unwrap();
    let device = Device::flex();
    let Ok(with_dropout) = TestLayer::new(&config, layer.role, &device) else {
        return false;
    };
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device);
    let plain = layer.output(x.clone());
    assert_eq!(
        values(plain.clone()),
        values(with_dropout.output(x.clone())),
        "dropout has an effect in inference"
    );
    let [one, same, other] =
        [1, 1, 2].map(|seed| with_dropout.output_with_dropout(x.clone(), seed));
    assert_eq!(
        values(one.clone()),
        values(same),
        "dropout is not a function of its seed"
    );
    assert_differs("dropout with another seed", one.clone(), other);
    assert_differs("dropout", one, plain);
    true
}
