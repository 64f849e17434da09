//! Configs of every kind of attention, small enough for finite differences. A new kind adds its line here.

use crate::registered;

/// Whether a kind's gradient can be compared with finite differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gradient {
    /// The gradient is the derivative of the output.
    Exact,
    /// The gradient is that of another function: the output is a step function.
    StraightThrough,
}

/// Which changes of later tokens must not affect earlier outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaterTokens {
    /// Any.
    Replaced,
    /// Scaling only: hashing depends on the direction of all tokens.
    Scaled,
}

/// One layer.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    pub name: &'static str,
    pub config: &'static str,
    pub gradient: Gradient,
    pub later_tokens: LaterTokens,
}

const fn example(name: &'static str, config: &'static str) -> Example {
    Example {
        name,
        config,
        gradient: Gradient::Exact,
        later_tokens: LaterTokens::Replaced,
    }
}

/// All examples. Their kinds are registered from now on.
pub fn examples() -> &'static [Example] {
    registered::register();
    EXAMPLES
}

/// For width 16 and sequences of up to 24 positions.
#[rustfmt::skip]
const EXAMPLES: &[Example] = &[
    example("full", r#"{ "kind": "full", "heads": 4, "bias": true }"#),
    example("full, grouped", r#"{ "kind": "full", "heads": 4, "key_value_heads": 2 }"#),
    example("full, multi-query", r#"{ "kind": "full", "heads": 4, "key_value_heads": 1, "head_width": 6 }"#),
    example("full, QK norm", r#"{ "kind": "full", "heads": 4, "key_value_heads": 2, "head_norm": { "kind": "rms" } }"#),
    example("sliding window", r#"{ "kind": "sliding_window", "heads": 4, "window": 3 }"#),
    example("sliding window, of 1", r#"{ "kind": "sliding_window", "heads": 4, "window": 1 }"#),
    example("sliding window, QK layer norm", r#"{ "kind": "sliding_window", "heads": 4, "window": 3, "head_norm": { "kind": "layer" } }"#),
    example("dot", r#"{ "kind": "scored", "score": { "kind": "dot" } }"#),
    example("scaled dot", r#"{ "kind": "scored", "score": { "kind": "scaled_dot" } }"#),
    example("bilinear", r#"{ "kind": "scored", "score": { "kind": "bilinear" } }"#),
    example("additive", r#"{ "kind": "scored", "score": { "kind": "additive", "hidden_width": 5 } }"#),
    example("scaled dot, heads", r#"{ "kind": "scored", "score": { "kind": "scaled_dot" }, "heads": 4 }"#),
    example("bilinear, heads", r#"{ "kind": "scored", "score": { "kind": "bilinear" }, "heads": 4 }"#),
    example("additive, heads", r#"{ "kind": "scored", "score": { "kind": "additive", "hidden_width": 5 }, "heads": 2 }"#),
    example("cosine", r#"{ "kind": "cosine", "heads": 4, "key_value_heads": 2 }"#),
    Example {
        gradient: Gradient::StraightThrough,
        ..example("argmax", r#"{ "kind": "argmax", "heads": 4, "key_value_heads": 2 }"#)
    },
    example("linformer", r#"{ "kind": "linformer", "heads": 4, "projected_length": 5 }"#),
    example("linformer, shared projection", r#"{ "kind": "linformer", "heads": 4, "projected_length": 5, "sharing": "key_value" }"#),
    example("linformer, projection per head", r#"{ "kind": "linformer", "heads": 4, "key_value_heads": 2, "projected_length": 5, "sharing": "per_head" }"#),
    example("nadaraya-watson, gaussian", r#"{ "kind": "nadaraya_watson", "kernel": "gaussian", "width": 2, "learn_width": "learned" }"#),
    example("nadaraya-watson, leave-one-out", r#"{ "kind": "nadaraya_watson", "kernel": "gaussian", "width": 2, "query_position": "left_out" }"#),
    example("nadaraya-watson, epanechnikov", r#"{ "kind": "nadaraya_watson", "kernel": "epanechnikov", "width": 9, "learn_width": "learned" }"#),
    example("nadaraya-watson, boxcar", r#"{ "kind": "nadaraya_watson", "kernel": "boxcar", "width": 6.1 }"#),
    example("nadaraya-watson, constant", r#"{ "kind": "nadaraya_watson", "kernel": "constant" }"#),
    example("nadaraya-watson, heads", r#"{ "kind": "nadaraya_watson", "kernel": "gaussian", "heads": 4, "learn_width": "learned" }"#),
    example("transformer-xl", r#"{ "kind": "transformer_xl", "heads": 4, "memory": 24 }"#),
    example("transformer-xl, clamped", r#"{ "kind": "transformer_xl", "heads": 4, "memory": 24, "window": 9, "max_distance": 4 }"#),
    example("linear", r#"{ "kind": "linear", "heads": 4, "key_value_heads": 2 }"#),
    example("linear, softplus", r#"{ "kind": "linear", "heads": 4, "map": "softplus", "bias": true }"#),
    example("linear, QK norm", r#"{ "kind": "linear", "heads": 4, "head_norm": { "kind": "rms" } }"#),
    example("performer", r#"{ "kind": "performer", "heads": 4, "features": 9 }"#),
    example("longformer", r#"{ "kind": "longformer", "heads": 4, "window": 4, "bias": true }"#),
    example("longformer, dilated", r#"{ "kind": "longformer", "heads": 4, "window": 4, "dilation": 3 }"#),
    example("longformer, global", r#"{ "kind": "longformer", "heads": 4, "key_value_heads": 2, "window": 2, "globals": 2 }"#),
    example("longformer, dilated and global", r#"{ "kind": "longformer", "heads": 4, "window": 2, "dilation": 2, "globals": 2 }"#),
    example("big_bird", r#"{ "kind": "big_bird", "heads": 4, "block": 3, "random_blocks": 1 }"#),
    example("big_bird, small blocks", r#"{ "kind": "big_bird", "heads": 4, "key_value_heads": 2, "block": 1, "random_blocks": 2, "seed": 3 }"#),
    example("big_bird, in training", r#"{ "kind": "big_bird", "heads": 4, "block": 2, "random_blocks": 2, "sampling": "in_training", "full_length": 3 }"#),
    example("transformer-xl, biases", r#"{ "kind": "transformer_xl", "heads": 2, "head_width": 5, "memory": 11, "bias": true }"#),
    // With these seeds, no vector changes its bucket when finite differences move it.
    Example {
        later_tokens: LaterTokens::Scaled,
        ..example("reformer", r#"{ "kind": "reformer", "heads": 2, "buckets": 4, "hashes": 2, "chunk": 4, "seed": 5 }"#)
    },
    Example {
        later_tokens: LaterTokens::Scaled,
        ..example("reformer, both sides", r#"{ "kind": "reformer", "heads": 2, "buckets": 4, "hashes": 1, "chunk": 3, "chunks_after": 1, "seed": 5 }"#)
    },
    Example {
        later_tokens: LaterTokens::Scaled,
        ..example("reformer, factors", r#"{ "kind": "reformer", "heads": 2, "buckets": 8, "factors": [2, 4], "hashes": 1, "chunk": 4, "seed": 5, "generator": "torch", "padding": { "multiple_of": 8, "beyond": 2 } }"#)
    },
    example("chunks", r#"{ "kind": "chunks", "heads": 4, "chunk": 4, "bias": true }"#),
    example("chunks, both sides", r#"{ "kind": "chunks", "heads": 2, "chunk": 3, "chunks_after": 1 }"#),
    example("chunks, padded", r#"{ "kind": "chunks", "heads": 2, "chunk": 3, "chunks_before": 2, "padding": { "multiple_of": 6, "beyond": 2 } }"#),
    example("reformer, one chunk", r#"{ "kind": "reformer", "heads": 2, "buckets": 4, "hashes": 2, "chunk": 24, "bias": true }"#),
    // Registered by `registered`.
    example("differential", r#"{ "kind": "differential", "heads": 4, "lambda_init": 0.5 }"#),
    example("differential, grouped", r#"{ "kind": "differential", "heads": 4, "key_value_heads": 2, "lambda_init": 0.2, "bias": true }"#),
    example("learned distances", r#"{ "kind": "learned_distances", "heads": 4, "key_value_heads": 2 }"#),
    example("recent", r#"{ "kind": "recent", "heads": 4 }"#),
    example("even distances", r#"{ "kind": "even_distances", "heads": 4, "head_norm": { "kind": "rms" } }"#),
];
