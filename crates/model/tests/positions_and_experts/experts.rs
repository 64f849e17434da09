//! Mixtures of experts: parity with Mixtral (`fixtures/parts`), finite differences, capacity, padding, and refused settings.

use std::collections::HashMap;

use crate::golden::{Case, Golden};
use attentive_model::feed_forward::{FeedForward, FeedForwardConfig};
use attentive_model::{
    ForwardContext, Initializer, ModelConfig, Purpose, Randomness, parameters, replace_parameters,
};
use attentive_testing::{GRADIENTS, Scale, VALUES, assert_close};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Tensor, TensorData};
use serde_json::{Value, json};

fn layer(config: &Value, width: usize, device: &Device) -> FeedForward {
    let config: FeedForwardConfig = serde_json::from_value(config.clone()).unwrap();
    FeedForward::new(&config, width, 0.4, 0.4, &mut Initializer::new(9, device))
}

/// The output of a layer and its auxiliary loss.
struct RunOutput {
    y: Tensor<3>,
    auxiliary: Option<Tensor<1>>,
}

fn run(
    layer: &FeedForward,
    x: Tensor<3>,
    training: bool,
    token_mask: Option<Vec<bool>>,
) -> RunOutput {
    let mut randomness = Randomness::new(Purpose::Dropout, 1, 1);
    let mut pass = ForwardContext {
        token_mask,
        randomness: training.then_some(&mut randomness),
        ..ForwardContext::default()
    };
    let y = layer.forward(x, &mut pass);
    let auxiliary = pass.auxiliary_loss();
    RunOutput { y, auxiliary }
}

/// The gradient of each parameter that has one, by name.
fn gradients(layer: &FeedForward, gradients: &Gradients) -> HashMap<String, TensorData> {
    struct Collector<'a>(&'a Gradients, Vec<Option<TensorData>>);
    impl ModuleVisitor for Collector<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.1.push(param.val().grad(self.0).map(Tensor::into_data));
        }
    }
    let mut collector = Collector(gradients, Vec::new());
    layer.visit(&mut collector);
    let names = parameters(layer).into_iter().map(|it| it.name);
    let pairs = names.zip(collector.1);
    pairs.filter_map(|(name, it)| Some((name, it?))).collect()
}

/// A layer with the weights of Mixtral's in the case.
fn mixtral_layer(case: &Case, extra: &Value, device: &Device) -> FeedForward {
    let mut config = case.settings.clone();
    for (key, value) in extra.as_object().unwrap() {
        config[key] = value.clone();
    }
    let experts = config["experts"].as_u64().unwrap() as usize;
    let [gate_up, down] = ["gate_up", "down"].map(|part| case.tensor::<3>(part));
    let [_, twice, width] = gate_up.dims();
    let mut values = HashMap::from([(
        "router.weight".to_owned(),
        case.tensor::<2>("router").into_data(),
    )]);
    for expert in 0..experts {
        let part = |from: &Tensor<3>, start: usize, rows: usize| {
            let [_, _, columns] = from.dims();
            let part = from.clone().narrow(0, expert, 1).narrow(1, start, rows);
            part.reshape([rows, columns]).into_data()
        };
        let hidden = twice / 2;
        values.extend([
            (
                format!("experts.{expert}.gate.weight"),
                part(&gate_up, 0, hidden),
            ),
            (
                format!("experts.{expert}.up.weight"),
                part(&gate_up, hidden, hidden),
            ),
            (
                format!("experts.{expert}.down.weight"),
                part(&down, 0, width),
            ),
        ]);
    }
    let layer = layer(&config, width, device);
    assert_eq!(parameters(&layer).len(), values.len());
    replace_parameters(layer, values)
}

#[test]
fn values_and_gradients_are_those_of_mixtral() {
    let device = Device::flex().autodiff();
    let golden = Golden::open(device.clone());
    for case in golden.cases("experts") {
        let layer = mixtral_layer(&case, &json!({}), &device);
        let x = case.tensor::<3>("x").require_grad();
        let RunOutput { y, auxiliary } = run(&layer, x.clone(), false, None);
        assert!(auxiliary.is_none());
        case.compare("y", y.clone(), VALUES);
        let loss = (y * case.tensor("upstream")).sum();
        let backward = loss.backward();
        case.compare("gradient_x", x.grad(&backward).unwrap(), GRADIENTS);
        let found = gradients(&layer, &backward);
        let of = |name: &str| {
            let data = found[name].clone();
            Tensor::<2>::from_data(data, &Device::flex())
        };
        case.compare("gradient_router", of("router.weight"), GRADIENTS);
        let experts = case.settings["experts"].as_u64().unwrap();
        let stack = |name: &dyn Fn(u64) -> Tensor<2>| {
            Tensor::stack::<3>((0..experts).map(name).collect(), 0)
        };
        let gate_up = stack(&|e| {
            let [gate, up] = ["gate", "up"].map(|it| of(&format!("experts.{e}.{it}.weight")));
            Tensor::cat(vec![gate, up], 0)
        });
        case.compare("gradient_gate_up", gate_up, GRADIENTS);
        let down = stack(&|e| of(&format!("experts.{e}.down.weight")));
        case.compare("gradient_down", down, GRADIENTS);
    }
}

