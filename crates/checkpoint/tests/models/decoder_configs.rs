//! config.json of decoder-only models: old and new keys, what they mean, and what is refused.

use std::path::Path;

use attentive_checkpoint::{self as checkpoint, Description};
use attentive_model::attention::AttentionConfig;
use attentive_model::feed_forward::FeedForwardConfig;
use attentive_model::{Model, ModelConfig, parameters};
use burn::tensor::Device;
use serde_json::{Value, json};

use crate::support::Golden;

/// A folder with the config.json of a fixture, changed.
fn with(name: &str, change: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(Golden::open(name).folder.join("config.json")).unwrap();
    let mut json = serde_json::from_str(&text).unwrap();
    change(&mut json);
    std::fs::write(folder.path().join("config.json"), json.to_string()).unwrap();
    folder
}

fn describe(folder: &Path) -> Description {
    checkpoint::describe(folder).unwrap()
}

/// The config of a changed config.json, which saving and reading again must not change.
fn round_trip(name: &str, saved_as: &str, change: impl FnOnce(&mut Value)) -> ModelConfig {
    let folder = with(name, change);
    let Description {
        config, special, ..
    } = describe(folder.path());
    checkpoint::save_config(folder.path(), &config, &special).unwrap();
    let back = describe(folder.path());
    assert_eq!(back.model_type, saved_as);
    assert_eq!(back.config.canonical(), config.canonical());
    config
}

/// Layers and windows, block by block.
fn windows(config: &ModelConfig) -> Vec<(usize, Option<usize>)> {
    let window = |attention: &AttentionConfig| match attention {
        AttentionConfig::Full(_) => None,
        AttentionConfig::SlidingWindow(config) => Some(config.window),
        other => panic!("{other:?}"),
    };
    let blocks = config.stack.blocks.iter();
    blocks
        .map(|it| (it.repeat, window(&it.attention)))
        .collect()
}

#[test]
fn keys_before_transformers_5_mean_the_same() {
    for name in ["mistral", "qwen2", "qwen3", "mixtral"] {
        let old = with(name, |json| {
            let parameters = json["rope_parameters"].take();
            json["rope_theta"] = parameters["rope_theta"].clone();
            json["torch_dtype"] = json["dtype"].take();
            let json = json.as_object_mut().unwrap();
            for key in ["rope_parameters", "dtype", "layer_types"] {
                json.remove(key);
            }
        });
        let golden = Golden::open(name);
        let (old, new) = (describe(old.path()), describe(&golden.folder));
        assert_eq!(old.config, new.config, "{name}");
    }
}

#[test]
fn head_width_is_given_or_implied() {
    let width = |name: &str, value: Value| {
        let folder = with(name, |json| json["head_dim"] = value);
        describe(folder.path()).config.stack.head_width()
    };
    assert_eq!(width("qwen2", json!(10)), 10);
    assert_eq!(width("qwen2", Value::Null), 6);
    let folder = with("qwen3", |json| {
        json.as_object_mut().unwrap().remove("head_dim");
    });
    assert_eq!(describe(folder.path()).config.stack.head_width(), 128);
}

#[test]
fn sliding_windows_are_read_and_written() {
    let mistral = |value: Value, saved_as: &str| {
        windows(&round_trip("mistral", saved_as, |json| {
            json["sliding_window"] = value
        }))
    };
    assert_eq!(mistral(json!(3), "mistral"), [(2, Some(3))]);
    // Without a window it is saved as Llama, the first format that can express it.
    assert_eq!(mistral(Value::Null, "llama"), [(2, None)]);
    let config = round_trip("mixtral", "mixtral", |json| {
        json["sliding_window"] = json!(7)
    });
    assert_eq!(windows(&config), [(2, Some(7))]);
}

#[test]
fn windows_of_qwen_may_differ_from_layer_to_layer() {
    let types = |kinds: &[&str]| json!(kinds);
    let qwen = |first: usize, types: Value| {
        let both = ["qwen2", "qwen3"].map(|name| {
            windows(&round_trip(name, name, |json| {
                json["use_sliding_window"] = json!(true);
                json["sliding_window"] = json!(4);
                json["max_window_layers"] = json!(first);
                json["layer_types"] = types.clone();
            }))
        });
        assert_eq!(both[0], both[1]);
        both[0].clone()
    };
    assert_eq!(qwen(0, Value::Null), [(3, Some(4))]);
    assert_eq!(qwen(2, Value::Null), [(2, None), (1, Some(4))]);
    assert_eq!(qwen(28, Value::Null), [(3, None)]);
    let (full, sliding) = ("full_attention", "sliding_attention");
    assert_eq!(
        qwen(28, types(&[sliding, full, full])),
        [(1, Some(4)), (2, None)]
    );
    assert_eq!(
        qwen(0, types(&[sliding, full, sliding])),
        [(1, Some(4)), (1, None), (1, Some(4))]
    );
}

