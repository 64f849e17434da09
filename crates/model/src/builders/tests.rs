//! Settings made in Rust have the defaults of settings read from files, and are the same settings.

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::attention::*;
use crate::block::{BlockConfig, NormPlacement};
use crate::embeddings::*;
use crate::feed_forward::*;
use crate::head::*;
use crate::positions::*;
use crate::{Activation, ModelConfig, NormConfig, StackConfig};

fn check<T: DeserializeOwned + PartialEq + Debug>(made: T, file: Value) {
    let read: T = serde_json::from_value(file).unwrap();
    assert_eq!(made, read);
}

#[test]
fn constructors_of_attention_have_the_defaults_of_files() {
    check(FullAttentionConfig::new(4), json!({ "heads": 4 }));
    check(
        SlidingWindowConfig::new(4, 8),
        json!({ "heads": 4, "window": 8 }),
    );
    check(CosineConfig::new(4), json!({ "heads": 4 }));
    check(ArgmaxConfig::new(4), json!({ "heads": 4 }));
    check(LinearAttentionConfig::new(4), json!({ "heads": 4 }));
    check(
        PerformerConfig::new(4, 16),
        json!({ "heads": 4, "features": 16 }),
    );
    check(
        LinformerConfig::new(4, 8),
        json!({ "heads": 4, "projected_length": 8 }),
    );
    check(
        TransformerXlConfig::new(4, 8),
        json!({ "heads": 4, "memory": 8 }),
    );
    check(
        LongformerConfig::new(4, 8),
        json!({ "heads": 4, "window": 8 }),
    );
    check(
        BigBirdConfig::new(4, 8, 2),
        json!({ "heads": 4, "block": 8, "random_blocks": 2 }),
    );
    check(
        ReformerConfig::new(4, 8, 2, 16),
        json!({ "heads": 4, "buckets": 8, "hashes": 2, "chunk": 16 }),
    );
    check(ChunksConfig::new(4, 8), json!({ "heads": 4, "chunk": 8 }));
    check(
        ScoredConfig::new(ScoreConfig::ScaledDot {}),
        json!({ "score": { "kind": "scaled_dot" } }),
    );
    check(
        NadarayaWatsonConfig::new(KernelShape::Gaussian),
        json!({ "kernel": "gaussian" }),
    );
    check(
        PaddingConfig::new(8, 4),
        json!({ "multiple_of": 8, "beyond": 4 }),
    );
}

#[test]
fn constructors_of_other_parts_have_the_defaults_of_files() {
    check(PlainConfig::new(8), json!({ "hidden_width": 8 }));
    check(GatedConfig::new(8), json!({ "hidden_width": 8 }));
    check(
        ExpertsConfig::new(4, 2, 8),
        json!({ "experts": 4, "active": 2, "hidden_width": 8 }),
    );
    check(LearnedConfig::default(), json!({}));
    check(SinusoidalConfig::default(), json!({}));
    check(RotaryConfig::default(), json!({}));
    check(T5BucketsConfig::default(), json!({}));
    check(
        AxialConfig::new([2, 3], [4, 5]),
        json!({ "shape": [2, 3], "widths": [4, 5] }),
    );
    check(
        YarnScaling::new(4.0, 64),
        json!({ "factor": 4.0, "original_length": 64 }),
    );
    check(
        Llama3Scaling::new(4.0, 64),
        json!({ "factor": 4.0, "original_length": 64 }),
    );
    check(NormConfig::layer(), json!({ "kind": "layer" }));
    check(NormConfig::rms(), json!({ "kind": "rms" }));
    check(EmbeddingConfig::default(), json!({}));
    check(
        AdaptiveEmbeddingConfig::new([20, 38], 16, 2),
        json!({ "cutoffs": [20, 38], "width": 16, "divisor": 2 }),
    );
    check(
        AdaptiveSoftmaxConfig::new([false, true]),
        json!({ "tied_projections": [false, true] }),
    );
    check(
        PatchesConfig::new([8, 16], 4),
        json!({ "height": 8, "width": 16, "size": 4 }),
    );
}

