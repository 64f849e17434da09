//! Texts and sampling probabilities with the settings of generation_config.json, against transformers
//! (`reference/logits_processors.py`).

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use attentive_checkpoint::{self as checkpoint, Description};
use attentive_generation::{
    BeamConfig, EarlyStopping, GenerationConfig, LogitsProcessors, Sampling, beam_search, generate,
};
use attentive_model::Model;
use attentive_testing::{SCORES, Scale, assert_close, assert_near};
use burn::tensor::Device;
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct Golden {
    tokens: usize,
    cases: Vec<Case>,
    sampling: Vec<Sampled>,
}

#[derive(Deserialize)]
struct Case {
    model: String,
    name: String,
    settings: Map<String, Value>,
    beams: usize,
    sources: Vec<Vec<u32>>,
    ids: Vec<Vec<u32>>,
    scores: Vec<f64>,
}

#[derive(Deserialize)]
struct Sampled {
    settings: Map<String, Value>,
    logits: Vec<f32>,
    probabilities: Vec<f64>,
}

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

fn golden() -> Golden {
    let text = std::fs::read_to_string(fixtures().join("logits_processors.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The model of a fixture with more settings in its generation_config.json.
fn load(name: &str, settings: &Map<String, Value>) -> (Model, Description) {
    let (from, to) = (fixtures().join(name), tempfile::tempdir().unwrap());
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(from.join(file), to.path().join(file)).unwrap();
    }
    let file = Path::new("generation_config.json");
    let text = std::fs::read_to_string(from.join(file)).unwrap();
    let mut all: Map<String, Value> = serde_json::from_str(&text).unwrap();
    all.extend(settings.clone());
    std::fs::write(to.path().join(file), Value::Object(all).to_string()).unwrap();
    checkpoint::load(to.path(), &Device::flex()).unwrap()
}

#[test]
fn texts_match_transformers() {
    let golden = golden();
    for case in &golden.cases {
        let (model, description) = load(&case.model, &case.settings);
        let prompt_length = match model.config().encoder {
            Some(_) => 1,
            None => case.sources[0].len(),
        };
        let processors = LogitsProcessors::from_settings(
            &description.special,
            &description.generation,
            prompt_length,
        )
        .unwrap();
        let what = format!("{} {} {}", case.model, case.name, case.beams);
        if case.beams == 1 {
            let config = GenerationConfig {
                max_new_tokens: golden.tokens,
                sampling: Sampling::greedy(),
                stop_strings: Vec::new(),
                processors,
            };
            let go_on = |_: attentive_generation::TextChunk| ControlFlow::Continue(());
            let done = generate(&model, None, &case.sources[0], &config, go_on).unwrap();
            assert_eq!(done.ids, case.ids[0], "{what}");
            continue;
        }
        let config = BeamConfig {
            max_new_tokens: golden.tokens,
            num_beams: case.beams,
            num_return_sequences: case.beams,
            length_penalty: 1.0,
            early_stopping: EarlyStopping::False,
            renormalize_logits: description.generation.renormalize_logits == Some(true),
            tokenizer_vocabulary: None,
            processors,
        };
        let found = beam_search(&model, &case.sources, &config).unwrap();
        let found: Vec<_> = found.into_iter().flatten().collect();
        assert_eq!(found.len(), case.ids.len(), "{what}");
        for ((beam, ids), score) in found.iter().zip(&case.ids).zip(&case.scores) {
            assert_eq!(beam.ids, *ids, "{what}");
            let what = format!("{what}: {beam:?}");
            assert_near(what, beam.score, *score, Scale::EachOrOne, SCORES);
        }
    }
}

#[test]
fn tokens_are_sampled_with_the_probabilities_of_transformers() {
    for sampled in golden().sampling {
        let (_, description) = load("models/bart", &sampled.settings);
        let sampling = Sampling::from_settings(&description.generation)
            .unwrap()
            .unwrap();
        let found = sampling.probabilities(sampled.logits).unwrap();
        assert_eq!(found.len(), sampled.probabilities.len());
        let what = format!("{:?}", sampled.settings);
        assert_close(&what, &found, &sampled.probabilities, Scale::One, 1e-6);
        let zeros = |all: &[f64]| all.iter().map(|it| *it == 0.0).collect::<Vec<_>>();
        assert_eq!(zeros(&found), zeros(&sampled.probabilities), "{what}");
    }
}

#[test]
fn unsupported_settings_are_refused_by_name() {
    let settings = |json: &str| serde_json::from_str::<Map<String, Value>>(json).unwrap();
    let (_, description) = load("models/bart", &settings(r#"{ "guidance_scale": 1.5 }"#));
    let refused = LogitsProcessors::from_settings(&description.special, &description.generation, 1)
        .unwrap_err();
    let expected = "generation_config.json: guidance_scale 1.5 would change the texts and is not supported; remove it to generate without it";
    assert!(refused.to_string().ends_with(expected), "{refused}");
    let json = r#"{ "do_sample": true, "top_h": 0.4 }"#;
    let (_, description) = load("models/bart", &settings(json));
    assert!(
        LogitsProcessors::from_settings(&description.special, &description.generation, 1).is_ok()
    );
    assert!(Sampling::from_settings(&description.generation).is_err());
}
