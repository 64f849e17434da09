//! What is true of one kind of attention alone: argmax attention, Linformer and kernel regression. What all kinds have in
//! common, and the values of other implementations, are in `attention/`.

use std::collections::{BTreeMap, HashMap};

use attentive_model::{
    Attention, AttentionConfig, AttentionInput, Cache, Pass, Place, Recorder, RelativePositions,
    Role, Widths, parameters, replace_parameters,
};
use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{Device, Gradients, Int, Tensor, TensorData};

fn settings(words: &str) -> AttentionConfig {
    serde_json::from_str(words).unwrap()
}

fn build(config: &AttentionConfig, place: &Place, device: &Device) -> Attention {
    let mut initial = attentive_model::Initializer::new(5, device);
    Attention::new(config, place, &mut initial).unwrap()
}

/// Numbers that differ from each other.
fn waves<const D: usize>(shape: [usize; D], pace: f64, device: &Device) -> Tensor<D> {
    let count = shape.iter().product::<usize>() as i64;
    let places = Tensor::<1, Int>::arange(0..count, device).float();
    (places * pace).sin().reshape(shape)
}

fn floats<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    x.into_data().try_to_vec().unwrap()
}

fn largest(numbers: &[f32]) -> f32 {
    numbers.iter().fold(0.0, |most, x| most.max(x.abs()))
}

/// How far apart, relative to the largest number of the reference.
fn apart(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len());
    let gaps: Vec<f32> = ours.iter().zip(theirs).map(|(a, b)| a - b).collect();
    assert!(gaps.iter().all(|gap| gap.is_finite()));
    largest(&gaps) / largest(theirs).max(1e-3)
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

fn own(x: &Tensor<3>) -> AttentionInput {
    AttentionInput::own(x.clone(), 0)
}

/// The output and the weights of a sequence that looks at itself.
fn looked(
    attention: &Attention,
    x: &Tensor<3>,
    real: Option<Vec<std::ops::Range<usize>>>,
) -> (Tensor<3>, Tensor<4>) {
    let mut recorder = Recorder {
        keep_weights: true,
        ..Recorder::default()
    };
    let mut pass = Pass {
        real,
        observer: Some(&mut recorder),
        ..Pass::default()
    };
    let output = attention.forward(own(x), &mut pass);
    (output.output, output.weights.unwrap())
}

