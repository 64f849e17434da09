//! Generated cases, which are in no file: sizes around the kernels' blocks, which would make the file large, sizes of zero,
//! and dropout, whose masks differ from PyTorch's. Names seed the values.

#[path = "generated_attention.rs"]
mod attention;

#[path = "generated_linear_attention.rs"]
mod linear_attention;

use attentive_tensor::{Activation, NormKind};

use crate::case::{Array, Arrays, Attention, Case, Norm, Operation};
use crate::reference;

/// All generated cases. Inputs and upstream gradients are f32 values between -1.5 and 1.5.
pub fn cases() -> Vec<Case> {
    let mut cases = rows();
    cases.extend(feed_forwards());
    cases.extend(attention::cases());
    cases.extend(linear_attention::cases());
    cases.extend(empty().into_iter().map(|(case, _)| case));
    cases
}

fn rows() -> Vec<Case> {
    let norm = |kind| Norm::new(kind, 1e-5);
    let (layer, rms) = (norm(NormKind::Layer), norm(NormKind::Rms));
    vec![
        // Blocks of a matrix product: 192 rows, 384 inputs, 1024 outputs, with epilogues in strips of 256.
        linear("193 rows", [193, 5], 3),
        linear("191 rows", [191, 3], 7),
        linear("385 inputs", [7, 385], 9),
        linear("383 inputs", [1, 383], 5),
        linear("1023 outputs", [5, 2], 1023),
        linear("1025 outputs", [7, 2], 1025),
        linear("257 outputs", [7, 3], 257),
        generate(
            "activated linear past all blocks",
            Operation::ActivatedLinear {
                activation: Activation::GeluTanh,
            },
            &[("x", &[13, 385]), ("weight", &[33, 385]), ("bias", &[33])],
        ),
        generate(
            "three linears past all blocks",
            Operation::LinearQkv,
            &[
                ("x", &[49, 31]),
                ("weight0", &[65, 31]),
                ("weight1", &[17, 31]),
                ("bias1", &[17]),
                ("weight2", &[33, 31]),
            ],
        ),
        generate(
            "many rows of a layer norm",
            Operation::Norm(layer),
            &[("x", &[131, 67]), ("weight", &[67]), ("bias", &[67])],
        ),
        generate(
            "many rows of a root-mean-square norm",
            Operation::AddNorm(rms),
            &[("x", &[131, 67]), ("branch", &[131, 67]), ("weight", &[67])],
        ),
        generate(
            "a root-mean-square norm with a bias",
            Operation::Norm(rms),
            &[("x", &[5, 19]), ("weight", &[19]), ("bias", &[19])],
        ),
        generate(
            "many rows beside their root-mean-square norm with a bias",
            Operation::NormWithInput(rms),
            &[("x", &[131, 67]), ("weight", &[67]), ("bias", &[67])],
        ),
        generate(
            "many sums beside their norm",
            Operation::AddNormWithSum(layer),
            &[
                ("x", &[131, 67]),
                ("branch", &[131, 67]),
                ("weight", &[67]),
                ("bias", &[67]),
            ],
        ),
        generate(
            "wide rows beside their norm",
            Operation::NormWithInput(layer),
            &[("x", &[3, 1025]), ("weight", &[1025]), ("bias", &[1025])],
        ),
        generate("wide softmax", Operation::Softmax, &[("x", &[3, 1025])]),
        generate(
            "a wide masked softmax",
            Operation::MaskedSoftmax(Attention {
                scale: 1.0,
                causal: true,
                keys: Some(vec![[3, 1000], [0, 0]]),
                ..Attention::default()
            }),
            &[("scores", &[2, 2, 3, 1025])],
        ),
        generate(
            "a vocabulary past its block",
            Operation::CrossEntropy {
                targets: vec![4096, -100, 0],
                label_smoothing: 0.1,
            },
            &[("logits", &[3, 4097])],
        ),
        generate(
            "an embedding of many",
            Operation::Embedding {
                ids: vec![(0..300).map(|i| i * i % 31).collect()],
            },
            &[("table", &[31, 19])],
        ),
        // Masks are generated in groups of 64.
        dropped(0.1, &[1, 1]),
        dropped(0.25, &[5, 13]),
        dropped(0.5, &[3, 43]),
        dropped(0.9, &[2, 3, 67]),
    ]
}

fn linear(name: &str, x: [usize; 2], output: usize) -> Case {
    let inputs: [(&str, &[usize]); 3] =
        [("x", &x), ("weight", &[output, x[1]]), ("bias", &[output])];
    generate(&format!("linear, {name}"), Operation::Linear, &inputs)
}

