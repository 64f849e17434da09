//! Longformer, BigBird, Reformer and Transformer-XL: features that only they have.

use std::path::Path;

use attentive_checkpoint::{self as checkpoint, SaveOptions, model_tensors};
use attentive_model::attention::{AttentionConfig, MemoryStart};
use attentive_model::block::ResidualConfig;
use attentive_model::head::HeadConfig;
use attentive_model::{
    Cache, ForwardOptions, GlobalsConfig, Input, Model, ModelConfig, Recorder, replace_parameters,
};
use attentive_testing::{CLEAR_MARGIN, Scale, VALUES, assert_close, assert_near, margin, ulps};
use burn::tensor::{Device, Tensor, TensorData};

use crate::architectures::Loaded;
use crate::support::folder;

/// Greedy decoding of a golden's prompt; `next` returns the logits of the last position, given all ids so far.
fn check_greedy(loaded: &Loaded, mut next: impl FnMut(&[i64]) -> Vec<f32>) {
    let expected = loaded.golden.integers("greedy_ids");
    let mut ids = loaded.golden.integers("prompt_ids");
    while ids.len() < expected.len() {
        let logits = next(&ids);
        assert!(margin(&logits) >= CLEAR_MARGIN, "{}", loaded.golden.name);
        let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
        ids.push(best.unwrap() as i64);
    }
    assert_eq!(ids, expected, "{}", loaded.golden.name);
}

fn input(ids: &[i64], batch: usize) -> Input {
    let data = TensorData::new(ids.to_vec(), [batch, ids.len() / batch]);
    Input::new(Tensor::from_data(data, &Device::flex()))
}

/// The logits of the last position.
fn last_logits(logits: Tensor<3>) -> Vec<f32> {
    let [_, length, _] = logits.dims();
    let last = logits.narrow(1, length - 1, 1).into_data();
    last.try_to_vec::<f32>().unwrap()
}

#[test]
fn greedy_tokens_of_a_reformer_match_transformers() {
    let loaded = Loaded::open("reformer");
    check_greedy(&loaded, |ids| {
        let output = loaded
            .model
            .forward(input(ids, 1), ForwardOptions::default());
        last_logits(output.into_logits())
    });
}

#[test]
fn rotations_are_sampled_as_in_pytorch() {
    for name in ["reformer", "reformer-masked"] {
        let loaded = Loaded::open(name);
        let expected = loaded.golden.floats("rotations");
        let tensors = model_tensors(&loaded.model);
        let rotations = tensors
            .iter()
            .filter(|(name, _)| name.ends_with("rotations"));
        let mut layers = 0;
        for (layer, ours) in rotations {
            let ours = ours.as_slice::<f32>().unwrap();
            let what = format!("{name} {layer}");
            // Ours is f64 but for the last rounding: half an ulp. In f32, the angle, up to 2π, is off by two ulps of one, its
            // cosine by one, the radius (a logarithm and a root) by one, and their product by half.
            assert_close(what, ours, &expected, Scale::Largest, ulps(5));
            layers += 1;
        }
        assert!(layers > 0, "{name}");
    }
}

/// One segment of Transformer-XL, against the case of a prefix.
fn check_segment(loaded: &Loaded, model: &Model, prefix: &str, cache: Option<&mut Cache>) {
    let ids = loaded.golden.integers(&format!("{prefix}input_ids"));
    let mut recorder = Recorder {
        record_weights: true,
        ..Recorder::default()
    };
    let options = ForwardOptions {
        cache,
        observer: Some(&mut recorder),
        ..ForwardOptions::default()
    };
    let logits = model.forward(input(&ids, 2), options).into_logits();
    let mut compared = vec![("logits".to_owned(), logits.into_data())];
    let states = recorder.hidden.into_iter().take(4).enumerate();
    compared.extend(states.map(|(i, (_, it))| (format!("hidden_states.{i}"), it.into_data())));
    let weights = recorder.weights.into_iter().enumerate();
    compared.extend(weights.map(|(i, (_, it))| (format!("attentions.{i}"), it.into_data())));
    for (name, ours) in compared {
        let key = format!("{prefix}{name}");
        loaded.golden.check_unpadded(prefix, &key, ours);
    }
}

