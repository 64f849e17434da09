//! What registered kinds are in settings, and what is refused.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use attentive_tensor::Scores;
use burn::tensor::{Device, Tensor};
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::attention::heads::HEADS_KEYS;
use crate::attention::{
    Attention, AttentionConfig, AttentionInput, AttentionSpec, BUILT_IN, BuiltIn, CacheSize,
    FullAttentionConfig, HeadsConfig, SlidingWindowConfig, Widths,
};
use crate::{Cache, ForwardContext, Initializer, NormConfig, Recorder, parameters};

const WIDTH: usize = 16;

/// Full attention times a gain, that can be told to do what a pattern must not.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Probe {
    #[serde(default)]
    fault: Fault,
    #[serde(default)]
    window: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Fault {
    #[default]
    None,
    NoCache,
    NoWeights,
    OtherShape,
    BadName,
    SameName,
    BadSetting,
}

impl CustomPattern for Probe {
    fn attend(&self, input: PatternInput) -> PatternOutput {
        let PatternInput {
            qkv,
            mask,
            bias,
            parameters,
            mut context,
            ..
        } = input;
        let scale = qkv.scale();
        let mut attended = context.attend(qkv, &Scores { mask, scale, bias });
        let gain = parameters.get::<1>("gain").reshape([1, 1, 1, 1]);
        attended.output = attended.output * gain;
        match self.fault {
            Fault::NoWeights => attended.weights = None,
            Fault::OtherShape => attended.output = attended.output.narrow(3, 0, 1),
            _ => {}
        }
        attended
    }

    fn parameters(&self, _: &PatternSpec) -> Vec<PatternParameter> {
        let gain = || PatternParameter::constant("gain", [1], 2.0);
        match self.fault {
            Fault::BadName => vec![PatternParameter::normal("a.b", [1], 1.0)],
            Fault::SameName => vec![gain(), gain()],
            _ => vec![gain()],
        }
    }

