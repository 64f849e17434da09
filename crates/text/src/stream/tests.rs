//! Streamed decoding must equal decoding all ids at once, for every kind of decoder.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::TokenizerConfig;
use attentive_data::Corpus;

static BYTES: LazyLock<Tokenizer> = LazyLock::new(|| train(TokenizerConfig::Bytes {}));
static BPE: LazyLock<Tokenizer> = LazyLock::new(|| train(TokenizerConfig::Bpe { vocabulary: 400 }));
static CHARACTERS: LazyLock<Tokenizer> = LazyLock::new(|| train(TokenizerConfig::Characters {}));
/// The decoder of BERT: a space before each word but the first, none before `##` pieces and punctuation.
static WORD_PIECES: LazyLock<Tokenizer> = LazyLock::new(|| {
    load(
        r###"{"type": "WordPiece", "prefix": "##", "cleanup": true}"###,
        &["[UNK]", "play", "##ing", "a", "##b", ".", "'s"],
    )
});
/// The decoder of Llama 2: `▁` for spaces, bytes as `<0x..>`, one leading space stripped.
static FALLBACK: LazyLock<Tokenizer> = LazyLock::new(|| {
    let decoder = r#"{"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}"#;
    load(
        decoder,
        &["▁", "▁a", "b", "<0xE6>", "<0x97>", "<0xA5>", "<0x41>", "▁▁"],
    )
});

fn train(config: TokenizerConfig) -> Tokenizer {
    Tokenizer::train(&config, Corpus::stories(1, 50).documents()).expect("training on stories")
}

fn load(decoder: &str, vocabulary: &[&str]) -> Tokenizer {
    let vocabulary: std::collections::BTreeMap<&str, usize> =
        vocabulary.iter().copied().zip(0..).collect();
    let vocabulary = serde_json::to_string(&vocabulary).expect("JSON");
    let json = format!(
        r#"{{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": {decoder},
        "model": {{"type": "WordLevel", "vocab": {vocabulary}, "unk_token": "[UNK]"}}}}"#
    );
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), json).expect("writing");
    Tokenizer::load(file.path()).expect("loading")
}

fn check(tokenizer: &Tokenizer, ids: &[u32]) {
    let mut stream = TextStream::new(tokenizer);
    let mut text = String::new();
    for &id in ids {
        text.push_str(&stream.push(id).expect("a known id"));
    }
    text.push_str(&stream.finish());
    assert_eq!(text, tokenizer.decode(ids).expect("known ids"), "{ids:?}");
}

#[test]
fn incomplete_characters_are_held_back() {
    let mut stream = TextStream::new(&BYTES);
    let pieces: Vec<String> = [0x61, 0xF0, 0x9F, 0xA6, 0x80, 0xE6]
        .iter()
        .map(|&id| stream.push(id).expect("a byte"))
        .collect();
    assert_eq!(pieces, ["a", "", "", "", "🦀", ""]);
    assert_eq!(stream.finish(), "\u{fffd}");
}

#[test]
fn invalid_bytes_are_not_held_back() {
    let mut stream = TextStream::new(&BYTES);
    assert_eq!(stream.push(0x80).expect("a byte"), "\u{fffd}");
    assert_eq!(stream.push(0xE6).expect("a byte"), "");
    assert_eq!(stream.push(b'a'.into()).expect("a byte"), "\u{fffd}a");
    assert!(matches!(
        stream.push(9999),
        Err(TextError::UnknownId { id: 9999, .. })
    ));
}

#[test]
fn words_are_returned_immediately() {
    let mut stream = TextStream::new(&WORD_PIECES);
    let pieces: Vec<String> = [1, 2, 3, 4, 5]
        .iter()
        .map(|&id| stream.push(id).expect("a word"))
        .collect();
    assert_eq!(pieces, ["play", "ing", " a", "b", "."]);
}

proptest! {
    #[test]
    fn streaming_any_ids_equals_decoding_them(choices in prop::collection::vec(any::<u32>(), 0..60)) {
        for tokenizer in [&*BYTES, &*BPE, &*CHARACTERS, &*WORD_PIECES, &*FALLBACK] {
            let ids: Vec<u32> = choices.iter().map(|choice| choice % tokenizer.vocabulary() as u32).collect();
            check(tokenizer, &ids);
        }
    }

    #[test]
    fn streaming_any_text_equals_decoding_it(text in any::<String>()) {
        for tokenizer in [&*BYTES, &*BPE] {
            check(tokenizer, &tokenizer.encode(&text).expect("encoding"));
        }
    }
}
