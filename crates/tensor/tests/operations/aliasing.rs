//! Feed-forward layers and `add_norm` on tensors with shared storage. The backward pass overwrites saved activations and
//! recycles their storage, which must not show in a layer with the same weights, in another graph, or in other owners of the
//! input, the output or a gradient. The reference is composed of burn's own operations, which overwrite nothing.

use attentive_tensor::{
    Activation, Device, Int, LinearParameters, NormKind, NormParameters, Tensor, add_norm_with_sum,
    feed_forward,
};
use burn::tensor::activation::{gelu, relu, silu};

use crate::case::Array;
use crate::checks;
use crate::runner::values;

/// The rows, and the input and output width. Weights and hidden layer have the same number of elements, large enough for the
/// buffer pool, so that a buffer which is recycled too early fits another tensor.
const WIDTH: usize = 40;
const HIDDEN: usize = 56;

/// Between two f32 implementations.
const TOLERANCE: f64 = 1e-5;

const NAMES: [&str; 7] = [
    "x",
    "gate",
    "gate_bias",
    "up",
    "up_bias",
    "down",
    "down_bias",
];
const ACTIVATIONS: [Activation; 3] = [Activation::Relu, Activation::Gelu, Activation::Silu];

type Leaves = [Tensor<2>; 7];

/// The values of `NAMES`; those whose bit is set have a gradient.
fn leaves(tracked: usize) -> Leaves {
    let device = Device::flex().autodiff();
    let (first, second) = ([HIDDEN, WIDTH], [WIDTH, HIDDEN]);
    let shapes = [
        [WIDTH, WIDTH],
        first,
        [1, HIDDEN],
        first,
        [1, HIDDEN],
        second,
        [1, WIDTH],
    ];
    std::array::from_fn(|i| {
        let leaf = waves(shapes[i], 0.7 + 0.13 * i as f64, &device);
        match tracked >> i & 1 {
            1 => leaf.require_grad(),
            _ => leaf,
        }
    })
}

const ALL: usize = (1 << NAMES.len()) - 1;

fn waves(shape: [usize; 2], frequency: f64, device: &Device) -> Tensor<2> {
    let count = shape.iter().product::<usize>() as i64;
    let indices = Tensor::<1, Int>::arange(0..count, device).float();
    ((indices * frequency).sin() * 0.5).reshape(shape)
}

/// The upstream gradient of an output, different for each.
fn upstream(output: usize) -> Tensor<2> {
    let device = Device::flex().autodiff();
    waves([WIDTH, WIDTH], 0.31 + 0.17 * output as f64, &device)
}

fn loss_of(output: Tensor<2>, output_index: usize) -> Tensor<1> {
    (output * upstream(output_index)).sum()
}

/// The settings of a layer.
#[derive(Clone, Copy, Debug)]
struct Layer {
    activation: Activation,
    gated: bool,
    /// Whether it is the fused operation, or composed of burn's own.
    fused: bool,
}

impl Layer {
    fn all(check: impl Fn(Self)) {
        for activation in ACTIVATIONS {
            for gated in [false, true] {
                check(Self {
                    activation,
                    gated,
                    fused: true,
                });
            }
        }
    }

    fn reference(self) -> Self {
        Self {
            fused: false,
            ..self
        }
    }

    /// The layer of the leaves' weights.
    fn of(self, x: Tensor<2>, leaves: &Leaves) -> Tensor<2> {
        let layer = |i: usize| -> LinearParameters {
            let (weight, bias) = (leaves[i].clone(), leaves[i + 1].clone());
            let width = bias.dims()[1];
            (weight, Some(bias.reshape([width])))
        };
        let gate = self.gated.then(|| layer(1));
        if self.fused {
            return feed_forward(self.activation, x, gate, layer(3), layer(5));
        }
        let affine = |x: Tensor<2>, (weight, bias): LinearParameters| {
            x.matmul(weight.transpose()) + bias.unwrap().unsqueeze()
        };
        let activate = |x: Tensor<2>| match self.activation {
            Activation::Relu => relu(x),
            Activation::Gelu => gelu(x),
            Activation::Silu => silu(x),
            other => panic!("no reference for {other:?}"),
        };
        let up = affine(x.clone(), layer(3));
        let hidden = match gate {
            Some(gate) => activate(affine(x, gate)) * up,
            None => activate(up),
        };
        affine(hidden, layer(5))
    }