#[test]
fn the_losses_of_the_router_are_those_of_transformers() {
    let device = Device::flex().autodiff();
    let golden = Golden::open(device.clone());
    for case in golden.cases("experts") {
        let non_padding: Vec<bool> = case.values("real").iter().map(|it| *it == 1.0).collect();
        for (name, weights, token_mask) in [
            ("balance", [1.0, 0.0], None),
            ("balance_padded", [1.0, 0.0], Some(non_padding)),
            ("z", [0.0, 1.0], None),
        ] {
            let extra = json!({ "balance_loss_weight": weights[0], "z_loss_weight": weights[1] });
            let layer = mixtral_layer(&case, &extra, &device);
            let x = case.tensor::<3>("x").require_grad();
            let loss = run(&layer, x.clone(), true, token_mask).auxiliary.unwrap();
            case.compare(name, loss.clone(), VALUES);
            let backward = loss.backward();
            let gradient = x.grad(&backward).unwrap();
            case.compare(&format!("{name}.gradient_x"), gradient, GRADIENTS);
            let found = gradients(&layer, &backward);
            let router = Tensor::<2>::from_data(found["router.weight"].clone(), &Device::flex());
            case.compare(&format!("{name}.gradient_router"), router, GRADIENTS);
        }
    }
}

fn small(extra: &Value) -> Value {
    let mut config = json!({ "kind": "experts", "experts": 5, "active": 2, "hidden_width": 6 });
    for (key, value) in extra.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

fn input(device: &Device) -> Tensor<3> {
    // Not from the device's own generator, which other tests share.
    let normal = Randomness::new(Purpose::Weights, 11, 0).next_normal(1.0);
    let values: Vec<f32> = normal.take(2 * 4 * 8).map(|it| it as f32).collect();
    Tensor::from_data(TensorData::new(values, [2, 4, 8]), device)
}

fn values_of<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    x.into_data().try_to_vec::<f32>().unwrap()
}

/// With a step so small that no token changes its experts: there the layer is differentiable.
#[test]
fn gradients_are_finite_differences() {
    let device = Device::flex().autodiff();
    for extra in [
        json!({}),
        json!({ "active": 1 }),
        json!({ "form": "plain", "activation": "gelu", "bias": true, "weighting": "probabilities" }),
        json!({ "balance_loss_weight": 0.5, "z_loss_weight": 0.3 }),
    ] {
        let layer = layer(&small(&extra), 8, &device);
        let factors: Vec<f32> = (0..64).map(|i| ((i * 7 % 13) as f32 - 6.0) / 6.0).collect();
        let factors = TensorData::new(factors, [2, 4, 8]);
        let loss = |x: Tensor<3>| {
            let RunOutput { y, auxiliary } = run(&layer, x, true, None);
            let loss = (y * Tensor::from_data(factors.clone(), &device)).sum();
            match auxiliary {
                Some(auxiliary) => loss + auxiliary,
                None => loss,
            }
        };
        let x = input(&device).require_grad();
        let gradient = values_of(x.grad(&loss(x.clone()).backward()).unwrap());
        let start = values_of(x);
        let finite_difference = |i: usize| {
            let at = |step: f32| {
                let mut moved = start.clone();
                moved[i] += step;
                let moved = Tensor::from_data(TensorData::new(moved, [2, 4, 8]), &device);
                loss(moved).into_scalar::<f32>()
            };
            (at(4e-3) - at(-4e-3)) / 8e-3
        };
        let expected: Vec<f32> = (0..64).map(finite_difference).collect();
        assert_close(extra, &expected, &gradient, Scale::Largest, 2e-3);
    }
}

#[test]
fn a_forward_pass_is_deterministic() {
    let device = Device::flex().autodiff();
    let layer = layer(&small(&json!({ "capacity_factor": 1.0 })), 8, &device);
    let once = || {
        let x = input(&device).require_grad();
        let RunOutput { y, auxiliary } = run(&layer, x.clone(), true, None);
        let loss = y.clone().square().sum() + auxiliary.unwrap();
        let gradient = x.grad(&loss.backward()).unwrap();
        (y.into_data(), gradient.into_data())
    };
    assert_eq!(once(), once());
}