    fn validate(&self, _: &PatternSpec) -> Result<(), ConfigError> {
        match self.fault {
            Fault::BadSetting => Err(ConfigError {
                field: "fault".to_owned(),
                problem: "this one is refused".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    fn roles(&self) -> &[Role] {
        &[Role::Bidirectional, Role::Causal]
    }

    fn cache(&self) -> PatternCache {
        match (self.fault, self.window) {
            (Fault::NoCache, _) => PatternCache::Impossible,
            (_, Some(window)) => PatternCache::Window(window),
            (_, None) => PatternCache::KeyValues,
        }
    }
}

fn register_probe() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        register("probe", |settings| settings.parse::<Probe>()).unwrap();
    });
}

fn config(own: Value) -> AttentionConfig {
    register_probe();
    let mut settings = json!({ "kind": "probe", "heads": 4 });
    let entries = own.as_object().unwrap().clone();
    settings.as_object_mut().unwrap().extend(entries);
    serde_json::from_value(settings).unwrap()
}

fn build(config: &AttentionConfig, spec: &AttentionSpec) -> Result<Attention, ConfigError> {
    Attention::new(config, spec, &mut Initializer::new(1, &Device::flex()))
}

fn spec(role: Role) -> AttentionSpec {
    AttentionSpec::new(role, Widths::all(WIDTH), 24)
}

#[test]
fn names_and_keys_are_those_that_serde_has() {
    let error = serde_json::from_str::<BuiltIn>(r#"{ "kind": "?" }"#).err();
    let message = error.unwrap().to_string();
    let kinds: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
    assert_eq!(kinds.len(), BUILT_IN.len(), "{message}");
    for kind in kinds {
        assert!(registry::is_built_in(kind), "{kind}");
    }
    let norm = NormConfig::Layer { epsilon: 1e-5 };
    let heads = HeadsConfig::new(4)
        .with_key_value_heads(2)
        .with_head_width(8)
        .with_head_norm(norm);
    let keys = serde_json::to_value(heads).unwrap();
    let mut keys: Vec<&str> = keys
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let mut expected = HEADS_KEYS.to_vec();
    keys.sort_unstable();
    expected.sort_unstable();
    assert_eq!(keys, expected);
}

#[test]
fn a_kind_has_one_name_and_a_name_one_kind() {
    register_probe();
    let problem = |kind: &str| {
        let registered = register(kind, |settings| settings.parse::<Probe>());
        registered.unwrap_err().to_string()
    };
    assert_eq!(
        problem("sliding_window"),
        "`sliding_window` is a kind of this library; choose another name"
    );
    assert_eq!(
        problem("probe"),
        "`probe` is registered already; register a kind once, or choose another name"
    );
    assert_eq!(
        problem("My kind"),
        "\"My kind\" cannot be the name of a kind; use lower-case letters, digits and _"
    );
    assert!(registered().contains(&"probe".to_owned()));
}

#[test]
fn settings_are_the_same_from_files_and_from_rust() {
    let read = config(json!({ "window": 3, "dropout": 0.1 }));
    let made = CustomConfig::new("probe", HeadsConfig::new(4).with_dropout(0.1));
    let made = AttentionConfig::from(made.with_setting("window", 3));
    assert_eq!(read, made);
    let json = serde_json::to_value(&made).unwrap();
    assert_eq!(
        json,
        json!({
            "kind": "probe", "heads": 4, "dropout": 0.1, "bias": false, "output_bias": false, "window": 3,
        })
    );
    assert_eq!(
        serde_json::from_value::<AttentionConfig>(json).unwrap(),
        made
    );
    let toml = toml::to_string(&made).unwrap();
    assert_eq!(toml::from_str::<AttentionConfig>(&toml).unwrap(), made);

    let canonical = config(json!({
        "window": 3, "dropout": 0.1, "key_value_heads": 4, "head_width": 4,
    }));
    assert_eq!(made.canonical(WIDTH), canonical);
    assert_eq!(made.without_dropout(), config(json!({ "window": 3 })));
    assert_ne!(made, config(json!({ "window": 4, "dropout": 0.1 })));
}

#[test]
fn a_registered_kind_is_described_and_sized() {
    let [plain, window, uncached] = [
        json!({}),
        json!({ "window": 3 }),
        json!({ "fault": "no_cache" }),
    ]
    .map(config);
    assert_eq!(
        window.describe(WIDTH),
        "probe attention (window = 3), 4 heads of width 4, 4 key-value heads"
    );
    assert_eq!(
        plain.describe(WIDTH),
        "probe attention, 4 heads of width 4, 4 key-value heads"
    );
    assert_eq!(plain.cache(WIDTH), CacheSize::Growing(32));
    assert_eq!(window.cache(WIDTH), CacheSize::Fixed(2 * 3 * 32));
    assert_eq!(uncached.cache(WIDTH), CacheSize::Impossible);
    let full = AttentionConfig::from(FullAttentionConfig::new(4));
    let [causal, both] = [Role::Causal, Role::Bidirectional];
    for role in [causal, both] {
        assert_eq!(plain.flops(WIDTH, 24, role), full.flops(WIDTH, 24, role));
    }
    // A causal query attends to half of the positions on average.
    assert_eq!(full.flops(WIDTH, 24, causal), full.flops(WIDTH, 12, both));
    assert_eq!(window.flops(WIDTH, 24, causal), full.flops(WIDTH, 3, both));
    // Both sides of the window.
    assert_eq!(window.flops(WIDTH, 24, both), full.flops(WIDTH, 5, both));
    let sliding = AttentionConfig::from(SlidingWindowConfig::new(4, 3));
    assert_eq!(sliding.flops(WIDTH, 24, both), full.flops(WIDTH, 5, both));
}

#[test]
fn parameters_are_named_as_declared() {
    let layer = build(&config(json!({})), &spec(Role::Causal)).unwrap();
    let found = parameters(&layer);
    let gain = found.iter().find(|it| it.name == "pattern.gain");
    assert_eq!(gain.unwrap().shape, [1]);
    assert_eq!(found.len(), 5);
    // Through all that burn does to modules.
    let device = Device::flex();
    let moved = layer.clone().fork(&device).to_device(&device).valid();
    let names = |layer: &Attention| -> Vec<String> {
        let found = parameters(layer).into_iter();
        found.map(|it| it.name).collect()
    };
    assert_eq!(names(&moved), names(&layer));
    assert_eq!(Module::num_params(&moved), 4 * WIDTH * WIDTH + 1);
    assert!(moved.to_string().contains("Custom"), "{moved}");
}

#[test]
fn what_cannot_be_built_is_refused_in_a_sentence() {
    let causal = spec(Role::Causal);
    let biased = AttentionSpec {
        positions: RelativePositions::Bias,
        ..causal
    };
    let cases = [
        (
            json!({}),
            spec(Role::Cross),
            "attention.kind: probe attention cannot be cross; it can be bidirectional or causal",
        ),
        (
            json!({}),
            biased,
            "attention.kind: probe attention does not support a relative position bias; choose learned, sinusoidal, rotary or no positions",
        ),
        (
            json!({ "heads": 3 }),
            causal,
            "attention.heads: 3 does not divide the width 16; set head_width, or choose a divisor",
        ),
        (
            json!({ "window": 0 }),
            causal,
            "attention.kind: probe attention has a window of 0; use 1 or more",
        ),
        (
            json!({ "fault": "bad_name" }),
            causal,
            "attention.kind: probe attention: its parameter `a.b` has a name that is not of lower-case letters, digits and _",
        ),
        (
            json!({ "fault": "same_name" }),
            causal,
            "attention.kind: probe attention: its parameter `gain` is declared twice",
        ),
        (
            json!({ "fault": "bad_setting" }),
            causal,
            "attention.fault: this one is refused",
        ),
    ];
    for (own, spec, expected) in cases {
        let refused = build(&config(own.clone()), &spec);
        assert_eq!(refused.unwrap_err().to_string(), expected, "{own}");
    }
}

#[test]
fn settings_that_cannot_be_read_are_refused_in_a_sentence() {
    register_probe();
    let cases = [
        (
            r#"{ "kind": "probe", "heads": 4, "windows": 3 }"#,
            "unknown field `windows`, expected `fault` or `window`",
        ),
        (
            r#"{ "kind": "probe", "heads": 4, "window": "three" }"#,
            "invalid type: string \"three\", expected usize",
        ),
        (
            r#"{ "window": 3, "kind": "probe" }"#,
            "missing field `heads`",
        ),
        (
            r#"{ "kind": "probe", "heads": 4, "window": 3, "window": 4 }"#,
            "duplicate field `window`",
        ),
        (
            r#"{ "kind": "probe", "heads": 4, "heads": 2 }"#,
            "duplicate field `heads`",
        ),
        (
            r#"{ "kind": "full", "heads": 4, "heads": 2 }"#,
            "duplicate field `heads`",
        ),
        (r#"{ "heads": 4 }"#, "missing field `kind`"),
        (
            r#""full""#,
            "invalid type: string \"full\", expected internally tagged enum AttentionConfig",
        ),
    ];
    for (json, expected) in cases {
        let error = serde_json::from_str::<AttentionConfig>(json).unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with(expected), "{json}: {message}");
    }
    for kind in ["full", "probe"] {
        let toml = format!("kind = \"{kind}\"\nheads = 4\nscale = inf");
        let error = toml::from_str::<AttentionConfig>(&toml).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("inf is not a finite number"), "{message}");
    }
    let nested =
        r#"{ "kind": "probe", "heads": 4, "head_norm": { "kind": "rms", "kind": "rms" } }"#;
    let error = serde_json::from_str::<AttentionConfig>(nested).unwrap_err();
    assert!(
        error.to_string().starts_with("duplicate field `kind`"),
        "{error}"
    );
    // A null stands for a setting that is left out.
    let with_null = r#"{ "kind": "probe", "heads": 4, "key_value_heads": null, "window": null }"#;
    let read: AttentionConfig = serde_json::from_str(with_null).unwrap();
    assert_eq!(read, config(json!({})));

    let refusal = |config: CustomConfig| {
        let refused = build(&config.into(), &spec(Role::Causal));
        refused.unwrap_err().to_string()
    };
    let probe = || CustomConfig::new("probe", 4);
    let unknown = refusal(CustomConfig::new("probes", 4));
    assert!(
        unknown.starts_with("attention.kind: there is no `probes`; use `full`, `sliding_window`,"),
        "{unknown}"
    );
    assert!(
        unknown.ends_with("or one that the program registers"),
        "{unknown}"
    );
    assert_eq!(
        refusal(probe().with_setting("windows", 3)),
        "attention: unknown field `windows`, expected `fault` or `window`"
    );
    assert_eq!(
        refusal(probe().with_setting("dropout", 0.5)),
        "attention.dropout: all registered kinds have this setting; set the field of the config instead"
    );
    assert_eq!(
        refusal(probe().with_setting("window", f64::NAN)),
        "attention.window: a file can hold neither null nor a number that is not finite; use another value, or leave it out"
    );
}

#[test]
fn a_pattern_that_breaks_a_promise_panics_with_a_sentence() {
    let panic = |fault: &str, pass: &mut ForwardContext| -> String {
        let config = config(json!({ "fault": fault }));
        let layer = build(&config, &spec(Role::Causal)).unwrap();
        let x = Tensor::ones([1, 5, WIDTH], &Device::flex());
        let input = AttentionInput::self_attention(x, 0);
        let forward = AssertUnwindSafe(|| layer.forward(input, pass));
        let panicked = catch_unwind(forward).unwrap_err();
        panicked.downcast_ref::<String>().unwrap().clone()
    };
    assert_eq!(
        panic("other_shape", &mut ForwardContext::default()),
        "probe attention: its output [1, 4, 5, 1] does not match queries [1, 4, 5, 4]"
    );
    let mut recorder = Recorder {
        record_weights: true,
        ..Recorder::default()
    };
    let mut observed = ForwardContext {
        observer: Some(&mut recorder),
        ..ForwardContext::default()
    };
    assert_eq!(
        panic("no_weights", &mut observed),
        "probe attention: the observer requests the weights of layer 0, and the pattern has none; let wants_weights be false there"
    );
    let mut cache = Cache::new();
    let mut cached = ForwardContext {
        cache: Some(&mut cache),
        ..ForwardContext::default()
    };
    assert_eq!(
        panic("no_cache", &mut cached),
        "probe attention: it cannot use a cache; give the whole sequence instead"
    );
}
