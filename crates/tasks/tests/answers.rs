//! Extractive question answering against a naive search over all spans of all windows. The model is `fixtures/models/bert-answers`,
//! whose logits the tests of `checkpoint` compare with transformers'; its tokenizer is made here.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use attentive_checkpoint as checkpoint;
use attentive_model::{ForwardOptions, Input, Model, ids_tensor};
use attentive_tasks::{AnswerSpan, Batcher, TaskError, answer};
use attentive_testing::{Scale, VALUES, assert_near};
use attentive_text::{Encoded, SequenceId, Tokenizer};
use burn::tensor::Device;

/// The model's length, and the tokens that windows share: half of it, as it is shorter than two of Hugging Face's overlaps.
const LENGTH: usize = 25;
const OVERLAP: usize = 12;

const QUESTION: &str = "Where is the dog?";
const SHORT: &str = "The dog 🦀 sat in the hat.";
const LONG: &str = "In the hall the dog sat in a hat; the cat is 🦀 in the hill. A dog is not a cat. Is it the dog? It is, the cat said.";
/// The windows of [`LONG`].
const LONG_WINDOWS: usize = 8;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/models")
        .join(name)
}

fn load(name: &str) -> Model {
    checkpoint::load(&fixture(name), &Device::flex()).unwrap().0
}

/// Words and single characters: the model has 71 tokens.
fn tokenizer() -> Tokenizer {
    let mut vocabulary: Vec<String> = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        .map(str::to_owned)
        .into();
    vocabulary.extend(('a'..='z').map(|letter| letter.to_string()));
    vocabulary.extend(('a'..='z').map(|letter| format!("##{letter}")));
    let words = [
        "the", "dog", "is", "in", "where", "cat", "it", "?", ".", ",",
    ];
    vocabulary.extend(words.map(str::to_owned));
    assert!(vocabulary.len() <= 71);
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("vocab.txt", &vocabulary.join("\n"));
    write(
        "tokenizer_config.json",
        r#"{"tokenizer_class": "BertTokenizer", "do_lower_case": true}"#,
    );
    Tokenizer::from_folder(folder.path()).unwrap().unwrap()
}

fn batcher<'a>(model: &'a Model, tokenizer: &'a Tokenizer, batch_size: usize) -> Batcher<'a> {
    Batcher {
        model,
        tokenizer,
        batch_size,
        max_length: None,
        truncate: false,
        offset: 0,
    }
}

/// Every span of at most `max_tokens` tokens of the context, with its score in the window where it is most probable.
fn naive(model: &Model, windows: &[Encoded], max_tokens: usize) -> Vec<(Range<usize>, f64)> {
    let mut best: HashMap<(usize, usize), f64> = HashMap::new();
    for window in windows {
        let device = model.device();
        let input = Input {
            types: Some(ids_tensor(&[&window.type_ids], &device)),
            ..Input::new(ids_tensor(&[&window.ids], &device))
        };
        let output = model.forward(input, ForwardOptions::default());
        let logits = output.token_logits.unwrap().into_data();
        let logits = logits.try_to_vec::<f32>().unwrap();
        let count = window.ids.len();
        let in_context = |token: usize| window.sequence_ids[token] == Some(SequenceId::Second);
        let probabilities = |column: usize| -> Vec<f64> {
            let powers = (0..count).map(|token| match token == 0 || in_context(token) {
                true => f64::from(logits[2 * token + column]).exp(),
                false => 0.0,
            });
            let powers: Vec<f64> = powers.collect();
            let sum: f64 = powers.iter().sum();
            powers.into_iter().map(|power| power / sum).collect()
        };
        let (starts, ends) = (probabilities(0), probabilities(1));
        for (start, start_probability) in starts.iter().enumerate() {
            for (end, end_probability) in ends.iter().enumerate() {
                let tokens = (end + 1).saturating_sub(start);
                if !in_context(start) || !in_context(end) || !(1..=max_tokens).contains(&tokens) {
                    continue;
                }
                let span = (window.offsets[start].start, window.offsets[end].end);
                let score = best.entry(span).or_insert(0.0);
                *score = score.max(start_probability * end_probability);
            }
        }
    }
    let mut found: Vec<(Range<usize>, f64)> = best
        .into_iter()
        .map(|((start, end), score)| (start..end, score))
        .collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    found
}

/// The answers are the first of the naive search. Spans of nearly equal scores may come in either order.
fn check(context: &str, windows: usize, top: usize, max_tokens: usize, batch_size: usize) {
    let (model, tokenizer) = (load("bert-answers"), tokenizer());
    let what = format!("{windows} windows, {top} of at most {max_tokens} tokens");
    let batcher = batcher(&model, &tokenizer, batch_size);
    let found: Vec<AnswerSpan> = answer(batcher, QUESTION, context, top, max_tokens).unwrap();
    let encoded = tokenizer.encode_pair(QUESTION, context, None).unwrap();
    let split = encoded.windows_of_second(LENGTH, OVERLAP).unwrap();
    assert_eq!(split.len(), windows, "{what}");
    let expected = naive(&model, &split, max_tokens);
    assert_eq!(found.len(), top.min(expected.len()), "{what}");
    for (index, (found, expected_there)) in found.iter().zip(&expected).enumerate() {
        let what = format!("{what}: answer {index}");
        assert_eq!(found.text, context[found.span.clone()], "{what}");
        let of_span = expected.iter().find(|(span, _)| *span == found.span);
        let (_, score) = of_span.unwrap_or_else(|| panic!("{what} is no span"));
        assert_near(&what, found.score, *score, Scale::One, VALUES);
        assert_near(&what, found.score, expected_there.1, Scale::One, VALUES);
    }
    for (index, one) in found.iter().enumerate() {
        let again = found[..index].iter().any(|other| other.span == one.span);
        assert!(!again, "{what}: {:?} twice", one.text);
    }
}

#[test]
fn the_best_spans_of_a_context_are_found() {
    for (top, max_tokens) in [(1, 15), (5, 15), (5, 2), (7, 1), (1000, 4)] {
        check(SHORT, 1, top, max_tokens, 8);
    }
}

#[test]
fn the_best_spans_of_all_windows_are_found() {
    for batch_size in [1, 3, 8] {
        for (top, max_tokens) in [(1, 15), (20, 15), (9, 3), (1000, 2)] {
            check(LONG, LONG_WINDOWS, top, max_tokens, batch_size);
        }
    }
}

#[test]
fn without_a_token_there_is_no_answer() {
    let (model, tokenizer) = (load("bert-answers"), tokenizer());
    let batcher = batcher(&model, &tokenizer, 8);
    for (context, top, max_tokens) in [("", 3, 15), (SHORT, 0, 15), (SHORT, 3, 0)] {
        let found = answer(batcher, QUESTION, context, top, max_tokens).unwrap();
        assert!(found.is_empty(), "{found:?}");
    }
}

#[test]
fn what_cannot_be_answered_is_refused() {
    let (model, tokenizer) = (load("bert-answers"), tokenizer());
    // Half of the windows would be the question.
    let long = "where is the dog ".repeat(4);
    let error = answer(batcher(&model, &tokenizer, 8), &long, LONG, 1, 15).unwrap_err();
    assert!(matches!(error, TaskError::Text(_)), "{error}");
    let labels = load("bert-tokens");
    let error = answer(batcher(&labels, &tokenizer, 8), QUESTION, SHORT, 1, 15).unwrap_err();
    assert!(matches!(error, TaskError::NoHead { .. }), "{error}");
}
