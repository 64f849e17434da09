//! Beam search against exhaustive search, and with every kind of cache: reordered rows keep their state.

mod support;

use attentive_generation::{
    Beam, BeamConfig, EarlyStopping, LogitsProcessors, StopReason, beam_search,
};
use attentive_model::{Model, ModelConfig};
use attentive_testing::{Scale, VALUES, assert_near};
use burn::tensor::Device;

use support::uncached;

const END: u32 = 1;

/// A small decoder with this attention.
fn model(attention: &str, vocabulary: usize) -> Model {
    let json = format!(
        r#"{{ "vocabulary": {vocabulary}, "length": 16, "width": 16, "init_std": 0.4,
            "positions": {{ "kind": "none" }},
            "blocks": [{{ "repeat": 2, "norm": {{ "kind": "layer" }}, "attention": {attention},
                "feed_forward": {{ "kind": "plain", "hidden_width": 24 }} }}] }}"#
    );
    let config: ModelConfig = serde_json::from_str(&json).unwrap();
    Model::new(&config, 3, &Device::flex()).unwrap()
}

fn config(beams: usize, max_new_tokens: usize) -> BeamConfig {
    BeamConfig {
        max_new_tokens,
        num_beams: beams,
        num_return_sequences: beams,
        length_penalty: 1.0,
        early_stopping: EarlyStopping::Never,
        renormalize_logits: false,
        tokenizer_vocabulary: None,
        processors: LogitsProcessors::with_eos(vec![END]),
    }
}

/// The log-probabilities of the token after `ids`, computed without a cache.
fn log_probabilities(model: &Model, ids: &[u32]) -> Vec<f64> {
    let logits: Vec<f64> = uncached(model, ids).into_iter().map(f64::from).collect();
    let log_sum_exp = logits.iter().map(|it| it.exp()).sum::<f64>().ln();
    logits.into_iter().map(|it| it - log_sum_exp).collect()
}

/// The score of a text, computed without a cache.
fn score(model: &Model, prompt: &[u32], beam: &Beam, penalty: f64) -> f64 {
    let mut generated = beam.ids.clone();
    if beam.reason == StopReason::Eos {
        generated.push(END);
    }
    let mut seen = prompt.to_vec();
    let mut sum = 0.0;
    for id in &generated {
        sum += log_probabilities(model, &seen)[*id as usize];
        seen.push(*id);
    }
    sum / (generated.len() as f64).powf(penalty)
}

/// All texts of at most `left` more tokens, with their scores.
fn enumerate_texts(
    model: &Model,
    prompt: &[u32],
    generated: &[u32],
    sum: f64,
    left: usize,
) -> Vec<(Vec<u32>, f64)> {
    let seen = [prompt, generated].concat();
    let mut texts = Vec::new();
    for (id, log_probability) in log_probabilities(model, &seen).into_iter().enumerate() {
        let (id, sum) = (id as u32, sum + log_probability);
        let length = (generated.len() + 1) as f64;
        if id == END {
            texts.push((generated.to_vec(), sum / length));
        } else if left == 1 {
            texts.push(([generated, &[id]].concat(), sum / length));
        } else {
            texts.extend(enumerate_texts(
                model,
                prompt,
                &[generated, &[id]].concat(),
                sum,
                left - 1,
            ));
        }
    }
    texts
}

#[test]
fn with_enough_beams_the_best_of_all_texts_is_found() {
    let model = model(r#"{ "kind": "full", "heads": 2 }"#, 5);
    let prompt = [3, 2];
    let mut texts = enumerate_texts(&model, &prompt, &[], 0.0, 3);
    texts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let found = beam_search(&model, &[prompt.to_vec()], &config(64, 3)).unwrap();
    // Four of the five tokens do not end a text: 1 + 4 + 4·4·5 texts, more than there are beams.
    assert_eq!(texts.len(), 85);
    for (beam, (ids, score)) in found[0].iter().zip(&texts).take(20) {
        assert_eq!(beam.ids, *ids);
        // The log-probabilities have the errors of logits of a few: `VALUES` is ten ulps of eight.
        assert_near("score", beam.score, *score, Scale::One, VALUES);
    }
}

#[test]
fn every_kind_of_cache_is_reordered_with_its_beams() {
    for attention in [
        r#"{ "kind": "full", "heads": 2 }"#,
        r#"{ "kind": "sliding_window", "heads": 2, "window": 3 }"#,
        r#"{ "kind": "linear", "heads": 2 }"#,
        r#"{ "kind": "performer", "heads": 2, "features": 8 }"#,
        r#"{ "kind": "transformer_xl", "heads": 2, "memory": 24 }"#,
        r#"{ "kind": "reformer", "heads": 2, "buckets": 4, "hashes": 2, "chunk": 4 }"#,
    ] {
        let model = model(attention, 19);
        let prompts = [vec![3, 5, 7], vec![11, 2]];
        let found = beam_search(&model, &prompts, &config(4, 9)).unwrap();
        for (prompt, texts) in prompts.iter().zip(&found) {
            assert_eq!(texts.len(), 4, "{attention}");
            for beam in texts {
                let expected = score(&model, prompt, beam, 1.0);
                let what = format!("{attention}: {beam:?}");
                assert_near(what, beam.score, expected, Scale::EachOrOne, VALUES);
            }
        }
    }
}

#[test]
fn logits_processors_hold_for_every_text() {
    let model = model(r#"{ "kind": "full", "heads": 2 }"#, 19);
    let mut config = BeamConfig {
        tokenizer_vocabulary: Some(17),
        ..config(5, 12)
    };
    config.processors.repetition_penalty = Some(1.5);
    config.processors.no_repeat_ngram_size = Some(2);
    config.processors.min_new_tokens = 4;
    config.processors.bad_words = vec![vec![6]];
    let found = beam_search(&model, &[vec![4]], &config).unwrap();
    for beam in &found[0] {
        let seen = [&[4], beam.ids.as_slice()].concat();
        let mut pairs: Vec<&[u32]> = seen.windows(2).collect();
        pairs.sort();
        let count = pairs.len();
        pairs.dedup();
        assert_eq!(pairs.len(), count, "{beam:?}");
        assert!(beam.ids.len() >= 4 && !beam.ids.contains(&6), "{beam:?}");
        assert!(beam.ids.iter().all(|id| *id < 17), "{beam:?}");
    }
}

#[test]
fn no_new_tokens_is_the_empty_text() {
    let model = model(r#"{ "kind": "full", "heads": 2 }"#, 19);
    let found = beam_search(&model, &[vec![4]], &config(3, 0)).unwrap();
    let empty = Beam {
        ids: Vec::new(),
        score: 0.0,
        reason: StopReason::Length,
    };
    assert_eq!(found, [[empty]]);
    assert_eq!(beam_search(&model, &[], &config(3, 5)).unwrap().len(), 0);
}
