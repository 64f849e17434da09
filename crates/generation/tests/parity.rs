//! Greedy decoding against Hugging Face's ids, with the cache and without; and decoding beyond the model's length.

use std::ops::ControlFlow;
use std::path::PathBuf;

use attentive_generation::{GenerationConfig, Rules, Sampling, Session, StopReason, generate};
use attentive_model::checkpoint::{self, TensorFile};
use attentive_model::{Extras, Input, Model};
use burn::tensor::{Device, Tensor, TensorData};

const MODELS: [&str; 7] = [
    "gpt2",
    "llama",
    "llama-tied",
    "models/mistral",
    "models/qwen2",
    "models/qwen3",
    "models/mixtral",
];

fn load(name: &str) -> (Model, TensorFile) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(name);
    let (model, _) = checkpoint::load(&folder, &Device::flex()).unwrap();
    let file = TensorFile::open(&folder.join("golden.safetensors")).unwrap();
    (model, file)
}

fn ids(file: &TensorFile, name: &str) -> Vec<u32> {
    let ids = file.integers(name).unwrap();
    ids.into_iter().map(|id| id as u32).collect()
}

/// The scores after `ids`, from a pass without a cache.
fn uncached(model: &Model, ids: &[u32]) -> Vec<f32> {
    let numbers: Vec<i64> = ids.iter().map(|id| i64::from(*id)).collect();
    let data = TensorData::new(numbers, [1, ids.len()]);
    let input = Input::new(Tensor::from_data(data, &Device::flex()));
    let logits = model.forward(input, Extras::default()).into_words();
    let last = logits.narrow(1, ids.len() - 1, 1);
    last.into_data().try_to_vec::<f32>().unwrap()
}

#[test]
fn greedy_ids_are_those_of_transformers_with_and_without_the_cache() {
    for name in MODELS {
        let (model, file) = load(name);
        let prompt = ids(&file, "prompt_ids");
        let expected = ids(&file, "greedy_ids");
        let config = GenerationConfig {
            max_tokens: expected.len() - prompt.len(),
            sampling: Sampling::greedy(),
            stop: Vec::new(),
            rules: Rules::default(),
        };
        let cached = generate(
            &model,
            None,
            &prompt,
            &config,
            |_| ControlFlow::Continue(()),
        )
        .unwrap();
        assert_eq!(cached.ids, expected[prompt.len()..], "{name}");
        assert_eq!(cached.reason, StopReason::Length);

        let mut sequence = prompt;
        while sequence.len() < expected.len() {
            let logits = uncached(&model, &sequence);
            sequence.push(Sampling::greedy().choose(logits, sequence.len()).unwrap());
        }
        assert_eq!(sequence, expected, "{name}, uncached");
    }
}

#[test]
fn cached_scores_equal_uncached_ones_however_the_tokens_are_fed() {
    for name in ["gpt2", "llama"] {
        let (model, file) = load(name);
        let sequence = ids(&file, "greedy_ids");
        let mut session = Session::new(&model);
        let mut read = 0;
        for count in [1, 5, 1, 1, 9, 2] {
            let scores = session.read(&sequence[read..read + count]);
            read += count;
            let whole = uncached(&model, &sequence[..read]);
            let gaps = scores.iter().zip(&whole).map(|(a, b)| (a - b).abs());
            let apart = gaps.fold(0.0, f32::max);
            assert!(apart < 1e-4, "{name}: after {read} tokens, {apart} apart");
        }
    }
}

#[test]
fn beyond_the_length_the_newer_half_is_read_afresh() {
    let (model, file) = load("gpt2");
    let length = model.config().length;
    let mut session = Session::new(&model);
    let sequence: Vec<u32> = ids(&file, "input_ids")
        .into_iter()
        .chain(ids(&file, "padded.input_ids"))
        .take(length + 1)
        .collect();
    let mut scores = Vec::new();
    for id in &sequence {
        scores = session.read(&[*id]);
    }
    let expected = uncached(&model, &sequence[length + 1 - length / 2..]);
    let gaps = scores.iter().zip(&expected).map(|(a, b)| (a - b).abs());
    assert!(gaps.fold(0.0, f32::max) < 1e-4);
}

#[test]
fn an_end_token_ends_the_text_and_is_not_part_of_it() {
    let (model, file) = load("llama");
    let prompt = ids(&file, "prompt_ids");
    let greedy = ids(&file, "greedy_ids");
    let end = greedy[prompt.len() + 4];
    let first = greedy[prompt.len()..]
        .iter()
        .position(|id| *id == end)
        .unwrap();
    let config = GenerationConfig {
        max_tokens: 32,
        sampling: Sampling::greedy(),
        stop: Vec::new(),
        rules: Rules::ending(vec![end]),
    };
    let done = generate(
        &model,
        None,
        &prompt,
        &config,
        |_| ControlFlow::Continue(()),
    )
    .unwrap();
    assert_eq!(done.reason, StopReason::End);
    assert_eq!(done.ids, greedy[prompt.len()..prompt.len() + first]);
}

#[test]
fn what_is_shown_may_end_the_text() {
    let (model, file) = load("llama");
    let config = GenerationConfig {
        max_tokens: 32,
        sampling: Sampling::greedy(),
        stop: Vec::new(),
        rules: Rules::default(),
    };
    let prompt = ids(&file, "prompt_ids");
    let done = generate(&model, None, &prompt, &config, |_| ControlFlow::Break(())).unwrap();
    assert_eq!((done.ids.len(), done.reason), (1, StopReason::Unwanted));
}