/// The experts that no token chose have no gradient.
#[test]
fn only_chosen_experts_take_part() {
    let device = Device::flex().autodiff();
    let layer = layer(&small(&json!({ "experts": 40, "active": 1 })), 8, &device);
    let y = run(&layer, input(&device), false, None).y;
    let found = gradients(&layer, &y.sum().backward());
    let used = found.keys().filter(|name| name.ends_with("down.weight"));
    let used = used.count();
    assert!((1..=8).contains(&used), "{used} of 40 experts for 8 tokens");
}

fn model(feed_forward: &Value) -> ModelConfig {
    let config = json!({
        "vocabulary": 11, "length": 16, "width": 8, "positions": { "kind": "none" },
        "blocks": [{ "norm": { "kind": "rms" }, "attention": { "kind": "full", "heads": 2 },
            "feed_forward": feed_forward }],
    });
    serde_json::from_value(config).unwrap()
}

/// The rows that go through experts are counted in `routing.rs`; these are the reported flops.
#[test]
fn flops_grow_with_active_experts_and_only_by_the_router_with_all() {
    let weights = |feed_forward: Value| model(&feed_forward).flops().weights;
    let dense = weights(json!({ "kind": "gated", "hidden_width": 6 }));
    let expert = 2 * 3 * 8 * 6;
    for (experts, active) in [(5, 1), (5, 2), (64, 2)] {
        let config = small(&json!({ "experts": experts, "active": active }));
        let router = 2 * 8 * experts;
        assert_eq!(weights(config), dense + (active - 1) * expert + router);
    }
}

#[test]
fn capacity_drops_tokens_in_training_only() {
    let device = Device::flex();
    // One expert takes all; two of eight tokens fit.
    let config = small(
        &json!({ "experts": 1, "active": 1, "capacity_factor": 0.25, "balance_loss_weight": 0.0 }),
    );
    let layer = layer(&config, 8, &device);
    let rows = |training: bool| {
        let y = values_of(run(&layer, input(&device), training, None).y);
        let zero = |row: &[f32]| row.iter().all(|it| *it == 0.0);
        y.chunks(8).map(|row| !zero(row)).collect::<Vec<bool>>()
    };
    assert_eq!(rows(false), [true; 8]);
    let mut two = [false; 8];
    two[..2].fill(true);
    assert_eq!(rows(true), two);
}

#[test]
fn padding_gets_zeros_and_takes_no_capacity() {
    let device = Device::flex();
    let config = small(&json!({ "experts": 1, "active": 1, "capacity_factor": 1.0 }));
    let layer = layer(&config, 8, &device);
    let mut token_mask = vec![true; 8];
    token_mask[..3].fill(false);
    let all = values_of(run(&layer, input(&device), true, None).y);
    let some = values_of(run(&layer, input(&device), true, Some(token_mask.clone())).y);
    for (row, is_token) in token_mask.iter().enumerate() {
        let at = row * 8..(row + 1) * 8;
        let expected: &[f32] = if *is_token {
            &all[at.clone()]
        } else {
            &[0.0; 8]
        };
        assert_eq!(&some[at], expected);
    }
    let none = run(&layer, input(&device), true, Some(vec![false; 8]));
    assert!(none.auxiliary.is_none() && values_of(none.y).iter().all(|it| *it == 0.0));
}

/// With one expert whose probability is one, a mixture is that expert.
#[test]
fn a_single_expert_is_a_dense_layer() {
    let device = Device::flex();
    let mixture = layer(&small(&json!({ "experts": 1, "active": 1 })), 8, &device);
    let dense = layer(&json!({ "kind": "gated", "hidden_width": 6 }), 8, &device);
    let x = input(&device);
    let [one, other] = [mixture, dense].map(|it| values_of(run(&it, x.clone(), false, None).y));
    assert_eq!(one, other);
}

#[test]
fn invalid_settings_are_refused_in_a_sentence() {
    let errors: Vec<String> = [
        json!({ "experts": 0 }),
        json!({ "active": 0 }),
        json!({ "active": 6 }),
        json!({ "hidden_width": 0 }),
        json!({ "capacity_factor": 0.0 }),
        json!({ "balance_loss_weight": -0.1 }),
        json!({ "z_loss_weight": -1.0 }),
    ]
    .iter()
    .map(|extra| model(&small(extra)).validate().unwrap_err().to_string())
    .collect();
    insta::assert_snapshot!(errors.join("\n"));
}