#[test]
fn constructors_of_heads_and_models_have_the_defaults_of_files() {
    check(LmHeadConfig::default(), json!({}));
    check(PoolerProjection::default(), json!({}));
    check(
        TransformConfig::new(Activation::Gelu, NormConfig::layer()),
        json!({ "activation": "gelu", "norm": { "kind": "layer" } }),
    );
    check(
        PoolerConfig::new(PooledFrom::First),
        json!({ "from": "first" }),
    );
    check(SequenceClassifierConfig::new(3), json!({ "classes": 3 }));
    check(TokenClassifierConfig::new(3), json!({ "labels": 3 }));
    check(
        TokenClassifierConfig::span(),
        json!({ "labels": 2, "task": "span" }),
    );
    let plain = json!({ "kind": "plain", "hidden_width": 8 });
    check(
        TokenClassifierLayer::new(PlainConfig::new(8), NormConfig::layer()),
        json!({ "feed_forward": plain, "norm": { "kind": "layer" } }),
    );
    let block = json!({
        "norm": { "kind": "layer" },
        "attention": { "kind": "full", "heads": 4 },
        "feed_forward": plain,
    });
    let made = BlockConfig::pre_norm(FullAttentionConfig::new(4), PlainConfig::new(8));
    check(made, block);
    let stack = json!({
        "vocabulary": 10, "length": 8, "width": 4, "positions": { "kind": "learned" }, "blocks": [],
    });
    check(StackConfig::new(10, 8, 4), stack.clone());
    check(ModelConfig::decoder(10, 8, 4), stack);
}

#[test]
fn settings_of_each_kind_and_chained_setters_are_those_of_files() {
    let block = BlockConfig::post_norm(
        SlidingWindowConfig::new(4, 2).with_bias(true),
        GatedConfig::new(8).with_activation(Activation::Gelu),
    );
    let block = block
        .with_norm(NormConfig::rms().with_epsilon(1e-6))
        .with_cross(FullAttentionConfig::new(4).with_head_width(3));
    let other = BlockConfig::pre_norm(ArgmaxConfig::new(4), ExpertsConfig::new(4, 2, 8))
        .with_placement(NormPlacement::Both);
    let scaling = YarnScaling::new(4.0, 64).with_truncate(false);
    let positions = RotaryConfig::default()
        .with_theta(500.0)
        .with_scaling(scaling);
    let encoder = StackConfig::new(10, 8, 16)
        .with_role(Role::Bidirectional)
        .with_positions(PositionsConfig::Alibi {});
    let made = ModelConfig::decoder(10, 8, 16)
        .with_positions(positions)
        .blocks(2, block)
        .blocks(1, other)
        .with_order([0, 1, 2, 2])
        .with_head(LmHeadConfig::default().with_bias(true))
        .with_pooler(PoolerConfig::new(PooledFrom::Mean))
        .with_encoder(encoder);
    check(
        made,
        json!({
            "vocabulary": 10, "length": 8, "width": 16,
            "positions": {
                "kind": "rotary", "theta": 500.0,
                "scaling": { "kind": "yarn", "factor": 4.0, "original_length": 64, "truncate": false },
            },
            "blocks": [
                {
                    "repeat": 2, "placement": "after", "norm": { "kind": "rms", "epsilon": 1e-6 },
                    "attention": { "kind": "sliding_window", "heads": 4, "window": 2, "bias": true },
                    "cross": { "kind": "full", "heads": 4, "head_width": 3 },
                    "feed_forward": { "kind": "gated", "hidden_width": 8, "activation": "gelu" },
                },
                {
                    "placement": "both", "norm": { "kind": "layer" },
                    "attention": { "kind": "argmax", "heads": 4 },
                    "feed_forward": { "kind": "experts", "experts": 4, "active": 2, "hidden_width": 8 },
                },
            ],
            "order": [0, 1, 2, 2],
            "head": { "lm_head": { "bias": true } },
            "pooler": { "from": "mean" },
            "encoder": {
                "vocabulary": 10, "length": 8, "width": 16, "role": "bidirectional",
                "positions": { "kind": "alibi" }, "blocks": [],
            },
        }),
    );
}

#[test]
fn a_stack_of_images_is_as_long_as_their_patches_and_tokens() {
    let config = ModelConfig::image_encoder(PatchesConfig::new([8, 16], 4).with_tokens(2), 12);
    assert_eq!(config.stack.length, 2 * 4 + 2);
    assert_eq!(config.stack.role, Role::Bidirectional);
    // Refused by its name when built, not a division by zero.
    let config = ModelConfig::image_encoder(PatchesConfig::new([8, 16], 0), 12);
    assert_eq!(config.validate().unwrap_err().field, "patches.size");
}
