//! What is specific to one kind of attention: argmax attention, Linformer and kernel regression. What all kinds have in common,
//! and the values of other implementations, are in `attention_contract/`.

use std::collections::{BTreeMap, HashMap};

use attentive_model::attention::{
    Attention, AttentionConfig, AttentionInput, AttentionSpec, RelativePositions, Role, Widths,
};
use attentive_model::{Cache, ForwardContext, Recorder, parameters, replace_parameters};
use attentive_testing::{Scale, assert_close, assert_differs, ulps, ulps_of_sum};
use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{Device, Gradients, Int, Tensor, TensorData};

const SCALE: Scale = Scale::LargestOr(1e-3);

fn config(json: &str) -> AttentionConfig {
    serde_json::from_str(json).unwrap()
}

fn build(config: &AttentionConfig, spec: &AttentionSpec, device: &Device) -> Attention {
    let mut initializer = attentive_model::Initializer::new(5, device);
    Attention::new(config, spec, &mut initializer).unwrap()
}

/// Distinct values of a sine wave.
fn waves<const D: usize>(shape: [usize; D], frequency: f64, device: &Device) -> Tensor<D> {
    let count = shape.iter().product::<usize>() as i64;
    let indices = Tensor::<1, Int>::arange(0..count, device).float();
    (indices * frequency).sin().reshape(shape)
}

fn floats<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    x.into_data().try_to_vec().unwrap()
}

/// The gradient of every parameter.
struct Collector<'a> {
    gradients: &'a Gradients,
    found: HashMap<ParamId, Vec<f32>>,
}

impl ModuleVisitor for Collector<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = param.val().grad(self.gradients) {
            self.found.insert(param.id, floats(gradient));
        }
    }
}

fn gradients_of(attention: &Attention, gradients: &Gradients) -> BTreeMap<String, Vec<f32>> {
    let mut collector = Collector {
        gradients,
        found: HashMap::new(),
    };
    attention.visit(&mut collector);
    parameters(attention)
        .into_iter()
        .map(|it| (it.name, collector.found.remove(&it.id).unwrap_or_default()))
        .collect()
}

fn input(x: &Tensor<3>) -> AttentionInput {
    AttentionInput::self_attention(x.clone(), 0)
}

/// The output and the weights of self-attention.
fn observed(
    attention: &Attention,
    x: &Tensor<3>,
    non_padding: Option<Vec<std::ops::Range<usize>>>,
) -> (Tensor<3>, Tensor<4>) {
    let mut recorder = Recorder {
        record_weights: true,
        ..Recorder::default()
    };
    let mut pass = ForwardContext {
        non_padding,
        observer: Some(&mut recorder),
        ..ForwardContext::default()
    };
    let output = attention.forward(input(x), &mut pass);
    let (_, weights) = recorder.weights.pop().unwrap();
    (output, weights)
}

