//! What every operation refuses: operands that do not fit each other, with the operation's name and both shapes, and
//! numbers out of range.

mod attentions;

use std::panic::{AssertUnwindSafe, catch_unwind};

use attentive_tensor::{
    Activation, AdamWState, AdamWStep, Device, Int, LinearMap, Mask, NormKind, NormOperands,
    RotaryAngles, Scores, Tensor, activated_linear, adamw, add, attention, cross_entropy, dropout,
    embedding, feed_forward, gated, linear, merge_attended, norm, norm_beside, norm_beside_sum,
    norm_of_sum, rotary, three_linears,
};

/// An operation, what its message must hold besides its name, and the call.
pub struct Refusal {
    pub operation: &'static str,
    holds: [&'static str; 2],
    call: Box<dyn Fn()>,
}

impl Refusal {
    /// Panics unless the call does, with the message that it should.
    pub fn check(&self) {
        let payload = catch_unwind(AssertUnwindSafe(&self.call));
        let payload = payload.expect_err(&format!("{} of {:?}", self.operation, self.holds));
        let message = match payload.downcast_ref::<String>() {
            Some(message) => message.as_str(),
            None => payload.downcast_ref::<&str>().unwrap(),
        };
        let begins = message.contains(&format!("{}: ", self.operation));
        let holds = |what: &&str| message.contains(what);
        assert!(
            begins && self.holds.iter().all(holds),
            "{} of {:?}: {message}",
            self.operation,
            self.holds
        );
    }
}

fn ones<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    Tensor::ones(shape, &Device::flex())
}

/// Shapes that do not fit, of every operation that takes more than one tensor.
pub fn shapes() -> Vec<Refusal> {
    let mut all = Vec::new();
    let mut refuse = |operation, holds, call: Box<dyn Fn()>| {
        all.push(Refusal {
            operation,
            holds,
            call,
        });
    };
    linear_maps(&mut refuse);
    norms(&mut refuse);
    attentions::softmax(&mut refuse);
    attentions::linear(&mut refuse);
    refuse(
        "add",
        ["[2, 3]", "[3, 2]"],
        Box::new(|| drop(add(ones([2, 3]), ones([3, 2])))),
    );
    // Burn would repeat the one row.
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
    for (x, needle) in [
        ([2, 3, 5, 4], "[2, 3, 5, 4]"),
        ([2, 3, 6, 8], "[2, 3, 6, 8]"),
        ([3, 2, 6, 4], "[3, 2, 6, 4]"),
    ] {
        refuse(
            "rotary",
            [needle, "[2, 6, 2]"],
            Box::new(move || {
                let positions = Tensor::<2, Int>::zeros([2, 6], &Device::flex());
                rotary(ones(x), &RotaryAngles::new(positions, 4, 100.0));
            }),
        );
    }
    for (logits, targets, holds) in [
        ([3, 5], 2, ["[3, 5]", "[2]"]),
        ([2, 0], 2, ["[2, 0]", "[2]"]),
    ] {
        refuse(
            "cross_entropy",
            holds,
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
                    first: ones([first]),
                    second: ones([second]),
                };
                adamw(&step(), state, ones([gradient]));
            }),
        );
    }
    all
}