/// Qwen's config cannot express windows of different sizes, so our own format is used.
#[test]
fn windows_of_two_sizes_are_saved_in_our_own_format() {
    let mut config = round_trip("qwen2", "qwen2", |json| {
        json["use_sliding_window"] = json!(true);
        json["sliding_window"] = json!(4);
        json["layer_types"] = json!(["sliding_attention", "full_attention", "sliding_attention"]);
    });
    let AttentionConfig::SlidingWindow(first) = &mut config.stack.blocks[0].attention else {
        panic!("the first layer has a window");
    };
    first.window = 2;
    let folder = tempfile::tempdir().unwrap();
    checkpoint::save_config(folder.path(), &config, &Default::default()).unwrap();
    let back = describe(folder.path());
    assert_eq!(back.model_type, "attentive");
    assert_eq!(back.config.canonical(), config.canonical());
}

#[test]
fn the_load_balancing_loss_is_added_where_the_config_says_so() {
    let balance = |output_router_logits: bool| {
        let config = round_trip("mixtral", "mixtral", |json| {
            json["output_router_logits"] = json!(output_router_logits)
        });
        match &config.stack.blocks[0].feed_forward {
            FeedForwardConfig::Experts(experts) => experts.balance_loss_weight,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((balance(true), balance(false)), (0.02, 0.0));
}

#[test]
fn unsupported_settings_are_refused_in_a_sentence() {
    let refusal = |name: &str, key: &str, value: Value| {
        let folder = with(name, |json| json[key] = value);
        let error = checkpoint::describe(folder.path()).unwrap_err().to_string();
        format!(
            "{name} {}",
            error.replace(&folder.path().display().to_string(), "FOLDER")
        )
    };
    let scaled = |kind: &str| json!({ "rope_type": kind, "factor": 2.0 });
    let errors = [
        refusal("mistral", "sliding_window", json!(0)),
        refusal("mistral", "sliding_window", json!("all")),
        refusal("mistral", "hidden_act", json!("mish")),
        refusal("mistral", "num_key_value_heads", json!(3)),
        refusal("mistral", "num_hidden_layers", json!(0)),
        refusal("mistral", "num_hidden_layers", json!(u64::MAX)),
        refusal("mistral", "rope_scaling", scaled("longrope")),
        refusal(
            "mistral",
            "rope_parameters",
            json!({ "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5 }),
        ),
        refusal("qwen3", "partial_rotary_factor", json!(0.25)),
        refusal("bert-classifier", "problem_type", json!("ranking")),
        refusal(
            "qwen2",
            "quantization_config",
            json!({ "quant_method": "gptq", "bits": 4 }),
        ),
        refusal("qwen2", "layer_types", json!(["full_attention"])),
        refusal(
            "qwen2",
            "layer_types",
            json!(["full_attention", "full_attention", "sliding_attention"]),
        ),
        refusal(
            "qwen3",
            "layer_types",
            json!(["full_attention", "full_attention", "linear_attention"]),
        ),
        refusal("qwen3", "layer_types", json!("full_attention")),
        refusal("qwen3", "num_hidden_layers", json!(0)),
        refusal("qwen3", "attention_bias", json!("no")),
        refusal("qwen3", "rms_norm_eps", json!(0)),
        refusal("mixtral", "router_jitter_noise", json!(0.1)),
        refusal("mixtral", "num_experts_per_tok", json!(5)),
        refusal("mixtral", "num_local_experts", json!(u64::MAX)),
        refusal("bart", "is_encoder_decoder", json!(false)),
        refusal("marian", "is_encoder_decoder", json!(false)),
        refusal("t5", "is_encoder_decoder", json!(false)),
        refusal("bert-bert", "decoder", json!({ "model_type": "llama" })),
        refusal("bert-bert", "encoder", json!({ "model_type": "gpt2" })),
    ];
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn parameter_names_and_shapes() {
    for name in ["qwen2", "qwen3", "mixtral"] {
        let config = describe(&Golden::open(name).folder).config;
        let model = Model::new(&config, 0, &Device::flex()).unwrap();
        let lines = parameters(&model);
        let lines = lines.iter().map(|it| format!("{} {:?}", it.name, it.shape));
        let lines: Vec<String> = lines.collect();
        insta::assert_snapshot!(format!("parameters_{name}"), lines.join("\n"));
    }
}