/// Sizes around the GEMV row limit, tiles of 6 rows by 16 or 32 columns, and the blocks of a matrix product. The hidden width
/// is N of the first product and of its backward pass, and K of the second.
fn feed_forwards() -> Vec<Case> {
    let activations = [
        Activation::Silu,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Relu,
        Activation::Sigmoid,
    ];
    let mut sizes: Vec<[usize; 4]> = Vec::new();
    for rows in [1, 4, 5, 6, 7, 13] {
        sizes.extend([15, 16, 17].map(|width| [rows, 3, width, width]));
        sizes.extend([31, 32, 33].map(|width| [rows, width, width, 2]));
    }
    sizes.extend([
        [191, 5, 7, 3],
        [193, 7, 33, 5],
        [5, 383, 3, 2],
        [7, 385, 5, 3],
        [5, 3, 383, 2],
        [7, 2, 385, 3],
        [1, 2, 385, 3],
        [7, 2, 255, 3],
        [5, 3, 257, 2],
        [7, 2, 1023, 1],
        [5, 1, 1025, 2],
        [5, 2, 3, 257],
        [7, 1, 2, 1025],
    ]);
    let case = |(i, sizes): (usize, [usize; 4])| {
        let activation = activations[i % activations.len()];
        [false, true].map(|gated| feed_forward(activation, gated, sizes, i))
    };
    sizes.into_iter().enumerate().flat_map(case).collect()
}

/// The bits of `biases` say which projections have one.
fn feed_forward(activation: Activation, gated: bool, sizes: [usize; 4], biases: usize) -> Case {
    let [rows, input, hidden, output] = sizes;
    let (x, first, down) = ([rows, input], [hidden, input], [output, hidden]);
    let mut inputs: Vec<(&str, &[usize])> = vec![("x", &x), ("up", &first), ("down", &down)];
    let bias = |bit: usize| biases >> bit & 1 == 0;
    inputs.extend(bias(0).then_some(("up_bias", &first[..1])));
    inputs.extend(bias(1).then_some(("down_bias", &down[..1])));
    if gated {
        inputs.push(("gate", &first));
        inputs.extend(bias(2).then_some(("gate_bias", &first[..1])));
    }
    let name = format!("feed forward, {activation:?}, gated: {gated}, {sizes:?}, biases {biases}");
    generate(&name, Operation::FeedForward { activation }, &inputs)
}

fn dropped(probability: f64, shape: &[usize]) -> Case {
    let name = format!("dropout of {probability}, {shape:?}");
    generate(&name, Operation::Dropout { probability }, &[("x", shape)])
}

/// Every operation with each axis in turn of size zero, and the shape of its last output.
pub fn empty() -> Vec<(Case, Vec<usize>)> {
    let mut cases = Vec::new();
    let mut case = |operation: Operation, shapes: &[(&str, &[usize])], output: &[usize]| {
        cases.push(empty_case(operation, shapes, output));
    };
    let activation = Activation::Silu;
    for [batch, length, input, output] in [[0, 3, 4, 5], [2, 0, 4, 5], [2, 3, 0, 5], [2, 3, 4, 0]] {
        let (x, weight, bias) = ([batch, length, input], [output, input], [output]);
        let expected = [batch, length, output];
        let one: [(&str, &[usize]); 3] = [("x", &x), ("weight", &weight), ("bias", &bias)];
        case(Operation::Linear, &one, &expected);
        case(Operation::ActivatedLinear { activation }, &one, &expected);
        let three: [(&str, &[usize]); 5] = [
            ("x", &x),
            ("weight0", &weight),
            ("weight1", &weight),
            ("bias1", &bias),
            ("weight2", &weight),
        ];
        case(Operation::LinearQkv, &three, &expected);
    }
    cases.extend(empty_feed_forwards());
    let mut case = |operation: Operation, shapes: &[(&str, &[usize])], output: &[usize]| {
        cases.push(empty_case(operation, shapes, output));
    };
    for x in [[0, 3, 4], [2, 0, 4], [2, 3, 0]] {
        let weight = [x[2]];
        case(Operation::Add, &[("x", &x), ("y", &x)], &x);
        case(Operation::Activate { activation }, &[("x", &x)], &x);
        case(
            Operation::Gated { activation },
            &[("gate", &x), ("up", &x)],
            &x,
        );
        case(Operation::Softmax, &[("x", &x)], &x);
        case(Operation::Dropout { probability: 0.5 }, &[("x", &x)], &x);
        for kind in [NormKind::Layer, NormKind::Rms] {
            let norm = Norm::new(kind, 1e-5);
            let one: [(&str, &[usize]); 3] = [("x", &x), ("weight", &weight), ("bias", &weight)];
            case(Operation::Norm(norm), &one, &x);
            case(Operation::NormWithInput(norm), &one, &x);
            let sum: [(&str, &[usize]); 3] = [("x", &x), ("branch", &x), ("weight", &weight)];
            case(Operation::AddNorm(norm), &sum, &x);
            case(Operation::AddNormWithSum(norm), &sum, &x);
        }
    }
    for x in [[0, 2, 3, 4], [2, 0, 3, 4], [2, 2, 0, 4], [2, 2, 3, 0]] {
        let positions = vec![(0..x[2] as i64).collect()];
        let theta = 100.0;
        case(Operation::Rotary { theta, positions }, &[("x", &x)], &x);
    }
    for (table, ids) in [
        ([3, 5], vec![]),
        ([3, 5], vec![vec![], vec![]]),
        ([3, 0], vec![vec![2, 1]]),
        ([0, 5], vec![vec![]]),
    ] {
        let length = ids.first().map_or(0, Vec::len);
        let expected = [ids.len(), length, table[1]];
        case(
            Operation::Embedding { ids },
            &[("table", &table)],
            &expected,
        );
    }
    for label_smoothing in [0.0, 0.1] {
        let operation = Operation::CrossEntropy {
            targets: vec![],
            label_smoothing,
        };
        case(operation, &[("logits", &[0, 5])], &[1]);
    }
    cases.extend(attention::empty());
    cases.extend(linear_attention::empty());
    cases
}