/// Numbers out of range. (Ids and targets only for kernels: elsewhere nobody can look at them without waiting.)
pub fn numbers() -> Vec<Refusal> {
    let ids = |id: i32| Tensor::<2, Int>::from_ints([[0, id]], &Device::flex());
    let targets = |id: i32| Tensor::<1, Int>::from_ints([0, id], &Device::flex());
    let calls: [(_, _, Box<dyn Fn()>); 9] = [
        (
            "merge_attended",
            ["no", "parts"],
            Box::new(|| drop(merge_attended(Vec::new()))),
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
            "rotary",
            ["5", "even"],
            Box::new(move || drop(RotaryAngles::new(ids(1), 5, 100.0))),
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
    let refusal = |(operation, holds, call)| Refusal {
        operation,
        holds,
        call,
    };
    calls.into_iter().map(refusal).collect()
}

type Refuse<'a> = &'a mut dyn FnMut(&'static str, [&'static str; 2], Box<dyn Fn()>);

fn linear_maps(refuse: Refuse) {
    // Input, weight and bias: one of the weight's sizes is wrong, or the bias is, also where burn would repeat it.
    let wrong = [
        ([2, 3], [5, 4], None, ["[2, 3]", "[5, 4]"]),
        ([2, 4], [5, 4], Some(4), ["[4]", "[5, 4]"]),
        ([2, 4], [5, 4], Some(1), ["[1]", "[5, 4]"]),
    ];
    for (x, weight, bias, holds) in wrong {
        let map = move || -> LinearMap { (ones(weight), bias.map(|width| ones([width]))) };
        let right = move || -> LinearMap { (ones([5, x[1]]), None) };
        refuse(
            "linear",
            holds,
            Box::new(move || drop(linear(ones(x), map().0, map().1))),
        );
        refuse(
            "activated_linear",
            holds,
            Box::new(move || {
                activated_linear(Activation::Relu, ones(x), map().0, map().1);
            }),
        );
        let silu = Activation::Silu;
        let down = || -> LinearMap { (ones([3, 5]), None) };
        refuse(
            "feed_forward",
            holds,
            Box::new(move || {
                feed_forward(silu, ones(x), Some(map()), right(), down());
            }),
        );
        refuse(
            "feed_forward",
            holds,
            Box::new(move || {
                feed_forward(silu, ones(x), Some(right()), map(), down());
            }),
        );
        refuse(
            "feed_forward",
            holds,
            Box::new(move || drop(feed_forward(silu, ones(x), None, map(), down()))),
        );
        // What comes to `down` has the input's rows and its own width.
        for gated in [false, true] {
            refuse(
                "feed_forward",
                holds,
                Box::new(move || {
                    let first = || -> LinearMap { (ones([x[1], 7]), None) };
                    let gate = gated.then(first);
                    feed_forward(silu, ones([x[0], 7]), gate, first(), map());
                }),
            );
        }
        refuse(
            "three_linears",
            holds,
            Box::new(move || {
                three_linears(ones(x), [right(), right(), map()]);
            }),
        );
    }
    // Two hidden widths, also where burn would repeat one of them, or where `down` fits either.
    for (gate, up, down, holds) in [
        ([5, 4], [1, 4], [3, 1], ["[5, 4]", "[1, 4]"]),
        ([1, 4], [5, 4], [3, 5], ["[1, 4]", "[5, 4]"]),
        ([5, 4], [6, 4], [3, 5], ["[5, 4]", "[6, 4]"]),
        ([5, 4], [5, 3], [3, 5], ["[2, 4]", "[5, 3]"]),
        ([5, 4], [5, 4], [5, 3], ["[2, 5]", "[5, 3]"]),
        ([5, 4], [5, 4], [3, 1], ["[2, 5]", "[3, 1]"]),
    ] {
        refuse(
            "feed_forward",
            holds,
            Box::new(move || {
                let [gate, up, down] = [gate, up, down].map(|it| (ones(it), None));
                feed_forward(Activation::Gelu, ones([2, 4]), Some(gate), up, down);
            }),
        );
    }
}

fn norms(refuse: Refuse) {
    for kind in [NormKind::Layer, NormKind::Rms] {
        for (weight, bias, holds) in [
            (4, None, ["[2, 3]", "[4]"]),
            (1, None, ["[2, 3]", "[1]"]),
            (3, Some(1), ["[1]", "[3]"]),
        ] {
            let operands = move || NormOperands {
                kind,
                weight: ones([weight]),
                bias: bias.map(|width| ones([width])),
                epsilon: 1e-5,
            };
            let x = || ones([2, 3]);
            refuse("norm", holds, Box::new(move || drop(norm(x(), operands()))));
            refuse(
                "norm_beside",
                holds,
                Box::new(move || drop(norm_beside(x(), operands()))),
            );
            refuse(
                "norm_of_sum",
                holds,
                Box::new(move || drop(norm_of_sum(x(), x(), operands()))),
            );
            refuse(
                "norm_beside_sum",
                holds,
                Box::new(move || drop(norm_beside_sum(x(), x(), operands()))),
            );
        }
        let operands = move || NormOperands {
            kind,
            weight: ones([3]),
            bias: None,
            epsilon: 1e-5,
        };
        let (x, branch, holds) = (|| ones([2, 3]), || ones([1, 3]), ["[2, 3]", "[1, 3]"]);
        refuse(
            "norm_of_sum",
            holds,
            Box::new(move || drop(norm_of_sum(x(), branch(), operands()))),
        );
        refuse(
            "norm_beside_sum",
            holds,
            Box::new(move || drop(norm_beside_sum(x(), branch(), operands()))),
        );
    }
}

fn step() -> AdamWStep {
    AdamWStep {
        rate: 0.1,
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        decay: 0.0,
        step: 1,
        gradient_scale: 1.0,
    }
}
