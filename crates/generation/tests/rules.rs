//! Texts and probabilities under the settings of generation_config.json, against those of transformers (`reference/rules.py`).

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use attentive_generation::{
    BeamConfig, Changes, GenerationConfig, Rules, Sampling, SearchEnd, beam_search, generate,
};
use attentive_model::Model;
use attentive_model::checkpoint::{self, Description};
use burn::tensor::Device;
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct Golden {
    tokens: usize,
    cases: Vec<Case>,
    sampling: Vec<Drawing>,
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
struct Drawing {
    settings: Map<String, Value>,
    logits: Vec<f32>,
    probabilities: Vec<f64>,
}

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

fn golden() -> Golden {
    let text = std::fs::read_to_string(fixtures().join("rules.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The model of a fixture whose generation_config.json says these settings besides.
fn load(name: &str, settings: &Map<String, Value>) -> (Model, Description) {
    let (from, to) = (fixtures().join(name), tempfile::tempdir().unwrap());
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(from.join(file), to.path().join(file)).unwrap();
    }
    let file = Path::new("generation_config.json");
    let said = std::fs::read_to_string(from.join(file)).unwrap();
    let mut words: Map<String, Value> = serde_json::from_str(&said).unwrap();
    words.extend(settings.clone());
    std::fs::write(to.path().join(file), Value::Object(words).to_string()).unwrap();
    checkpoint::load(to.path(), &Device::flex()).unwrap()
}

#[test]
fn texts_are_those_of_transformers() {
    let golden = golden();
    for case in &golden.cases {
        let (model, said) = load(&case.model, &case.settings);
        let before = match model.config().encoder {
            Some(_) => 1,
            None => case.sources[0].len(),
        };
        let rules = Rules::of_folder(&said.special, &said.generation, before).unwrap();
        let what = format!("{} {} {}", case.model, case.name, case.beams);
        if case.beams == 1 {
            let config = GenerationConfig {
                max_tokens: golden.tokens,
                sampling: Sampling::greedy(),
                stop: Vec::new(),
                rules,
            };
            let go_on = |_: attentive_generation::Piece| ControlFlow::Continue(());
            let done = generate(&model, None, &case.sources[0], &config, go_on).unwrap();
            assert_eq!(done.ids, case.ids[0], "{what}");
            continue;
        }
        let config = BeamConfig {
            max_tokens: golden.tokens,
            beams: case.beams,
            returned: case.beams,
            length_penalty: 1.0,
            end: SearchEnd::Unlikely,
            changes: match said.generation.renormalized {
                Some(true) => Changes::Shared,
                _ => Changes::Lost,
            },
            possible: None,
            rules,
        };
        let found = beam_search(&model, &case.sources, &config).unwrap();
        let found: Vec<_> = found.into_iter().flatten().collect();
        assert_eq!(found.len(), case.ids.len(), "{what}");
        for ((beam, ids), score) in found.iter().zip(&case.ids).zip(&case.scores) {
            assert_eq!(beam.ids, *ids, "{what}");
            assert!(
                (beam.score - score).abs() < 1e-4,
                "{what}: {beam:?}, {score}"
            );
        }
    }
}

#[test]
fn tokens_are_drawn_with_the_probabilities_of_transformers() {
    for drawing in golden().sampling {
        let (_, said) = load("models/bart", &drawing.settings);
        let sampling = Sampling::of_folder(&said.generation).unwrap().unwrap();
        let found = sampling.probabilities(drawing.logits).unwrap();
        assert_eq!(found.len(), drawing.probabilities.len());
        for (found, expected) in found.iter().zip(&drawing.probabilities) {
            let same = (found - expected).abs() < 1e-6 && (*found == 0.0) == (*expected == 0.0);
            assert!(same, "{:?}: {found}, {expected}", drawing.settings);
        }
    }
}

#[test]
fn what_cannot_be_followed_is_refused_by_name() {
    let settings = |words: &str| serde_json::from_str::<Map<String, Value>>(words).unwrap();
    let (_, said) = load("models/bart", &settings(r#"{ "guidance_scale": 1.5 }"#));
    let refused = Rules::of_folder(&said.special, &said.generation, 1).unwrap_err();
    let expected = "generation_config.json: guidance_scale 1.5 would change the texts and is not supported; remove it to make texts without it";
    assert!(refused.to_string().ends_with(expected), "{refused}");
    let words = r#"{ "do_sample": true, "top_h": 0.4 }"#;
    let (_, said) = load("models/bart", &settings(words));
    assert!(Rules::of_folder(&said.special, &said.generation, 1).is_ok());
    assert!(Sampling::of_folder(&said.generation).is_err());
}