    /// The leaves that the layer reads.
    fn reads(self, leaf: usize) -> bool {
        self.gated || !NAMES[leaf].starts_with("gate")
    }
}

type Gradients = Vec<Option<Array>>;

fn array(x: Tensor<2>) -> Array {
    Array {
        shape: x.dims().to_vec(),
        values: values(x),
    }
}

/// The gradients of the leaves of a loss.
fn gradients(leaves: &Leaves, loss: Tensor<1>) -> Gradients {
    let all = loss.backward();
    let gradient = |leaf: &Tensor<2>| leaf.grad(&all).map(array);
    leaves.iter().map(gradient).collect()
}

fn compare(what: &str, layer: Layer, tracked: usize, ours: &Gradients, reference: &Gradients) {
    for (i, name) in NAMES.into_iter().enumerate() {
        let what = format!("{what}, {layer:?}, tracked {tracked:07b}: gradient of {name}");
        if tracked >> i & 1 == 0 || !layer.reads(i) {
            assert!(ours[i].is_none(), "{what} is there");
            continue;
        }
        let ours = ours[i].as_ref().unwrap_or_else(|| panic!("{what} is not"));
        let reference = reference[i].as_ref().unwrap();
        checks::compare(&what, ours, reference, 1.0, TOLERANCE).unwrap();
    }
}

/// Compares the gradients of a loss of a layer and leaves.
fn check(what: &str, loss: impl Fn(Layer, &Leaves) -> Tensor<1>) {
    Layer::all(|layer| {
        let run = |layer: Layer| {
            let leaves = leaves(ALL);
            gradients(&leaves, loss(layer, &leaves))
        };
        compare(what, layer, ALL, &run(layer), &run(layer.reference()));
    });
}

/// Every choice of frozen parts. Each pass reuses the buffers of the previous one, with its values in them.
#[test]
fn frozen_parts_change_no_gradient_of_the_others() {
    Layer::all(|layer| {
        let loss = |layer: Layer, leaves: &Leaves| loss_of(layer.of(leaves[0].clone(), leaves), 0);
        let all = leaves(ALL);
        let reference = gradients(&all, loss(layer.reference(), &all));
        for tracked in 1..=ALL {
            if !(0..NAMES.len()).any(|i| tracked >> i & 1 == 1 && layer.reads(i)) {
                continue;
            }
            let leaves = leaves(tracked);
            let ours = gradients(&leaves, loss(layer, &leaves));
            compare("frozen parts", layer, tracked, &ours, &reference);
        }
    });
}

#[test]
fn two_layers_share_input_and_weights() {
    check("both read", |layer, leaves| {
        let [one, two] = [0, 1].map(|i| loss_of(layer.of(leaves[0].clone(), leaves), i));
        one + two
    });
    check("one gradient flows into both", |layer, leaves| {
        let [one, two] = [0, 1].map(|_| layer.of(leaves[0].clone(), leaves));
        loss_of(one + two, 0)
    });
    check("each is the other's factor", |layer, leaves| {
        let [one, two] = [0, 1].map(|_| layer.of(leaves[0].clone(), leaves));
        loss_of(one * two, 0)
    });
    check("one after the other", |layer, leaves| {
        let one = layer.of(leaves[0].clone(), leaves);
        let two = layer.of(one.clone() * 0.1, leaves);
        loss_of(one, 0) + loss_of(two, 1)
    });
}

