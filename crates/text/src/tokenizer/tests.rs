//! The three kinds of tokenizer: round trips, determinism, chunked encoding, errors.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use attentive_data::Corpus;

static DOCUMENTS: LazyLock<Vec<String>> =
    LazyLock::new(|| Corpus::stories(1, 200).documents().to_vec());
static BYTES: LazyLock<Tokenizer> = LazyLock::new(|| train(TokenizerConfig::Bytes {}));
static BPE: LazyLock<Tokenizer> = LazyLock::new(|| train(TokenizerConfig::Bpe { vocabulary: 600 }));
static CHARACTERS: LazyLock<Tokenizer> = LazyLock::new(|| train(TokenizerConfig::Characters {}));

fn train(config: TokenizerConfig) -> Tokenizer {
    Tokenizer::train(&config, &DOCUMENTS).expect("training on stories")
}

/// The ids of a corpus with this single document.
fn encode_plain(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, TextError> {
    let ids = tokenizer.encode_documents(&[text]);
    ids.map(|ids| ids.concat()).map_err(|located| located.error)
}

fn check_round_trip(tokenizer: &Tokenizer, text: &str) {
    let ids = tokenizer.encode(text).expect("encoding");
    assert_eq!(tokenizer.decode(&ids).expect("decoding"), text);
    assert_eq!(
        encode_plain(tokenizer, text).expect("encoding"),
        ids,
        "trained tokenizers add no special tokens"
    );
}

#[test]
fn character_ids_are_in_code_point_order() {
    let tokenizer = Tokenizer::train(
        &TokenizerConfig::Characters {},
        &["cab".into(), "é\na".into()],
    )
    .expect("training");
    assert_eq!(tokenizer.vocabulary(), 5);
    assert_eq!(tokenizer.end_of_text(), None);
    assert_eq!(
        tokenizer.encode("\nabcé").expect("encoding"),
        [0, 1, 2, 3, 4]
    );
}

#[test]
fn an_unknown_character_is_an_error() {
    let tokenizer =
        Tokenizer::train(&TokenizerConfig::Characters {}, &["cabé".into()]).expect("training");
    for (text, offset) in [("aéx", 3), ("xa", 0), ("axb", 1), ("x", 0)] {
        for result in [tokenizer.encode(text), encode_plain(&tokenizer, text)] {
            match result {
                Err(TextError::UnknownCharacter {
                    character: 'x',
                    offset: found,
                    ..
                }) => assert_eq!(found, offset),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
    // Far into a long text, beyond the first chunks.
    let long = "cab\n"
        .repeat(30_000)
        .replace('\n', "é\n")
        .replace('\n', "é")
        + "x";
    match encode_plain(&tokenizer, &long) {
        Err(TextError::UnknownCharacter { offset, .. }) => assert_eq!(offset, long.len() - 1),
        other => panic!("{:?}", other.map(|ids| ids.len())),
    }
}

#[test]
fn bytes_are_their_own_ids() {
    assert_eq!(BYTES.vocabulary(), 257);
    assert_eq!(BYTES.end_of_text(), Some(256));
    assert_eq!(
        BYTES.encode("a é\n<|endoftext|>").expect("encoding"),
        [97, 32, 0xC3, 0xA9, 10, 256]
    );
}

#[test]
fn merges_fill_the_vocabulary() {
    assert_eq!(BPE.vocabulary(), 600);
    assert!(BPE.end_of_text().is_some());
    let ids = BPE.encode("Once upon a time").expect("encoding");
    assert!(ids.len() < 8, "{ids:?}");
}

#[test]
fn a_vocabulary_too_small_for_bytes_is_refused() {
    let error = Tokenizer::train(&TokenizerConfig::Bpe { vocabulary: 256 }, &DOCUMENTS)
        .expect_err("out of range");
    insta::assert_snapshot!(error, @"a bpe vocabulary of 256 is out of range; use 257 (256 bytes and the end of text) to 1000000");
    assert!(Tokenizer::train(&TokenizerConfig::Bpe { vocabulary: 257 }, &DOCUMENTS).is_ok());
}

#[test]
fn an_empty_corpus_is_refused() {
    for config in [
        TokenizerConfig::Characters {},
        TokenizerConfig::Bpe { vocabulary: 300 },
    ] {
        assert!(matches!(
            Tokenizer::train(&config, &[String::new()]),
            Err(TextError::EmptyCorpus)
        ));
    }
}

#[test]
fn training_is_deterministic() {
    for config in [
        TokenizerConfig::Characters {},
        TokenizerConfig::Bytes {},
        TokenizerConfig::Bpe { vocabulary: 2000 },
    ] {
        let first = train(config.clone()).to_json().expect("writing");
        for _ in 0..3 {
            assert!(
                first == train(config.clone()).to_json().expect("writing"),
                "{config:?} differs"
            );
        }
    }
}

#[test]
fn the_written_tokenizer_loads_again() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("tokenizer.json");
    for tokenizer in [&*CHARACTERS, &*BYTES, &*BPE] {
        let text = tokenizer.to_json().expect("writing");
        std::fs::write(&path, &text).expect("writing");
        let loaded = Tokenizer::load(&path).expect("loading");
        assert_eq!(loaded.to_json().expect("writing"), text);
        let text = &DOCUMENTS[0];
        assert_eq!(
            loaded.encode(text).expect("encoding"),
            tokenizer.encode(text).expect("encoding")
        );
        assert_eq!(loaded.vocabulary(), tokenizer.vocabulary());
    }
}

#[test]
fn a_broken_file_is_named() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("tokenizer.json");
    std::fs::write(&path, "{\"model\": 3}").expect("writing");
    assert!(matches!(
        Tokenizer::load(&path),
        Err(TextError::BrokenTokenizer { .. })
    ));
    assert!(matches!(
        Tokenizer::load(&path.with_extension("gone")),
        Err(TextError::MissingFile { .. })
    ));
    assert!(matches!(
        Tokenizer::load(directory.path()),
        Err(TextError::BrokenTokenizer { .. })
    ));
}

#[test]
fn truncation_in_the_file_is_disabled() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("tokenizer.json");
    let truncation = "\"truncation\": {\"direction\": \"Right\", \"max_length\": 2, \"strategy\": \"LongestFirst\", \"stride\": 0}";
    let text = BYTES.to_json().expect("writing");
    std::fs::write(&path, text.replace("\"truncation\": null", truncation)).expect("writing");
    assert_eq!(
        Tokenizer::load(&path)
            .expect("loading")
            .encode("four")
            .expect("encoding")
            .len(),
        4
    );
}

#[test]
fn ids_outside_the_vocabulary_are_refused() {
    let error = BYTES.decode(&[65, 257]).expect_err("257 is outside");
    insta::assert_snapshot!(error, @"the token id 257 is outside the vocabulary of 257; use the tokenizer that made the ids");
}

#[test]
fn decoding_skips_special_tokens() {
    assert_eq!(BYTES.decode(&[65, 256, 66]).expect("decoding"), "AB");
}

#[test]
fn configs_refuse_unknown_keys() {
    let good: TokenizerConfig =
        serde_json::from_str(r#"{"kind": "bpe", "vocabulary": 300}"#).expect("a good config");
    assert_eq!(good, TokenizerConfig::Bpe { vocabulary: 300 });
    assert!(serde_json::from_str::<TokenizerConfig>(r#"{"kind": "characters"}"#).is_ok());
    assert!(
        serde_json::from_str::<TokenizerConfig>(r#"{"kind": "characters", "vocabulary": 3}"#)
            .is_err()
    );
    assert!(serde_json::from_str::<TokenizerConfig>(r#"{"kind": "words"}"#).is_err());
}

/// Text that is hard to tokenize: many kinds of whitespace, contractions, several scripts, the special token.
fn hard_text() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "\n",
        "\r\n",
        " ",
        "\t",
        "\u{a0}",
        "\u{85}",
        "\u{2028}",
        "\u{180e}",
        "\u{3000}",
        "a",
        "don't",
        "'ll",
        "'",
        "7",
        "٣",
        "é",
        "日本",
        "🦀",
        "!",
        "...",
        "\u{0}",
        "\u{fffd}",
        END_OF_TEXT,
    ]);
    prop::collection::vec(pieces, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn bytes_and_bpe_round_trip_any_text(text in any::<String>()) {
        check_round_trip(&BYTES, &text);
        check_round_trip(&BPE, &text);
    }

    #[test]
    fn characters_round_trip_known_text(text in "[a-zA-Z ,.!]{0,80}") {
        let known = |character: &char| DOCUMENTS.iter().any(|document| document.contains(*character));
        check_round_trip(&CHARACTERS, &text.chars().filter(known).collect::<String>());
    }

    #[test]
    fn chunking_does_not_change_ids(text in hard_text(), min_bytes in 1usize..20) {
        for tokenizer in [&*BYTES, &*BPE] {
            let whole = tokenizer.encode(&text).expect("encoding");
            let chunked: Vec<u32> = crate::chunks::chunks(&text, min_bytes)
                .into_iter()
                .flat_map(|chunk| tokenizer.encode(chunk).expect("encoding"))
                .collect();
            prop_assert_eq!(whole, chunked);
        }
    }
}

#[test]
fn a_long_document_is_encoded_as_without_chunks() {
    let text = DOCUMENTS.concat().repeat(5);
    for tokenizer in [&*CHARACTERS, &*BYTES, &*BPE] {
        assert!(
            tokenizer.rules.chunks_text(),
            "trained tokenizers must be chunkable"
        );
        assert!(
            encode_plain(tokenizer, &text).expect("encoding")
                == tokenizer.encode(&text).expect("encoding")
        );
    }
}