/// Without the maps around it: the context of argmax attention is one of the value rows, to the last bit.
#[test]
fn argmax_gives_exactly_a_value() {
    let device = Device::flex().autodiff();
    let config = settings(r#"{ "kind": "argmax", "heads": 1 }"#);
    let attention = build(
        &config,
        &Place::new(Role::Causal, Widths::all(6), 40),
        &device,
    );
    let identity = TensorData::new(floats(Tensor::<2>::eye(6, &device)), [6, 6]);
    let names = ["value.weight", "output.weight"].map(str::to_owned);
    let attention = replace_parameters(attention, names.map(|it| (it, identity.clone())).into());
    let x = waves([2, 40, 6], 0.73, &device);
    let (output, weights) = looked(&attention, &x, None);
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
    for words in [
        r#"{ "kind": "argmax", "heads": 4, "key_value_heads": 2 }"#,
        r#"{ "kind": "nadaraya_watson", "kernel": "gaussian", "width": 2 }"#,
        r#"{ "kind": "nadaraya_watson", "kernel": "epanechnikov", "width": 2 }"#,
    ] {
        let place = Place::new(Role::Causal, Widths::all(8), 9);
        let attention = build(&settings(words), &place, &device);
        let x = waves([2, 9, 8], 0.73, &device);
        let whole = attention.forward(own(&x), &mut Pass::default()).output;
        let mut cache = Cache::new();
        let steps = (0..9).map(|at| {
            let mut pass = Pass {
                cache: Some(&mut cache),
                ..Pass::default()
            };
            let x = x.clone().narrow(1, at, 1);
            attention.forward(own(&x), &mut pass).output
        });
        let steps = Tensor::cat(steps.collect(), 1);
        let gap = apart(&floats(steps), &floats(whole));
        assert!(gap < 1e-6, "{words}: {gap}");
    }
}

#[test]
fn linformer_with_identity_maps_is_full_attention() {
    let device = Device::flex();
    let words = r#""heads": 4, "key_value_heads": 2, "bias": true"#;
    let place = Place::new(Role::Bidirectional, Widths::all(8), 7);
    let full = build(
        &settings(&format!(r#"{{ "kind": "full", {words} }}"#)),
        &place,
        &device,
    );
    let eye = |copies: usize| floats(Tensor::<2>::eye(7, &device)).repeat(copies);
    for (sharing, shape) in [
        ("separate", vec![7, 7]),
        ("key_value", vec![7, 7]),
        ("per_head", vec![2, 7, 7]),
    ] {
        let config = settings(&format!(
            r#"{{ "kind": "linformer", "projected_length": 7, "sharing": "{sharing}", {words} }}"#
        ));
        let linformer = build(&config, &place, &device);
        let mut same = HashMap::new();
        for (name, number) in [
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
            let numbers = waves([count], number, &device).into_data();
            same.insert(
                format!("{name}.weight"),
                TensorData::new(numbers.try_to_vec::<f32>().unwrap(), shape),
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
                .map(|attention| attention.forward(own(&x), &mut Pass::default()).output);
            let gap = apart(&floats(other), &floats(one));
            // Slots past a shorter sequence are zeros and not minus infinity, so only the whole length is the same.
            assert_eq!(gap < 1e-6, length == 7, "{sharing}, {length}: {gap}");
        }
    }
}

#[test]
fn linformer_sees_no_padding() {
    let device = Device::flex();
    let config = settings(r#"{ "kind": "linformer", "heads": 2, "projected_length": 3 }"#);
    let place = Place::new(Role::Bidirectional, Widths::all(8), 7);
    let attention = build(&config, &place, &device);
    let x = waves([3, 7, 8], 0.73, &device);
    let real = vec![0..4, 0..7, 2..2];
    let (output, weights) = looked(&attention, &x, Some(real.clone()));
    assert_eq!(weights.dims(), [3, 2, 7, 3]);
    let padding = x.clone().slice([0..1, 4..7, 0..8]) * 0.0 + f32::NAN;
    let other = x.clone().slice_assign([0..1, 4..7, 0..8], padding);
    let unpadded = |x: Tensor<3>| floats(x.slice([0..1, 0..4, 0..8]));
    let (changed, _) = looked(&attention, &other, Some(real));
    assert_eq!(unpadded(changed), unpadded(output.clone()));
    let (shorter, _) = looked(&attention, &x.slice([0..1, 0..4, 0..8]), None);
    assert!(apart(&floats(shorter), &unpadded(output.clone())) < 1e-6);
    assert!(
        floats(output.slice([2..3, 0..7, 0..8]))
            .iter()
            .all(|it| *it == 0.0)
    );
    let empty = weights.slice([2..3, 0..2, 0..7, 0..3]);
    assert!(floats(empty).iter().all(|it| *it == 0.0));
}

#[test]
#[should_panic(expected = "linformer attention: 8 keys do not fit maps of length 7")]
fn linformer_refuses_what_is_too_long() {
    let device = Device::flex();
    let config = settings(r#"{ "kind": "linformer", "heads": 2, "projected_length": 3 }"#);
    let place = Place::new(Role::Bidirectional, Widths::all(8), 7);
    let attention = build(&config, &place, &device);
    attention.forward(own(&waves([1, 8, 8], 0.7, &device)), &mut Pass::default());
}

/// Points that are alone within a width, and points in the same place.
#[test]
fn kernels_that_reach_nothing_give_zeros_and_finite_gradients() {
    let device = Device::flex().autodiff();
    for kernel in ["gaussian", "boxcar", "epanechnikov", "constant"] {
        let learn = match kernel {
            "gaussian" | "epanechnikov" => "learned",
            _ => "fixed",
        };
        let config = settings(&format!(
            r#"{{ "kind": "nadaraya_watson", "kernel": "{kernel}", "own": "left_out", "learn_width": "{learn}" }}"#
        ));
        let place = Place::new(Role::Bidirectional, Widths::all(2), 4);
        let attention = build(&config, &place, &device);
        // The second stands with the first, the third a width away from both, the fourth far from all.
        let x = Tensor::<3>::from_data(
            [[[1.0, 2.0], [1.0, 2.0], [1.0, 3.0], [1e4, 0.0f32]]],
            &device,
        );
        let x = x.require_grad();
        let (output, weights) = looked(&attention, &x, None);
        let sums = floats(weights.sum_dim(3));
        let alone = matches!(kernel, "boxcar" | "epanechnikov");
        let expected = if alone {
            [1.0, 1.0, 0.0, 0.0]
        } else {
            [1.0; 4]
        };
        assert!(apart(&sums, &expected) < 1e-6, "{kernel}: {sums:?}");
        let values = floats(output.clone());
        assert!(values.iter().all(|it| it.is_finite()), "{kernel}");
        if alone {
            assert_eq!(values, [1.0, 2.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0], "{kernel}");
        }
        let gradients = (output * waves([1, 4, 2], 0.9, &device)).sum().backward();
        let slopes = floats(x.grad(&gradients).unwrap());
        assert!(
            slopes.iter().all(|it| it.is_finite()),
            "{kernel}: {slopes:?}"
        );
        for slopes in gradients_of(&attention, &gradients).values() {
            assert!(
                slopes.iter().all(|it| it.is_finite()),
                "{kernel}: {slopes:?}"
            );
        }
    }
}

#[test]
fn what_cannot_be_is_refused_in_a_sentence() {
    let mut narrow = Widths::all(8);
    narrow.keys = 6;
    let refused = |words: &str, role: Role, widths: Widths, positions: RelativePositions| {
        let place = Place {
            positions,
            ..Place::new(role, widths, 12)
        };
        settings(words)
            .validate("attention", &place)
            .unwrap_err()
            .to_string()
    };
    let plain = RelativePositions::None;
    let nadaraya = |rest: &str| format!(r#"{{ "kind": "nadaraya_watson", {rest} }}"#);
    let linformer = r#"{ "kind": "linformer", "heads": 2, "projected_length": 3 }"#;
    let told = [
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
            &nadaraya(r#""kernel": "boxcar", "own": "left_out""#),
            Role::Causal,
            narrow,
            plain,
        ),
    ];
    insta::assert_snapshot!(told.join("\n"));
}