fn empty_case(
    operation: Operation,
    shapes: &[(&str, &[usize])],
    output: &[usize],
) -> (Case, Vec<usize>) {
    let name = format!("{operation:?} of {shapes:?} to {output:?}");
    (generate(&name, operation, shapes), output.to_vec())
}

/// With GEMV and with more rows. Without inputs, a layer is a function of its biases; without a hidden layer, the last bias.
fn empty_feed_forwards() -> Vec<(Case, Vec<usize>)> {
    let mut cases = Vec::new();
    for [batch, length, input, hidden, output] in [
        [0, 3, 4, 5, 6],
        [2, 0, 4, 5, 6],
        [2, 3, 0, 5, 6],
        [1, 2, 0, 5, 6],
        [2, 3, 4, 0, 6],
        [1, 2, 4, 0, 6],
        [2, 3, 4, 5, 0],
        [1, 2, 4, 5, 0],
        [2, 3, 0, 0, 6],
        [2, 3, 0, 5, 0],
        [2, 3, 4, 0, 0],
        [0, 0, 0, 0, 0],
    ] {
        let (x, first, down) = ([batch, length, input], [hidden, input], [output, hidden]);
        let (first_bias, down_bias) = ([hidden], [output]);
        let without: [(&str, &[usize]); 3] = [("x", &x), ("up", &first), ("down", &down)];
        let biases: [(&str, &[usize]); 2] = [("up_bias", &first_bias), ("down_bias", &down_bias)];
        let gate: [(&str, &[usize]); 2] = [("gate", &first), ("gate_bias", &first_bias)];
        for activation in [Activation::Silu, Activation::Gelu] {
            for shapes in [
                without.to_vec(),
                [&without[..], &biases].concat(),
                [&without[..], &gate[..1]].concat(),
                [&without[..], &gate[..1], &biases[..1]].concat(),
                [&without[..], &gate, &biases].concat(),
            ] {
                let operation = Operation::FeedForward { activation };
                cases.push(empty_case(operation, &shapes, &[batch, length, output]));
            }
        }
    }
    cases
}

fn generate(name: &str, operation: Operation, shapes: &[(&str, &[usize])]) -> Case {
    let mut seed = name
        .bytes()
        .fold(0, |seed, byte| split_mix(seed ^ u64::from(byte)));
    let mut values = |count: usize| -> Vec<f64> {
        seed = split_mix(seed);
        (0..count as u64).map(|i| sample(seed ^ i)).collect()
    };
    let mut array = |shape: &[usize]| Array {
        shape: shape.to_vec(),
        values: values(shape.iter().product()),
    };
    let inputs: Arrays = shapes
        .iter()
        .map(|(name, shape)| (name.to_string(), array(shape)))
        .collect();
    let mut case = Case {
        name: name.to_owned(),
        operation,
        inputs,
        upstream: Vec::new(),
    };
    let outputs = reference::outputs(&case, &case.inputs);
    case.upstream = outputs.iter().map(|output| values(output.len())).collect();
    case
}

/// A value between -1.5 and 1.5 that f32 represents.
fn sample(seed: u64) -> f64 {
    let unit = (split_mix(seed) >> 40) as f32 / (1u64 << 24) as f32;
    f64::from(3.0 * unit - 1.5)
}

/// One step of SplitMix64. Steele et al. 2014.
pub fn split_mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
