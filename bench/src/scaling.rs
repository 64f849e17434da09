//! Time and memory of attentions against the length, with a convolution and a recurrent layer for comparison. Grouped-query
//! and cosine attention, which are full attention with other projections, are left out.
//!
//! Multi-head attentions are measured without their projections, which are the same for all; the others as whole layers.

use attentive::model::attention::{
    AttendContext, Attention, AttentionConfig, AttentionInput, AttentionSpec, Qkv, Role, Widths,
};
use attentive::model::{AttentionSite, ForwardContext, Initializer, Linear};
use attentive::tensor::{Device, Tensor};
use burn::tensor::Distribution;
use burn::tensor::activation::sigmoid;
use serde_json::json;

use crate::report;

const WIDTH: usize = 768;
const HEADS: usize = 12;

/// What is measured: its name, its role, its config, and the longest sequence that fits in the memory of an ordinary machine.
#[rustfmt::skip]
const ATTENTIONS: &[(&str, Role, &str, usize)] = &[
    ("full", Role::Bidirectional, r#"{ "kind": "full", "heads": 12 }"#, 16_384),
    ("full_causal", Role::Causal, r#"{ "kind": "full", "heads": 12 }"#, 16_384),
    ("sliding_window", Role::Bidirectional, r#"{ "kind": "sliding_window", "heads": 12, "window": 256 }"#, 16_384),
    ("sliding_window_causal", Role::Causal, r#"{ "kind": "sliding_window", "heads": 12, "window": 256 }"#, 16_384),
    ("linear", Role::Bidirectional, r#"{ "kind": "linear", "heads": 12 }"#, 16_384),
    ("linear_causal", Role::Causal, r#"{ "kind": "linear", "heads": 12 }"#, 16_384),
    ("performer", Role::Bidirectional, r#"{ "kind": "performer", "heads": 12, "features": 256 }"#, 16_384),
    ("performer_causal", Role::Causal, r#"{ "kind": "performer", "heads": 12, "features": 256 }"#, 16_384),
    ("linformer", Role::Bidirectional, r#"{ "kind": "linformer", "heads": 12, "projected_length": 256, "sharing": "separate" }"#, 16_384),
    ("big_bird", Role::Bidirectional, r#"{ "kind": "big_bird", "heads": 12, "block": 64, "random_blocks": 3 }"#, 16_384),
    ("longformer", Role::Bidirectional, r#"{ "kind": "longformer", "heads": 12, "window": 512, "globals": 1 }"#, 16_384),
    ("reformer", Role::Bidirectional, r#"{ "kind": "reformer", "heads": 12, "buckets": 64, "hashes": 2, "chunk": 64, "chunks_after": 1 }"#, 16_384),
    ("scaled_dot", Role::Causal, r#"{ "kind": "scored", "score": { "kind": "scaled_dot" } }"#, 16_384),
    ("transformer_xl", Role::Causal, r#"{ "kind": "transformer_xl", "heads": 12, "memory": 16384 }"#, 8_192),
    ("argmax", Role::Causal, r#"{ "kind": "argmax", "heads": 12 }"#, 8_192),
    ("nadaraya_watson", Role::Causal, r#"{ "kind": "nadaraya_watson", "kernel": "gaussian", "width": 8.0 }"#, 1_024),
    ("additive", Role::Causal, r#"{ "kind": "scored", "score": { "kind": "additive", "hidden_width": 64 } }"#, 2_048),
];

/// Measures `scaling:NAME:LENGTH`; false if there is no such benchmark.
pub fn measure(work: &str, name: &str, length: usize) -> bool {
    let device = Device::flex();
    let x = Tensor::random([1, length, WIDTH], Distribution::Normal(0.0, 1.0), &device);
    let repeats = if length < 4096 { 5 } else { 2 };
    match name {
        "convolution" => {
            let projection = Linear::new(
                3 * WIDTH,
                WIDTH,
                true,
                0.02,
                &mut Initializer::new(1, &device),
            );
            report(work, repeats, 1, 1.0, || {
                drop(convolution(&projection, x.clone()))
            });
        }
        "recurrent" => {
            let gru = Gru::new(&device);
            report(work, repeats, 1, 1.0, || drop(gru.forward(x.clone())));
        }
        _ => {
            let found = ATTENTIONS.iter().find(|it| it.0 == name && length <= it.3);
            let Some((_, role, config, _)) = found else {
                return false;
            };
            attention(work, *role, config, x, repeats);
        }
    }
    true
}

/// Prints every name with its longest length and the full attention that it is compared with.
pub fn list() {
    for (name, role, _, longest) in ATTENTIONS {
        // A causal attention computes half of the pairs, and is compared with one that does too.
        let full = match role {
            Role::Causal => "full_causal",
            Role::Bidirectional | Role::Cross => "full",
        };
        let line = json!({ "name": name, "longest": longest, "full": full });
        println!("{line}");
    }
    for name in ["convolution", "recurrent"] {
        let line = json!({ "name": name, "longest": 16_384, "full": "full_causal" });
        println!("{line}");
    }
}

fn attention(work: &str, role: Role, config: &str, x: Tensor<3>, repeats: usize) {
    let [_, length, _] = x.dims();
    let device = x.device();
    let config: AttentionConfig = serde_json::from_str(config).expect("the config is valid");
    let spec = AttentionSpec::new(role, Widths::all(WIDTH), length);
    let layer = Attention::new(&config, &spec, &mut Initializer::new(1, &device))
        .expect("the config fits the role");
    let Attention::MultiHead(layer) = layer else {
        report(work, repeats, 1, 1.0, || {
            layer.forward(
                AttentionInput::self_attention(x.clone(), 0),
                &mut ForwardContext::default(),
            );
        });
        return;
    };
    let heads = || {
        let shape = [1, HEADS, length, WIDTH / HEADS];
        Tensor::<4>::random(shape, Distribution::Normal(0.0, 1.0), &device)
    };
    let qkv = Qkv {
        query: heads(),
        key: heads(),
        value: heads(),
    };
    report(work, repeats, 1, 1.0, || {
        let pass = &mut ForwardContext::default();
        let context = AttendContext::new(AttentionSite { layer: 0, role }, pass);
        layer.pattern().attend(qkv.clone(), context);
    });
}

/// A convolution with kernel size 3.
fn convolution(projection: &Linear, x: Tensor<3>) -> Tensor<3> {
    let [batch, length, width] = x.dims();
    let edge = Tensor::zeros([batch, 1, width], &x.device());
    let padded = Tensor::cat(vec![edge.clone(), x, edge], 1);
    let shifted = |from| padded.clone().narrow(1, from, length);
    projection.forward(Tensor::cat(vec![shifted(0), shifted(1), shifted(2)], 2))
}

/// A gated recurrent unit. Cho et al. 2014.
struct Gru {
    input: Linear,
    hidden: Linear,
}

impl Gru {
    fn new(device: &Device) -> Self {
        let initial = &mut Initializer::new(1, device);
        Self {
            input: Linear::new(WIDTH, 3 * WIDTH, true, 0.02, initial),
            hidden: Linear::new(WIDTH, 3 * WIDTH, true, 0.02, initial),
        }
    }

    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let [batch, length, width] = x.dims();
        let inputs = self.input.forward(x);
        let mut state = Tensor::<2>::zeros([batch, width], &inputs.device());
        let mut states = Vec::with_capacity(length);
        for position in 0..length {
            let input = inputs
                .clone()
                .narrow(1, position, 1)
                .reshape([batch, 3 * width]);
            let hidden = self.hidden.forward(state.clone());
            let third = |x: &Tensor<2>, index: usize| x.clone().narrow(1, index * width, width);
            let reset = sigmoid(third(&input, 0) + third(&hidden, 0));
            let update = sigmoid(third(&input, 1) + third(&hidden, 1));
            let new = (third(&input, 2) + reset * third(&hidden, 2)).tanh();
            state = new.clone() + update * (state - new);
            states.push(state.clone().reshape([batch, 1, width]));
        }
        Tensor::cat(states, 1)
    }
}
