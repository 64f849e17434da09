//! Fill-mask on models with random weights: what the candidates' texts say, and what is refused.

use std::path::Path;

use attentive_model::{Model, ModelConfig};
use attentive_tasks::{Batcher, MaskedToken, TaskError, Text, fill_mask};
use attentive_text::Tokenizer;
use burn::tensor::Device;
use serde_json::json;

/// A tokenizer of the tests of `text`.
fn tokenizer(name: &str) -> Tokenizer {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).join("../text/tests/folders");
    Tokenizer::from_folder(&folders.join(name))
        .unwrap()
        .unwrap()
}

/// A masked language model with this tokenizer's vocabulary.
fn model(tokenizer: &Tokenizer) -> Model {
    let json = json!({
        "vocabulary": tokenizer.vocabulary(), "length": 16, "width": 16, "role": "bidirectional", "init_std": 0.4,
        "head": { "lm_head": { "tied": true } },
        "embedding": { "types": 2, "norm": { "kind": "layer" } },
        "positions": { "kind": "learned" },
        "blocks": [{
            "placement": "after", "norm": { "kind": "layer" },
            "attention": { "kind": "full", "heads": 2 },
            "feed_forward": { "kind": "plain", "hidden_width": 24, "activation": "gelu" }
        }]
    });
    let config: ModelConfig = serde_json::from_value(json).unwrap();
    Model::new(&config, 7, &Device::flex()).unwrap()
}

fn fill(
    name: &str,
    texts: &[&str],
    max_length: Option<usize>,
) -> Result<Vec<Vec<MaskedToken>>, TaskError> {
    let tokenizer = tokenizer(name);
    let model = model(&tokenizer);
    let batcher = Batcher {
        model: &model,
        tokenizer: &tokenizer,
        batch_size: 4,
        max_length,
        truncate: max_length.is_some(),
        offset: 0,
    };
    let texts: Vec<Text> = texts.iter().map(|text| Text::from(*text)).collect();
    fill_mask(batcher, &texts, 20)
}

/// Filling the first of two masks keeps the second, and the other way round.
fn check_other_mask(name: &str, text: &str, first: &str, second: &str) {
    let masks = fill(name, &[text], None).unwrap().remove(0);
    assert_eq!(masks.len(), 2, "{text}");
    for (mask, kept) in masks.iter().zip([second, first]) {
        assert_eq!(mask.candidates.len(), 20);
        for candidate in &mask.candidates {
            assert!(candidate.text.contains(kept), "{:?}", candidate.text);
            assert!(!candidate.text.contains("[CLS]"), "{:?}", candidate.text);
            assert!(!candidate.text.contains("<s>"), "{:?}", candidate.text);
        }
    }
}

#[test]
fn filling_one_mask_keeps_the_others() {
    let text = "a [MASK] robot and the [MASK] play";
    check_other_mask(
        "bert_uncased",
        text,
        "a [MASK] robot and the",
        "robot and the [MASK] play",
    );
    // This tokenizer takes the space before a mask as a part of it.
    let text = "the <mask> and the <mask> play";
    check_other_mask("roberta", text, "the <mask> and the", "and the <mask> play");
    // Whatever the mask is called, and without a space where there was none.
    let text = "the [MASK] and the([MASK]play";
    check_other_mask("roberta", text, "the <mask> and the", "the(<mask>play");
}

#[test]
fn a_single_mask_leaves_no_mask() {
    let masks = fill("bert_uncased", &["the [MASK] dog"], None).unwrap();
    let [mask] = masks[0].as_slice() else {
        panic!("there is one mask");
    };
    assert_eq!(mask.position, 2);
    for candidate in &mask.candidates {
        let kept = candidate.token == "[MASK]";
        assert_eq!(candidate.text.contains("[MASK]"), kept, "{candidate:?}");
        assert!(candidate.text.starts_with("the"), "{candidate:?}");
        assert!(candidate.text.ends_with("dog"), "{candidate:?}");
    }
}

#[test]
fn a_mask_that_is_truncated_is_said_to_be() {
    let texts = [
        "the dog the dog the dog [MASK]",
        "[MASK] the dog the dog the dog [MASK]",
    ];
    for text in texts {
        let error = fill("bert_uncased", &["the [MASK]", text], Some(6)).unwrap_err();
        assert!(matches!(error, TaskError::TruncatedMask { .. }), "{error}");
        assert_eq!(
            error.to_string(),
            "text 2 is truncated to 6 tokens, which cuts off a [MASK]; allow more tokens, or shorten the text"
        );
        assert!(fill("bert_uncased", &[text], Some(16)).is_ok());
    }
    let cut_after = "the [MASK] the dog the dog the dog the dog";
    assert!(fill("bert_uncased", &[cut_after], Some(6)).is_ok());
}

#[test]
fn a_long_text_without_a_mask_is_not_echoed() {
    let text = "the dog's \"name\"\nis dog and ".repeat(200);
    let error = fill("bert_uncased", &[&text], Some(6)).unwrap_err();
    assert!(matches!(error, TaskError::NoMask { .. }), "{error}");
    let message = error.to_string();
    let beginning = r#"the text "the dog's \"name\"\nis dog and the dog's "#;
    assert!(message.starts_with(beginning), "{message}");
    let end = "…\" has no [MASK]; put it where a token should be predicted";
    assert!(message.ends_with(end), "{message}");
    assert!(message.len() < 200, "{message}");
}