/// With identity projections, the output of argmax attention is one of the values, to the last bit.
#[test]
fn argmax_gives_exactly_a_value() {
    let device = Device::flex().autodiff();
    let config = config(r#"{ "kind": "argmax", "heads": 1 }"#);
    let attention = build(
        &config,
        &AttentionSpec::new(Role::Causal, Widths::all(6), 40),
        &device,
    );
    let identity = TensorData::new(floats(Tensor::<2>::eye(6, &device)), [6, 6]);
    let names = ["value.weight", "output.weight"].map(str::to_owned);
    let attention = replace_parameters(attention, names.map(|it| (it, identity.clone())).into());
    let x = waves([2, 40, 6], 0.73, &device);
    let (output, weights) = observed(&attention, &x, None);
    let (rows, x) = (floats(output), floats(x));
    for (i, weights) in floats(weights).chunks(40).enumerate() {
        let best = weights.iter().position(|it| *it == 1.0).unwrap();
        assert!(best <= i % 40);
        assert_eq!(weights.iter().filter(|it| **it != 0.0).count(), 1);
        let at = (i / 40 * 40 + best) * 6;
        assert_eq!(rows[i * 6..(i + 1) * 6], x[at..at + 6]);
    }
}

#[test]
fn one_position_at_a_time_gives_the_same() {
    let device = Device::flex();
    for json in [
        r#"{ "kind": "argmax", "heads": 4, "key_value_heads": 2 }"#,
        r#"{ "kind": "nadaraya_watson", "kernel": "gaussian", "width": 2 }"#,
        r#"{ "kind": "nadaraya_watson", "kernel": "epanechnikov", "width": 2 }"#,
    ] {
        let spec = AttentionSpec::new(Role::Causal, Widths::all(8), 9);
        let attention = build(&config(json), &spec, &device);
        let x = waves([2, 9, 8], 0.73, &device);
        let whole = attention.forward(input(&x), &mut ForwardContext::default());
        let mut cache = Cache::new();
        let steps = (0..9).map(|at| {
            let mut pass = ForwardContext {
                cache: Some(&mut cache),
                ..ForwardContext::default()
            };
            let x = x.clone().narrow(1, at, 1);
            attention.forward(input(&x), &mut pass)
        });
        let steps = Tensor::cat(steps.collect(), 1);
        let (steps, whole) = (floats(steps), floats(whole));
        // One after another, a sum over the width of eight (a projection, or a squared distance) and one of at most nine terms (the
        // weighted values of all positions, or the output projection of one of them).
        assert_close(json, &steps, &whole, SCALE, ulps_of_sum(8 + 9));
    }
}

#[test]
fn linformer_with_identity_projections_is_full_attention() {
    let device = Device::flex();
    let json = r#""heads": 4, "key_value_heads": 2, "bias": true"#;
    let spec = AttentionSpec::new(Role::Bidirectional, Widths::all(8), 7);
    let full = build(
        &config(&format!(r#"{{ "kind": "full", {json} }}"#)),
        &spec,
        &device,
    );
    let eye = |copies: usize| floats(Tensor::<2>::eye(7, &device)).repeat(copies);
    for (sharing, shape) in [
        ("separate", vec![7, 7]),
        ("key_value", vec![7, 7]),
        ("per_head", vec![2, 7, 7]),
    ] {
        let config = config(&format!(
            r#"{{ "kind": "linformer", "projected_length": 7, "sharing": "{sharing}", {json} }}"#
        ));
        let linformer = build(&config, &spec, &device);
        let mut same = HashMap::new();
        for (name, frequency) in [
            ("query", 1.0),
            ("key", 1.3),
            ("value", 0.7),
            ("output", 0.4),
        ] {
            let shape = parameters(&full)
                .into_iter()
                .find(|it| it.name == format!("{name}.weight"));
            let shape = shape.unwrap().shape;
            let count = shape.iter().product();
            let values = waves([count], frequency, &device).into_data();
            same.insert(
                format!("{name}.weight"),
                TensorData::new(values.try_to_vec::<f32>().unwrap(), shape),
            );
        }
        let full = replace_parameters(full.clone(), same.clone());
        for name in ["pattern.key_map", "pattern.value_map"] {
            let copies = shape.len() - 1;
            same.insert(name.to_owned(), TensorData::new(eye(copies), shape.clone()));
        }
        let linformer = replace_parameters(linformer, same);
        for length in [7, 5] {
            let x = waves([2, length, 8], 0.73, &device);
            let [one, other] = [&full, &linformer]
                .map(|attention| attention.forward(input(&x), &mut ForwardContext::default()));
            let (one, other) = (floats(one), floats(other));
            let what = format!("{sharing}, {length}");
            // Queries, keys and values are the same. Then come a score of two terms, the weighted values of seven positions, and
            // the output projection.
            let bound = ulps_of_sum(2 + 7 + 8);
            // Slots beyond a shorter sequence are zeros, not masked, so only the full length is the same.
            match length {
                7 => assert_close(what, &other, &one, SCALE, bound),
                _ => assert_differs(what, &other, &one, SCALE, 1e-3),
            }
        }
    }
}

#[test]
fn linformer_ignores_padding() {
    let device = Device::flex();
    let config = config(r#"{ "kind": "linformer", "heads": 2, "projected_length": 3 }"#);
    let spec = AttentionSpec::new(Role::Bidirectional, Widths::all(8), 7);
    let attention = build(&config, &spec, &device);
    let x = waves([3, 7, 8], 0.73, &device);
    let non_padding = vec![0..4, 0..7, 2..2];
    let (output, weights) = observed(&attention, &x, Some(non_padding.clone()));
    assert_eq!(weights.dims(), [3, 2, 7, 3]);
    let padding = x.clone().slice([0..1, 4..7, 0..8]) * 0.0 + f32::NAN;
    let other = x.clone().slice_assign([0..1, 4..7, 0..8], padding);
    let unpadded = |x: Tensor<3>| floats(x.slice([0..1, 0..4, 0..8]));
    let (changed, _) = observed(&attention, &other, Some(non_padding));
    assert_eq!(unpadded(changed), unpadded(output.clone()));
    let (shorter, _) = observed(&attention, &x.slice([0..1, 0..4, 0..8]), None);
    let (shorter, padded) = (floats(shorter), unpadded(output.clone()));
    // Sums of 8 terms (projections), 7 (along the length), 4 (scores), 3 (values) and 8 (output): 30 rounding errors, each with a
    // standard deviation of at most an ulp / √12, four of which together are 4 · √(30 / 12) = 6.3 ulps.
    assert_close("without padding", &shorter, &padded, SCALE, ulps(8));
    assert!(
        floats(output.slice([2..3, 0..7, 0..8]))
            .iter()
            .all(|it| *it == 0.0)
    );
    let empty = weights.slice([2..3, 0..2, 0..7, 0..3]);
    assert!(floats(empty).iter().all(|it| *it == 0.0));
}

#[test]
#[should_panic(expected = "linformer attention: 8 keys do not fit projections of length 7")]
fn linformer_refuses_what_is_too_long() {
    let device = Device::flex();
    let config = config(r#"{ "kind": "linformer", "heads": 2, "projected_length": 3 }"#);
    let spec = AttentionSpec::new(Role::Bidirectional, Widths::all(8), 7);
    let attention = build(&config, &spec, &device);
    attention.forward(
        input(&waves([1, 8, 8], 0.7, &device)),
        &mut ForwardContext::default(),
    );
}

/// Points without others within the bandwidth, and coinciding points.
#[test]
fn kernels_without_near_keys_give_zeros_and_finite_gradients() {
    let device = Device::flex().autodiff();
    for kernel in ["gaussian", "boxcar", "epanechnikov", "constant"] {
        let learn = match kernel {
            "gaussian" | "epanechnikov" => "learned",
            _ => "fixed",
        };
        let config = config(&format!(
            r#"{{ "kind": "nadaraya_watson", "kernel": "{kernel}", "query_position": "left_out", "learn_width": "{learn}" }}"#
        ));
        let spec = AttentionSpec::new(Role::Bidirectional, Widths::all(2), 4);
        let attention = build(&config, &spec, &device);
        // The second coincides with the first, the third is a bandwidth away from both, the fourth far from all.
        let x = Tensor::<3>::from_data(
            [[[1.0, 2.0], [1.0, 2.0], [1.0, 3.0], [1e4, 0.0f32]]],
            &device,
        );
        let x = x.require_grad();
        let (output, weights) = observed(&attention, &x, None);
        let sums = floats(weights.sum_dim(3));
        let alone = matches!(kernel, "boxcar" | "epanechnikov");
        let expected = if alone {
            [1.0, 1.0, 0.0, 0.0]
        } else {
            [1.0; 4]
        };
        // Half an ulp for each of at most three additions in the sum that divides, the quotients, and three additions here.
        assert_close(kernel, &sums, &expected, Scale::One, ulps(4));
        let values = floats(output.clone());
        assert!(values.iter().all(|it| it.is_finite()), "{kernel}");
        if alone {
            assert_eq!(values, [1.0, 2.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0], "{kernel}");
        }
        let gradients = (output * waves([1, 4, 2], 0.9, &device)).sum().backward();
        let gradient = floats(x.grad(&gradients).unwrap());
        assert!(
            gradient.iter().all(|it| it.is_finite()),
            "{kernel}: {gradient:?}"
        );
        for gradient in gradients_of(&attention, &gradients).values() {
            assert!(
                gradient.iter().all(|it| it.is_finite()),
                "{kernel}: {gradient:?}"
            );
        }
    }
}

#[test]
fn invalid_settings_are_refused_in_a_sentence() {
    let mut narrow = Widths::all(8);
    narrow.keys = 6;
    let refused = |json: &str, role: Role, widths: Widths, positions: RelativePositions| {
        let spec = AttentionSpec {
            positions,
            ..AttentionSpec::new(role, widths, 12)
        };
        config(json)
            .validate("attention", &spec)
            .unwrap_err()
            .to_string()
    };
    let plain = RelativePositions::None;
    let nadaraya = |rest: &str| format!(r#"{{ "kind": "nadaraya_watson", {rest} }}"#);
    let linformer = r#"{ "kind": "linformer", "heads": 2, "projected_length": 3 }"#;
    let messages = [
        refused(linformer, Role::Causal, Widths::all(8), plain),
        refused(
            linformer,
            Role::Cross,
            Widths::all(8),
            RelativePositions::Bias,
        ),
        refused(
            &linformer.replace('3', "13"),
            Role::Cross,
            Widths::all(8),
            plain,
        ),
        refused(
            &nadaraya(r#""kernel": "gaussian""#),
            Role::Cross,
            narrow,
            plain,
        ),
        refused(
            &nadaraya(r#""kernel": "gaussian", "width": 0"#),
            Role::Cross,
            narrow,
            plain,
        ),
        refused(
            &nadaraya(r#""kernel": "boxcar", "learn_width": "learned""#),
            Role::Cross,
            narrow,
            plain,
        ),
        refused(
            &nadaraya(r#""kernel": "boxcar", "query_position": "left_out""#),
            Role::Causal,
            narrow,
            plain,
        ),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}