#[test]
fn the_memory_is_carried_from_segment_to_segment() {
    let loaded = Loaded::open("transformer-xl");
    let mut cache = Cache::new();
    check_segment(&loaded, &loaded.model, "first.", Some(&mut cache));
    check_segment(&loaded, &loaded.model, "second.", Some(&mut cache));
}

#[test]
fn without_a_memory_transformer_xl_attends_to_its_segment_alone() {
    let loaded = Loaded::open("transformer-xl");
    let mut config = loaded.model.config().clone();
    let AttentionConfig::TransformerXl(attention) = &mut config.stack.blocks[0].attention else {
        panic!("the first block is not Transformer-XL's");
    };
    attention.start = MemoryStart::Empty;
    attention.window = None;
    let model = Model::new(&config, 0, &Device::flex()).unwrap();
    let values = model_tensors(&loaded.model).into_iter().collect();
    let model = replace_parameters(model, values);
    check_segment(&loaded, &model, "without_memory.", None);
}

#[test]
fn greedy_tokens_of_transformer_xl_match_transformers() {
    let loaded = Loaded::open("transformer-xl");
    let mut cache = Cache::new();
    let mut read = 0;
    check_greedy(&loaded, |ids| {
        let options = ForwardOptions {
            cache: Some(&mut cache),
            ..ForwardOptions::default()
        };
        let output = loaded.model.forward(input(&ids[read..], 1), options);
        read = ids.len();
        last_logits(output.into_logits())
    });
}

#[test]
fn adaptive_softmax_gives_log_probabilities() {
    let loaded = Loaded::open("transformer-xl");
    let ids = loaded.golden.integers("first.input_ids");
    let output = loaded
        .model
        .forward(input(&ids, 2), ForwardOptions::default())
        .into_logits();
    let [_, length, vocabulary] = output.dims();
    let log_probabilities = output.into_data().try_to_vec::<f32>().unwrap();
    let mut losses = Vec::new();
    for (position, row) in log_probabilities.chunks(vocabulary).enumerate() {
        let sum: f32 = row.iter().map(|it| it.exp()).sum();
        assert_near("probabilities", sum, 1.0, Scale::One, VALUES);
        if position % length + 1 < length {
            losses.push(-row[ids[position + 1] as usize]);
        }
    }
    let mean = losses.iter().sum::<f32>() / losses.len() as f32;
    let expected = loaded.golden.floats("loss.value")[0];
    assert_near("loss", mean, expected, Scale::Largest, VALUES);
}

/// Model classes of the same families without golden data.
const OTHER_CLASSES: &[(&str, &[&str])] = &[
    (
        "big-bird",
        &[
            "BigBirdModel",
            "BigBirdForPreTraining",
            "BigBirdForSequenceClassification",
            "BigBirdForTokenClassification",
            "BigBirdForQuestionAnswering",
        ],
    ),
    (
        "longformer",
        &[
            "LongformerModel",
            "LongformerForSequenceClassification",
            "LongformerForTokenClassification",
            "LongformerForQuestionAnswering",
        ],
    ),
    ("reformer", &["ReformerModel"]),
    ("reformer-masked", &["ReformerModel"]),
    ("transformer-xl", &["TransfoXLModel"]),
];

