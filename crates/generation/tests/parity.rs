//! Greedy decoding against Hugging Face's ids, with and without the KV cache; decoding beyond the model's length.

mod support;

use std::ops::ControlFlow;
use std::path::PathBuf;

use attentive_checkpoint::{self as checkpoint, TensorFile};
use attentive_generation::{
    GenerationConfig, LogitsProcessors, Sampling, Session, StopReason, generate,
};
use attentive_model::Model;
use attentive_testing::{Scale, assert_close, ulps};
use burn::tensor::Device;

use support::uncached;

const MODELS: [&str; 7] = [
    "gpt2",
    "llama",
    "llama-tied",
    "models/mistral",
    "models/qwen2",
    "models/qwen3",
    "models/mixtral",
];

/// The tolerance of logits that are computed from another number of rows. One after another, each of three layers sums about 320
/// terms, and the last norm and the head 64. Each of 2 · 1024 rounding errors has a standard deviation of at most an ulp / √12: four
/// of all together are 4 · √(2048 / 12) = 52 ulps.
const CACHED: f64 = ulps(64);

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

#[test]
fn greedy_ids_match_transformers_with_and_without_the_cache() {
    for name in MODELS {
        let (model, file) = load(name);
        let prompt = ids(&file, "prompt_ids");
        let expected = ids(&file, "greedy_ids");
        let config = GenerationConfig {
            max_new_tokens: expected.len() - prompt.len(),
            sampling: Sampling::greedy(),
            stop_strings: Vec::new(),
            processors: LogitsProcessors::default(),
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
            sequence.push(Sampling::greedy().sample(logits, sequence.len()).unwrap());
        }
        assert_eq!(sequence, expected, "{name}, uncached");
    }
}

#[test]
fn cached_logits_equal_uncached_ones_however_the_tokens_are_split() {
    for name in ["gpt2", "llama"] {
        let (model, file) = load(name);
        let sequence = ids(&file, "greedy_ids");
        let mut session = Session::new(&model);
        let mut end = 0;
        for count in [1, 5, 1, 1, 9, 2] {
            let logits = session.prefill(&sequence[end..end + count]);
            end += count;
            let expected = uncached(&model, &sequence[..end]);
            let what = format!("{name}: after {end} tokens");
            assert_close(what, &logits, &expected, Scale::Largest, CACHED);
        }
    }
}

#[test]
fn beyond_the_length_the_newer_half_is_prefilled_again() {
    let (model, file) = load("gpt2");
    let length = model.config().stack.length;
    let mut session = Session::new(&model);
    let sequence: Vec<u32> = ids(&file, "input_ids")
        .into_iter()
        .chain(ids(&file, "padded.input_ids"))
        .take(length + 1)
        .collect();
    let mut logits = Vec::new();
    for id in &sequence {
        logits = session.step(*id);
    }
    let expected = uncached(&model, &sequence[length + 1 - length / 2..]);
    assert_close("logits", &logits, &expected, Scale::Largest, CACHED);
}

#[test]
fn an_eos_token_ends_the_text_and_is_not_part_of_it() {
    let (model, file) = load("llama");
    let prompt = ids(&file, "prompt_ids");
    let greedy = ids(&file, "greedy_ids");
    let end = greedy[prompt.len() + 4];
    let first = greedy[prompt.len()..]
        .iter()
        .position(|id| *id == end)
        .unwrap();
    let config = GenerationConfig {
        max_new_tokens: 32,
        sampling: Sampling::greedy(),
        stop_strings: Vec::new(),
        processors: LogitsProcessors::with_eos(vec![end]),
    };
    let done = generate(
        &model,
        None,
        &prompt,
        &config,
        |_| ControlFlow::Continue(()),
    )
    .unwrap();
    assert_eq!(done.reason, StopReason::Eos);
    assert_eq!(done.ids, greedy[prompt.len()..prompt.len() + first]);
}

#[test]
fn the_callback_may_end_the_text() {
    let (model, file) = load("llama");
    let config = GenerationConfig {
        max_new_tokens: 32,
        sampling: Sampling::greedy(),
        stop_strings: Vec::new(),
        processors: LogitsProcessors::default(),
    };
    let prompt = ids(&file, "prompt_ids");
    let done = generate(&model, None, &prompt, &config, |_| ControlFlow::Break(())).unwrap();
    assert_eq!((done.ids.len(), done.reason), (1, StopReason::Cancelled));
}
