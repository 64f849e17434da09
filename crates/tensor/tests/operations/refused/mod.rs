//! What every operation refuses: operands that do not match each other, with the operation's name and both shapes, and
//! values out of range.

mod attentions;

use std::panic::{AssertUnwindSafe, catch_unwind};

use attentive_tensor::{
    Activation, AdamWState, AdamWStep, Device, Int, LinearParameters, Mask, NormKind,
    NormParameters, RotaryAngles, Scores, Tensor, activated_linear, adamw, add, add_norm,
    add_norm_with_sum, attention, cross_entropy, dropout, embedding, feed_forward, gated, linear,
    linear_qkv, merge_partial_attention, norm, norm_with_input, rotary,
};

/// An operation, what its message must contain besides its name, and the call.
pub struct Refusal {
    pub operation: &'static str,
    fragments: [&'static str; 2],
    call: Box<dyn Fn()>,
}

impl Refusal {
    /// Panics unless the call does, with the message that it should.
    pub fn check(&self) {
        let payload = catch_unwind(AssertUnwindSafe(&self.call));
        let payload = payload.expect_err(&format!("{} of {:?}", self.operation, self.fragments));
        let message = match payload.downcast_ref::<String>() {
            Some(message) => message.as_str(),
            None => payload.downcast_ref::<&str>().unwrap(),
        };
        let begins = message.contains(&format!("{}: ", self.operation));
        let contains = |what: &&str| message.contains(what);
        assert!(
            begins && self.fragments.iter().all(contains),
            "{} of {:?}: {message}",
            self.operation,
            self.fragments
        );
    }
}

fn ones<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    Tensor::ones(shape, &Device::flex())
}

/// Shapes that do not match, of every operation that takes more than one tensor.
pub fn shapes() -> Vec<Refusal> {
    let mut all = Vec::new();
    let mut refuse = |operation, fragments, call: Box<dyn Fn()>| {
        all.push(Refusal {
            operation,
            fragments,
            call,
        });
    };
    linear_layers(&mut refuse);
    norms(&mut refuse);
    attentions::softmax(&mut refuse);
    attentions::linear(&mut refuse);
    refuse(
        "add",
        ["[2, 3]", "[3, 2]"],
        Box::new(|| drop(add(ones([2, 3]), ones([3, 2])))),
    );
    // Burn would broadcast the one row.
    refuse(
        "add",
        ["[2, 3]", "[1, 3]"],
        Box::new(|| drop(add(ones([2, 3]), ones([1, 3])))),
    );
    refuse(
        "gated",
        ["[2, 3]", "[1, 3]"],
        Box::new(|| drop(gated(Activation::Silu, ones([2, 3]), ones([1, 3])))),
    );
    for (x, fragment) in [
        ([2, 3, 5, 4], "[2, 3, 5, 4]"),
        ([2, 3, 6, 8], "[2, 3, 6, 8]"),
        ([3, 2, 6, 4], "[3, 2, 6, 4]"),
    ] {
        refuse(
            "rotary",
            [fragment, "[2, 6, 2]"],
            Box::new(move || {
                let positions = Tensor::<2, Int>::zeros([2, 6], &Device::flex());
                let angles = RotaryAngles::from_frequencies(positions, &[1.0, 0.1], 1.0);
                rotary(ones(x), &angles);
            }),
        );
    }
    for (logits, targets, fragments) in [
        ([3, 5], 2, ["[3, 5]", "[2]"]),
        ([2, 0], 2, ["[2, 0]", "[2]"]),
    ] {
        refuse(
            "cross_entropy",
            fragments,
            Box::new(move || {
                let targets = Tensor::<1, Int>::zeros([targets], &Device::flex());
                cross_entropy(ones(logits), targets, 0.0);
            }),
        );
    }
    for (first, second, gradient) in [(1, 4, 4), (4, 1, 4), (4, 4, 1)] {
        refuse(
            "adamw",
            ["[4]", "[1]"],
            Box::new(move || {
                let state = AdamWState {
                    value: ones([4]),
                    first_moment: ones([first]),
                    second_moment: ones([second]),
                };
                adamw(&step(), state, ones([gradient]));
            }),
        );
    }
    all
}

/// Numbers out of range. (Ids and targets only of kernels: on other devices, reading them would synchronize.)
pub fn values() -> Vec<Refusal> {
    let ids = |id: i32| Tensor::<2, Int>::from_ints([[0, id]], &Device::flex());
    let targets = |id: i32| Tensor::<1, Int>::from_ints([0, id], &Device::flex());
    let calls: [(_, _, Box<dyn Fn()>); 8] = [
        (
            "merge_partial_attention",
            ["no", "parts"],
            Box::new(|| drop(merge_partial_attention(Vec::new()))),
        ),
        (
            "dropout",
            ["1", "[0, 1)"],
            Box::new(|| drop(dropout(ones([2]), 1.0, None))),
        ),
        (
            "attention",
            ["-0.1", "[0, 1)"],
            Box::new(|| {
                let heads = || ones([1, 1, 2, 2]);
                let scores = Scores::new(Mask::none(), 1.0);
                attention(heads(), heads(), heads(), &scores, -0.1, None);
            }),
        ),
        (
            "cross_entropy",
            ["1.5", "[0, 1]"],
            Box::new(move || {
                cross_entropy(ones([2, 3]), targets(0), 1.5);
            }),
        ),
        (
            "cross_entropy",
            ["target 3 ", "vocabulary of 3"],
            Box::new(move || {
                cross_entropy(ones([2, 3]), targets(3), 0.0);
            }),
        ),
        (
            "cross_entropy",
            ["target -1 ", "vocabulary of 3"],
            Box::new(move || {
                cross_entropy(ones([2, 3]), targets(-1), 0.0);
            }),
        ),
        (
            "embedding",
            ["id 3 ", "table of 3"],
            Box::new(move || drop(embedding(ones([3, 2]), ids(3)))),
        ),
        (
            "embedding",
            ["id -1 ", "table of 3"],
            Box::new(move || drop(embedding(ones([3, 2]), ids(-1)))),
        ),
    ];
    let refusal = |(operation, fragments, call)| Refusal {
        operation,
        fragments,
        call,
    };
    calls.into_iter().map(refusal).collect()
}