#[test]
fn a_hidden_state_is_read_again() {
    check("by two layers and the loss", |layer, leaves| {
        let state = leaves[0].clone().tanh();
        let [one, two] = [0, 1].map(|i| loss_of(layer.of(state.clone(), leaves), i));
        one + two + loss_of(state, 2)
    });
    check("around two layers, as a residual", |layer, leaves| {
        let state = leaves[0].clone().tanh();
        let state = state.clone() + layer.of(state, leaves) * 0.1;
        let state = state.clone() + layer.of(state, leaves) * 0.1;
        loss_of(state.clone() * state, 0)
    });
}

/// The input is a view of a tensor that another layer reads directly.
#[test]
fn a_view_shares_its_storage() {
    check("transposed", |layer, leaves| {
        let x = leaves[0].clone();
        let [one, two] = [x.clone(), x.transpose()].map(|x| layer.of(x, leaves));
        loss_of(one, 0) + loss_of(two, 1)
    });
    check("rows of it", |layer, leaves| {
        let x = leaves[0].clone();
        let rows = x.clone().slice([8..39, 0..WIDTH]);
        let one = layer.of(rows, leaves) * upstream(1).slice([0..31, 0..WIDTH]);
        loss_of(layer.of(x, leaves), 0) + one.sum()
    });
}

/// Two graphs on the same leaves, with backward passes in either order; no tensor changes.
#[test]
fn two_graphs_on_the_same_leaves_do_not_disturb_each_other() {
    Layer::all(|layer| {
        let leaves = leaves(ALL);
        let before = leaves.clone().map(array);
        let output = |layer: Layer| layer.of(leaves[0].clone(), &leaves);
        let expected = [0, 1].map(|i| gradients(&leaves, loss_of(output(layer.reference()), i)));
        for order in [[0, 1], [1, 0]] {
            let outputs = [0, 1].map(|_| output(layer));
            let values = outputs.clone().map(array);
            let losses = [0, 1].map(|i| loss_of(outputs[i].clone(), i));
            let passes = order.map(|i| losses[i].clone().backward());
            // Read after both: the second must not have overwritten the gradients of the first.
            for (i, pass) in order.into_iter().zip(&passes) {
                let gradient = |leaf: &Tensor<2>| leaf.grad(pass).map(array);
                let ours: Gradients = leaves.iter().map(gradient).collect();
                compare("two graphs", layer, ALL, &ours, &expected[i]);
            }
            assert_eq!(outputs.map(array), values, "{layer:?}: outputs changed");
        }
        assert_eq!(leaves.map(array), before, "{layer:?}: leaves changed");
    });
}

/// The same graph built again gives bitwise equal gradients.
#[test]
fn a_graph_built_again_gives_the_same_gradients() {
    Layer::all(|layer| {
        let leaves = leaves(ALL);
        let again = || gradients(&leaves, loss_of(layer.of(leaves[0].clone(), &leaves), 0));
        let first = again();
        for _ in 0..3 {
            assert_eq!(again(), first, "{layer:?}");
        }
    });
}

/// The sum is written to the branch's storage only if that is not shared.
#[test]
fn a_shared_branch_is_not_overwritten() {
    for device in [Device::flex(), Device::flex().autodiff()] {
        let [x, branch] = [0.7, 1.1].map(|pace| waves([WIDTH, WIDTH], pace, &device));
        let operands = NormParameters {
            kind: NormKind::Layer,
            weight: Tensor::ones([WIDTH], &device),
            bias: None,
            epsilon: 1e-5,
        };
        let before = [&x, &branch].map(|it| it.to_data());
        let expected = (x.clone() + branch.clone()).to_data();
        let [sum, _] = add_norm_with_sum(x.clone(), branch.clone(), operands.clone());
        assert_eq!(sum.to_data(), expected);
        assert_eq!([&x, &branch].map(|it| it.to_data()), before);
        let [twice, _] = add_norm_with_sum(x.clone(), x.clone(), operands);
        assert_eq!(twice.to_data(), (x.clone() + x.clone()).to_data());
        assert_eq!(x.to_data(), before[0]);
    }
}
