//! Longformer, BigBird, Reformer and Transformer-XL: what only they have.

use std::path::Path;

use attentive_model::checkpoint::{self, SaveOptions, model_tensors};
use attentive_model::{
    AttentionConfig, Cache, Extras, GlobalsConfig, HeadConfig, Input, MemoryStart, Model,
    ModelConfig, Recorder, ResidualConfig, replace_parameters,
};
use burn::tensor::{Device, Tensor, TensorData};

use crate::architectures::Loaded;
use crate::support::folder;

/// Continues the prompt of a golden with the likeliest tokens; `next` gives the scores of the last position, of all ids so far.
fn check_greedy(loaded: &Loaded, mut next: impl FnMut(&[i64]) -> Vec<f32>) {
    let expected = loaded.golden.integers("greedy_ids");
    let mut ids = loaded.golden.integers("prompt_ids");
    while ids.len() < expected.len() {
        let scores = next(&ids);
        let best = (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
        ids.push(best.unwrap() as i64);
    }
    assert_eq!(ids, expected, "{}", loaded.golden.name);
}

fn input(ids: &[i64], batch: usize) -> Input {
    let data = TensorData::new(ids.to_vec(), [batch, ids.len() / batch]);
    Input::new(Tensor::from_data(data, &Device::flex()))
}

/// The scores of the last position.
fn last_scores(words: Tensor<3>) -> Vec<f32> {
    let [_, length, _] = words.dims();
    let last = words.narrow(1, length - 1, 1).into_data();
    last.try_to_vec::<f32>().unwrap()
}

#[test]
fn the_likeliest_tokens_of_a_reformer_are_those_of_transformers() {
    let loaded = Loaded::open("reformer");
    check_greedy(&loaded, |ids| {
        let output = loaded.model.forward(input(ids, 1), Extras::default());
        last_scores(output.into_words())
    });
}

#[test]
fn rotations_are_drawn_as_pytorch_draws_them() {
    for name in ["reformer", "reformer-masked"] {
        let loaded = Loaded::open(name);
        let expected = loaded.golden.floats("rotations");
        let drawn = model_tensors(&loaded.model);
        let drawn = drawn.iter().filter(|(name, _)| name.ends_with("rotations"));
        let mut layers = 0;
        for (layer, ours) in drawn {
            let ours = ours.as_slice::<f32>().unwrap();
            let apart = ours.iter().zip(&expected).map(|(a, b)| (a - b).abs());
            assert!(apart.fold(0.0, f32::max) < 2e-6, "{name} {layer}");
            layers += 1;
        }
        assert!(layers > 0, "{name}");
    }
}

/// One segment of Transformer-XL, against the case of a prefix.
fn check_segment(loaded: &Loaded, model: &Model, prefix: &str, cache: Option<&mut Cache>) {
    let ids = loaded.golden.integers(&format!("{prefix}input_ids"));
    let mut recorder = Recorder {
        keep_weights: true,
        ..Recorder::default()
    };
    let extras = Extras {
        cache,
        observer: Some(&mut recorder),
        ..Extras::default()
    };
    let words = model.forward(input(&ids, 2), extras).into_words();
    let mut compared = vec![("logits".to_owned(), words.into_data())];
    let states = recorder.hidden.into_iter().take(4).enumerate();
    compared.extend(states.map(|(i, (_, it))| (format!("hidden_states.{i}"), it.into_data())));
    let weights = recorder.weights.into_iter().enumerate();
    compared.extend(weights.map(|(i, (_, it))| (format!("attentions.{i}"), it.into_data())));
    for (name, ours) in compared {
        let key = format!("{prefix}{name}");
        let apart = loaded.golden.difference(prefix, &key, ours);
        assert!(apart < 1e-5, "{key} differs by {apart}");
    }
}

#[test]
fn a_memory_goes_from_segment_to_segment() {
    let loaded = Loaded::open("transformer-xl");
    let mut cache = Cache::new();
    check_segment(&loaded, &loaded.model, "first.", Some(&mut cache));
    check_segment(&loaded, &loaded.model, "second.", Some(&mut cache));
}

#[test]
fn without_a_memory_transformer_xl_sees_its_segment_alone() {
    let loaded = Loaded::open("transformer-xl");
    let mut config = loaded.model.config().clone();
    let AttentionConfig::TransformerXl(attention) = &mut config.blocks[0].attention else {
        panic!("another attention");
    };
    attention.start = MemoryStart::Empty;
    attention.window = None;
    let model = Model::new(&config, 0, &Device::flex()).unwrap();
    let values = model_tensors(&loaded.model).into_iter().collect();
    let model = replace_parameters(model, values);
    check_segment(&loaded, &model, "without_memory.", None);
}

#[test]
fn the_likeliest_tokens_of_transformer_xl_are_those_of_transformers() {
    let loaded = Loaded::open("transformer-xl");
    let mut cache = Cache::new();
    let mut read = 0;
    check_greedy(&loaded, |ids| {
        let extras = Extras {
            cache: Some(&mut cache),
            ..Extras::default()
        };
        let output = loaded.model.forward(input(&ids[read..], 1), extras);
        read = ids.len();
        last_scores(output.into_words())
    });
}

#[test]
fn scores_by_clusters_are_logarithms_of_probabilities() {
    let loaded = Loaded::open("transformer-xl");
    let ids = loaded.golden.integers("first.input_ids");
    let output = loaded
        .model
        .forward(input(&ids, 2), Extras::default())
        .into_words();
    let [_, length, vocabulary] = output.dims();
    let scores = output.into_data().try_to_vec::<f32>().unwrap();
    let mut losses = Vec::new();
    for (place, row) in scores.chunks(vocabulary).enumerate() {
        let sum: f32 = row.iter().map(|it| it.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{sum}");
        if place % length + 1 < length {
            losses.push(-row[ids[place + 1] as usize]);
        }
    }
    let mean = losses.iter().sum::<f32>() / losses.len() as f32;
    let expected = loaded.golden.floats("loss.value")[0];
    assert!(
        (mean - expected).abs() < 1e-5 * expected,
        "{mean} and {expected}"
    );
}

/// Classes of the same families for which there is no golden.
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
fn other_classes_are_saved_as_what_they_are() {
    let words_of = |folder: &Path| -> serde_json::Value {
        let text = std::fs::read_to_string(folder.join("config.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    for (name, classes) in OTHER_CLASSES {
        for class in *classes {
            let place = tempfile::tempdir().unwrap();
            let mut words = words_of(&folder(name));
            words["architectures"] = serde_json::json!([class]);
            std::fs::write(place.path().join("config.json"), words.to_string()).unwrap();
            let description = checkpoint::describe(place.path()).unwrap();
            let model = Model::new(&description.config, 3, &Device::flex()).unwrap();
            checkpoint::convert(place.path(), &model, &description, SaveOptions::default())
                .unwrap();
            assert_eq!(words_of(place.path())["architectures"][0], *class);
            let (again, _) = checkpoint::load(place.path(), &Device::flex()).unwrap();
            assert_eq!(again.config().canonical(), model.config().canonical());
            assert_eq!(model_tensors(&again), model_tensors(&model), "{class}");
        }
    }
}

#[test]
fn what_a_config_cannot_mean_here_is_told_with_key_and_value() {
    let cases = [
        (
            "longformer",
            "attention_window",
            serde_json::json!([4]),
            "attention_window has 1 numbers and num_hidden_layers is 2; there must be as many",
        ),
        (
            "longformer",
            "attention_window",
            serde_json::json!(5),
            "attention_window (here blocks.0.attention.window): 5 is odd; both sides of a query see half of it: use an even number",
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
            "positions.widths: [8, 8] make up 16 and the width is 20; they must be equal",
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
            "embedding.clusters.cutoffs: [38, 20] leave a cluster without tokens; use rising numbers between 0 and 61",
        ),
        (
            "transformer-xl",
            "tie_projs",
            serde_json::json!([true]),
            "head.adaptive.tied_maps: 1 are said and there are 3 clusters; say one for each",
        ),
    ];
    for (name, key, value, expected) in cases {
        let place = tempfile::tempdir().unwrap();
        let text = std::fs::read_to_string(folder(name).join("config.json")).unwrap();
        let mut words: serde_json::Value = serde_json::from_str(&text).unwrap();
        words[key] = value;
        std::fs::write(place.path().join("config.json"), words.to_string()).unwrap();
        let told = checkpoint::describe(place.path()).unwrap_err().to_string();
        assert!(told.ends_with(expected), "{told}");
    }
}

#[test]
fn settings_that_cannot_work_together_are_told_in_a_sentence() {
    let told = |name: &str, change: &dyn Fn(&mut ModelConfig)| {
        let mut config = checkpoint::describe(&folder(name)).unwrap().config;
        change(&mut config);
        let error = Model::new(&config, 0, &Device::flex()).unwrap_err();
        error.to_string()
    };
    let before =
        |id| move |config: &mut ModelConfig| config.globals = Some(GlobalsConfig::Before(id));
    assert_eq!(
        told("longformer", &before(83)),
        "globals.before: 83 is out of range; use 0 to 82"
    );
    assert_eq!(
        told("bert", &before(1)),
        "globals: no attention of this model can have them; leave it out, or use longformer in a bidirectional model"
    );
    assert_eq!(
        told("bert", &|config| config.residual =
            ResidualConfig::Reversible),
        "residual: a norm after the sum keeps streams from being reversible; place norms before, or use \"one\""
    );
    assert_eq!(
        told("transformer-xl", &|config| config.head = HeadConfig::Tied),
        "head: clusters of tokens are no one table; use \"adaptive\" or \"separate\""
    );
    assert_eq!(
        told("roberta", &|config| config.embedding.question_end = Some(2)),
        "embedding.question_end: there is no second kind of segments; say types too, 2 or more, or leave it out"
    );
}