type Refuse<'a> = &'a mut dyn FnMut(&'static str, [&'static str; 2], Box<dyn Fn()>);

fn linear_layers(refuse: Refuse) {
    // Input, weight and bias: a size of the weight or the bias is wrong, also where burn would broadcast it.
    let wrong = [
        ([2, 3], [5, 4], None, ["[2, 3]", "[5, 4]"]),
        ([2, 4], [5, 4], Some(4), ["[4]", "[5, 4]"]),
        ([2, 4], [5, 4], Some(1), ["[1]", "[5, 4]"]),
    ];
    for (x, weight, bias, fragments) in wrong {
        let map = move || -> LinearParameters { (ones(weight), bias.map(|width| ones([width]))) };
        let right = move || -> LinearParameters { (ones([5, x[1]]), None) };
        refuse(
            "linear",
            fragments,
            Box::new(move || drop(linear(ones(x), map().0, map().1))),
        );
        refuse(
            "activated_linear",
            fragments,
            Box::new(move || {
                activated_linear(Activation::Relu, ones(x), map().0, map().1);
            }),
        );
        let silu = Activation::Silu;
        let down = || -> LinearParameters { (ones([3, 5]), None) };
        refuse(
            "feed_forward",
            fragments,
            Box::new(move || {
                feed_forward(silu, ones(x), Some(map()), right(), down());
            }),
        );
        refuse(
            "feed_forward",
            fragments,
            Box::new(move || {
                feed_forward(silu, ones(x), Some(right()), map(), down());
            }),
        );
        refuse(
            "feed_forward",
            fragments,
            Box::new(move || drop(feed_forward(silu, ones(x), None, map(), down()))),
        );
        // What comes to `down` has the input's rows and its own width.
        for gated in [false, true] {
            refuse(
                "feed_forward",
                fragments,
                Box::new(move || {
                    let first = || -> LinearParameters { (ones([x[1], 7]), None) };
                    let gate = gated.then(first);
                    feed_forward(silu, ones([x[0], 7]), gate, first(), map());
                }),
            );
        }
        refuse(
            "linear_qkv",
            fragments,
            Box::new(move || {
                linear_qkv(ones(x), [right(), right(), map()]);
            }),
        );
    }
    // Two hidden widths, also where burn would broadcast one of them, or where `down` fits either.
    for (gate, up, down, fragments) in [
        ([5, 4], [1, 4], [3, 1], ["[5, 4]", "[1, 4]"]),
        ([1, 4], [5, 4], [3, 5], ["[1, 4]", "[5, 4]"]),
        ([5, 4], [6, 4], [3, 5], ["[5, 4]", "[6, 4]"]),
        ([5, 4], [5, 3], [3, 5], ["[2, 4]", "[5, 3]"]),
        ([5, 4], [5, 4], [5, 3], ["[2, 5]", "[5, 3]"]),
        ([5, 4], [5, 4], [3, 1], ["[2, 5]", "[3, 1]"]),
    ] {
        refuse(
            "feed_forward",
            fragments,
            Box::new(move || {
                let [gate, up, down] = [gate, up, down].map(|it| (ones(it), None));
                feed_forward(Activation::Gelu, ones([2, 4]), Some(gate), up, down);
            }),
        );
    }
}

fn norms(refuse: Refuse) {
    for kind in [NormKind::Layer, NormKind::Rms] {
        for (weight, bias, fragments) in [
            (4, None, ["[2, 3]", "[4]"]),
            (1, None, ["[2, 3]", "[1]"]),
            (3, Some(1), ["[1]", "[3]"]),
        ] {
            let operands = move || NormParameters {
                kind,
                weight: ones([weight]),
                bias: bias.map(|width| ones([width])),
                epsilon: 1e-5,
            };
            let x = || ones([2, 3]);
            refuse(
                "norm",
                fragments,
                Box::new(move || drop(norm(x(), operands()))),
            );
            refuse(
                "norm_with_input",
                fragments,
                Box::new(move || drop(norm_with_input(x(), operands()))),
            );
            refuse(
                "add_norm",
                fragments,
                Box::new(move || drop(add_norm(x(), x(), operands()))),
            );
            refuse(
                "add_norm_with_sum",
                fragments,
                Box::new(move || drop(add_norm_with_sum(x(), x(), operands()))),
            );
        }
        let operands = move || NormParameters {
            kind,
            weight: ones([3]),
            bias: None,
            epsilon: 1e-5,
        };
        let (x, branch, fragments) = (|| ones([2, 3]), || ones([1, 3]), ["[2, 3]", "[1, 3]"]);
        refuse(
            "add_norm",
            fragments,
            Box::new(move || drop(add_norm(x(), branch(), operands()))),
        );
        refuse(
            "add_norm_with_sum",
            fragments,
            Box::new(move || drop(add_norm_with_sum(x(), branch(), operands()))),
        );
    }
}

fn step() -> AdamWStep {
    AdamWStep {
        learning_rate: 0.1,
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.0,
        step: 1,
        gradient_scale: 1.0,
    }
}