#[test]
fn other_model_classes_are_saved_as_themselves() {
    let config_json = |folder: &Path| -> serde_json::Value {
        let text = std::fs::read_to_string(folder.join("config.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    for (name, classes) in OTHER_CLASSES {
        for class in *classes {
            let saved = tempfile::tempdir().unwrap();
            let mut json = config_json(&folder(name));
            json["architectures"] = serde_json::json!([class]);
            std::fs::write(saved.path().join("config.json"), json.to_string()).unwrap();
            let description = checkpoint::describe(saved.path()).unwrap();
            let model = Model::new(&description.config, 3, &Device::flex()).unwrap();
            checkpoint::convert(saved.path(), &model, &description, SaveOptions::default())
                .unwrap();
            assert_eq!(config_json(saved.path())["architectures"][0], *class);
            let (again, _) = checkpoint::load(saved.path(), &Device::flex()).unwrap();
            assert_eq!(again.config().canonical(), model.config().canonical());
            assert_eq!(model_tensors(&again), model_tensors(&model), "{class}");
        }
    }
}

#[test]
fn unsupported_settings_are_refused_with_key_and_value() {
    let cases = [
        (
            "longformer",
            "attention_window",
            serde_json::json!([4]),
            "attention_window has 1 values and num_hidden_layers is 2; give one value per layer",
        ),
        (
            "longformer",
            "attention_window",
            serde_json::json!(5),
            "attention_window (here blocks.0.attention.window): 5 is odd, and half of the window is on each side of the query; use an even number",
        ),
        (
            "longformer",
            "is_decoder",
            serde_json::json!(true),
            "is_decoder true is not supported; it must be false",
        ),
        (
            "big-bird",
            "attention_type",
            serde_json::json!("dense"),
            "attention_type \"dense\" is not supported; supported are block_sparse and original_full",
        ),
        (
            "reformer",
            "num_buckets",
            serde_json::json!(null),
            "num_buckets null is not supported; it must be a number or a list",
        ),
        (
            "reformer",
            "num_buckets",
            serde_json::json!([3, 2]),
            "blocks.1.attention.factors: 3 is odd, and a rotation gives two buckets; use even numbers",
        ),
        (
            "reformer",
            "axial_pos_embds_dim",
            serde_json::json!([8, 8]),
            "positions.widths: the sum of [8, 8] is 16 and the width is 20; they must be equal",
        ),
        (
            "reformer",
            "is_decoder",
            serde_json::json!(false),
            "is_decoder false is not supported; it must be true",
        ),
        (
            "transformer-xl",
            "div_val",
            serde_json::json!(1),
            "div_val 1 is not supported; it must be 2 or more",
        ),
        (
            "transformer-xl",
            "cutoffs",
            serde_json::json!([38, 20]),
            "embedding.adaptive.cutoffs: [38, 20] leave a cluster without tokens; use increasing numbers between 0 and 61",
        ),
        (
            "transformer-xl",
            "tie_projs",
            serde_json::json!([true]),
            "head.adaptive.tied_projections: 1 are given for 3 clusters; give one for each",
        ),
    ];
    for (name, key, value, expected) in cases {
        let saved = tempfile::tempdir().unwrap();
        let text = std::fs::read_to_string(folder(name).join("config.json")).unwrap();
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        json[key] = value;
        std::fs::write(saved.path().join("config.json"), json.to_string()).unwrap();
        let error = checkpoint::describe(saved.path()).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
    }
}

#[test]
fn incompatible_settings_are_refused_in_a_sentence() {
    let message = |name: &str, change: &dyn Fn(&mut ModelConfig)| {
        let mut config = checkpoint::describe(&folder(name)).unwrap().config;
        change(&mut config);
        let error = Model::new(&config, 0, &Device::flex()).unwrap_err();
        error.to_string()
    };
    let before =
        |id| move |config: &mut ModelConfig| config.stack.globals = Some(GlobalsConfig::Before(id));
    assert_eq!(
        message("longformer", &before(83)),
        "globals.before: 83 is not a token of the vocabulary of 83"
    );
    assert_eq!(
        message("bert", &before(1)),
        "globals: no attention of this model supports global positions; leave it out, or use longformer in a bidirectional model"
    );
    assert_eq!(
        message("bert", &|config| config.stack.residual =
            ResidualConfig::Reversible),
        "residual: a norm after the sum is not reversible; place norms before, or use \"one\""
    );
    assert_eq!(
        message("transformer-xl", &|config| config.head = HeadConfig::Tied),
        "head: an adaptive embedding cannot be tied; use \"adaptive\" or \"separate\""
    );
    assert_eq!(
        message("bert-tokens", &|config| {
            config.token_classifier.as_mut().unwrap().question_end = Some(2);
        }),
        "token_classifier.question_end: only question answering has a question; leave it out, or set the task to \"span\""
    );
}
