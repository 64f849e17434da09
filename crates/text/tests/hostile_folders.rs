//! Damaged or incomplete folders: always an error message, never a panic or a guess.

use std::path::{Path, PathBuf};

use attentive_text::{TextError, Tokenizer, TokenizerConfig, TokenizerOptions};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/folders")
        .join(name)
}

/// A copy of a folder, without the expected values.
fn copy(name: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a temporary folder");
    for entry in std::fs::read_dir(folder(name)).expect("the folder") {
        let path = entry.expect("an entry").path();
        if !path.ends_with("expected.json") {
            std::fs::copy(&path, copy.path().join(path.file_name().expect("a name")))
                .expect("copying");
        }
    }
    copy
}

fn write(folder: &tempfile::TempDir, name: &str, contents: impl AsRef<[u8]>) {
    std::fs::write(folder.path().join(name), contents).expect("writing");
}

fn remove(folder: &tempfile::TempDir, names: &[&str]) {
    for name in names {
        std::fs::remove_file(folder.path().join(name)).expect("removing");
    }
}

/// The error message, with the folder replaced by DIR.
fn message(folder: &tempfile::TempDir) -> String {
    let error = Tokenizer::from_folder(folder.path()).expect_err("the folder is wrong");
    error
        .to_string()
        .replace(&folder.path().display().to_string(), "DIR")
}

/// The error message after replacing `old` by `new` in a file.
fn edited(name: &str, file: &str, old: &str, new: &str) -> String {
    let folder = copy(name);
    let text = std::fs::read_to_string(folder.path().join(file)).expect("a text file");
    assert!(text.contains(old), "{old:?} is not in {file}");
    write(&folder, file, text.replacen(old, new, 1));
    message(&folder)
}

#[test]
fn lower_casing_can_be_said_where_the_files_do_not() {
    let silent = copy("bert_cased");
    let path = silent.path().join("tokenizer_config.json");
    let config = std::fs::read_to_string(&path).expect("a text file");
    let without = config.replacen("\"do_lower_case\": false,", "", 1);
    write(&silent, "tokenizer_config.json", &without);
    let options = |lower_case: bool| TokenizerOptions {
        do_lower_case: Some(lower_case),
        ..TokenizerOptions::default()
    };
    let ids = |tokenizer: Option<Tokenizer>| {
        let tokenizer = tokenizer.expect("a tokenizer");
        let encoded = tokenizer.encode_text("The dog", None);
        encoded.expect("a text").ids
    };
    let said = Tokenizer::from_folder_with(silent.path(), &options(false)).expect("it is said");
    let cased = Tokenizer::from_folder(&folder("bert_cased")).expect("it says so");
    assert_eq!(ids(said), ids(cased));
    let lower = Tokenizer::from_folder_with(silent.path(), &options(true)).expect("it is said");
    let cased = Tokenizer::from_folder(&folder("bert_cased")).expect("it says so");
    assert_ne!(ids(lower), ids(cased));

    let error = Tokenizer::from_folder_with(&folder("gpt2"), &options(true));
    assert!(matches!(error, Err(TextError::NoLowerCase { .. })));
    let opposite = Tokenizer::from_folder_with(&folder("bert_cased"), &options(true));
    assert!(matches!(opposite, Err(TextError::NoLowerCase { .. })));
    assert!(Tokenizer::from_folder_with(&folder("bert_cased"), &options(false)).is_ok());
}

/// A tokenizer.json of bytes with this normalizer and pre-tokenizer.
fn byte_tokenizer(normalizer: &str, pre_tokenizer: &str) -> Result<Tokenizer, TextError> {
    let trained = Tokenizer::train(&TokenizerConfig::Bytes {}, &[]).expect("bytes");
    let json = trained.to_json().expect("it is written");
    let mut json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    json["normalizer"] = serde_json::from_str(normalizer).expect("it is JSON");
    json["pre_tokenizer"] = serde_json::from_str(pre_tokenizer).expect("it is JSON");
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(&folder, "tokenizer.json", json.to_string());
    Tokenizer::load(&folder.path().join("tokenizer.json"))
}

#[test]
fn a_pattern_that_backtracks_for_ever_is_an_error_of_the_text() {
    let split = r#"{"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": false}"#;
    let tokenizer = byte_tokenizer("null", split).expect("the pattern is valid");
    let hostile = "a".repeat(60) + "b";
    for result in [
        tokenizer.encode(&hostile).map(drop),
        tokenizer.encode_text(&hostile, None).map(drop),
        tokenizer
            .encode_documents(&[&hostile])
            .map(drop)
            .map_err(|it| it.error),
    ] {
        assert!(
            matches!(result, Err(TextError::TokenizerPanic)),
            "{result:?}"
        );
    }
    assert!(!attentive_text::panics_are_errors());
    tokenizer.encode("ab").expect("a harmless text");
}

#[test]
fn normalizers_that_multiply_text_are_refused() {
    let replace = |pattern: &str, content: &str| {
        format!(r#"{{"type": "Replace", "pattern": {pattern}, "content": "{content}"}}"#)
    };
    let chain = |step: &str, times: usize| {
        let steps = vec![step; times].join(",");
        byte_tokenizer(
            &format!(r#"{{"type": "Sequence", "normalizers": [{steps}]}}"#),
            "null",
        )
    };
    let longer = replace(r#"{"String": "a"}"#, &"a".repeat(20));
    let between = replace(r#"{"String": ""}"#, "ab");
    for (step, times) in [(longer, 12), (between, 40)] {
        let error = chain(&step, times)
            .expect_err("it multiplies text")
            .to_string();
        assert!(
            error.contains("times longer, and the limit is 4096"),
            "{error}"
        );
    }
    let spaces = replace(r#"{"String": " "}"#, "▁");
    chain(&spaces, 3).expect("a usual chain");
    let same = replace(r#"{"String": "``"}"#, "''");
    chain(&same, 500).expect("no text becomes longer");
}

#[test]
fn no_tokenizer_is_none() {
    let empty = tempfile::tempdir().expect("a temporary folder");
    write(&empty, "config.json", "not read");
    assert!(
        Tokenizer::from_folder(empty.path())
            .expect("nothing wrong")
            .is_none()
    );
    let error = Tokenizer::from_folder(&empty.path().join("gone"));
    assert!(matches!(error, Err(TextError::NotAFolder { .. })));
}

#[test]
fn broken_word_piece_vocabularies() {
    insta::assert_snapshot!(edited("bert_uncased", "vocab.txt", "[CLS]\n", "[CLS]\n[CLS]\n"), @r#"DIR/vocab.txt cannot be used (the token "[CLS]" is on line 3 and again on line 4); download or export the tokenizer again"#);
    insta::assert_snapshot!(edited("bert_uncased", "vocab.txt", "[CLS]\n", "\n"), @"DIR/vocab.txt cannot be used (line 3 is empty); download or export the tokenizer again");
    insta::assert_snapshot!(edited("bert_uncased", "vocab.txt", "[UNK]\n", "unk\n"), @r#"DIR/vocab.txt cannot be used (the unknown token "[UNK]" is not in it); download or export the tokenizer again"#);
    insta::assert_snapshot!(edited("bert_cased", "tokenizer_config.json", "\"do_lower_case\": false,", ""), @"the tokenizer of DIR is ambiguous (vocab.txt has words with capital letters, and tokenizer_config.json does not set `do_lower_case`); add its tokenizer.json or complete its tokenizer_config.json");
    insta::assert_snapshot!(edited("bert_cased", "tokenizer_config.json", "false,", "3,"), @"DIR/tokenizer_config.json cannot be used (`do_lower_case` is not true or false); download or export the tokenizer again");
    insta::assert_snapshot!(edited("bert_cased", "config.json", "\"bert\"", "\"roformer\""), @r#"DIR: the tokenizer class "roformer" is not supported without a tokenizer.json; add it; supported are BertTokenizer, DistilBertTokenizer, ElectraTokenizer, MobileBertTokenizer, ConvBertTokenizer, LayoutLMTokenizer, SqueezeBertTokenizer, LxmertTokenizer, GPT2Tokenizer, RobertaTokenizer, LongformerTokenizer, BartTokenizer, LEDTokenizer, MvpTokenizer, T5Tokenizer, MT5Tokenizer, AlbertTokenizer, BigBirdTokenizer, ReformerTokenizer, LlamaTokenizer, XLMRobertaTokenizer, MarianTokenizer"#);
    insta::assert_snapshot!(edited("bert_uncased", "tokenizer_config.json", "{", "{ 5"), @"DIR/tokenizer_config.json cannot be used (it is not JSON: key must be a string at line 1 column 3); download or export the tokenizer again");
}

#[test]
fn broken_bpe_vocabularies() {
    insta::assert_snapshot!(edited("gpt2", "vocab.json", "\"!\":1", "\"!\":1,\"!\":2"), @r#"DIR/vocab.json cannot be used (the token "!" is in it twice at line 1 column 30); download or export the tokenizer again"#);
    insta::assert_snapshot!(edited("gpt2", "vocab.json", "\"!\":1", "\"!\":2"), @"DIR/vocab.json cannot be used (its ids are not 0, 1, 2 and so on, each once); download or export the tokenizer again");
    insta::assert_snapshot!(edited("gpt2", "vocab.json", "\"!\":1", "\"!\":-1"), @"DIR/vocab.json cannot be used (invalid value: integer `-1`, expected u32 at line 1 column 25); download or export the tokenizer again");
    insta::assert_snapshot!(edited("gpt2", "merges.txt", "h e\n", "h e e\n"), @"DIR/merges.txt cannot be used (line 3 is not two tokens with a space between them); download or export the tokenizer again");
    insta::assert_snapshot!(edited("gpt2", "merges.txt", "h e\n", "h e\nh e\n"), @"DIR/merges.txt cannot be used (line 4 repeats an earlier line); download or export the tokenizer again");
    insta::assert_snapshot!(edited("gpt2", "merges.txt", "h e\n", "h zz\n"), @"DIR/merges.txt cannot be used (line 3 joins tokens that are not in vocab.json); download or export the tokenizer again");
    insta::assert_snapshot!(edited("gpt2", "merges.txt", "#version", "version"), @"DIR/merges.txt cannot be used (its first line is not `#version: ...`); download or export the tokenizer again");
    insta::assert_snapshot!(edited("bart", "tokenizer_config.json", "\"318\"", "\"319\""), @r#"the tokenizer of DIR is ambiguous (the added token "zzyzx" should have the id 319, but the vocabulary gives it 318); add its tokenizer.json or complete its tokenizer_config.json"#);
    let folder = copy("gpt2");
    remove(&folder, &["merges.txt"]);
    insta::assert_snapshot!(message(&folder), @"the file DIR/merges.txt does not exist; check the path");
    remove(&folder, &["vocab.json"]);
    write(&folder, "merges.txt", "#version: 0.2\n");
    insta::assert_snapshot!(message(&folder), @"DIR/merges.txt cannot be used (there is no vocab.json beside it); download or export the tokenizer again");
}

/// The message of a tokenizer.json in which a part is replaced.
fn tokenizer_json(part: &str, value: serde_json::Value) -> String {
    let mut json = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"type": 0}, "unk_token": "type"},
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(&folder, "tokenizer.json", json.to_string());
    assert!(Tokenizer::from_folder(folder.path()).is_ok());
    json[part] = value;
    write(&folder, "tokenizer.json", json.to_string());
    message(&folder)
}

/// A file for a newer version of `tokenizers` is not a broken one.
#[test]
fn other_types_are_not_supported_rather_than_broken() {
    use serde_json::json;
    let model = json!({"type": "Morphemes", "vocab": {}});
    insta::assert_snapshot!(tokenizer_json("model", model), @r#"DIR/tokenizer.json: model.type "Morphemes" is not supported; supported are BPE, Unigram, WordLevel, WordPiece"#);
    let nested =
        json!({"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "Masking"}]});
    insta::assert_snapshot!(tokenizer_json("post_processor", nested), @r#"DIR/tokenizer.json: post_processor.type "Masking" is not supported; supported are BertProcessing, ByteLevel, RobertaProcessing, Sequence, TemplateProcessing"#);
    let decoder = json!({"type": "Reverse\n"});
    insta::assert_snapshot!(tokenizer_json("decoder", decoder), @r#"DIR/tokenizer.json: decoder.type "Reverse\n" is not supported; supported are BPEDecoder, ByteFallback, ByteLevel, CTC, Fuse, Metaspace, Replace, Sequence, Strip, WordPiece"#);
    insta::assert_snapshot!(tokenizer_json("version", json!("2.0")), @r#"DIR/tokenizer.json: version "2.0" is not supported; supported is "1.0""#);
    // A type that is known, without what it needs.
    let broken = tokenizer_json("normalizer", json!({"type": "Prepend"}));
    assert!(
        broken.starts_with("DIR/tokenizer.json is not a usable tokenizer.json ("),
        "{broken}"
    );
}

/// The same of a SentencePiece model: each is the last field of the model, so it wins.
#[test]
fn other_sentence_piece_models_are_not_supported_rather_than_broken() {
    let folder = copy("t5");
    let bytes = std::fs::read(folder.path().join("spiece.model")).expect("a model");
    // TrainerSpec is field 2 and NormalizerSpec field 3, each here with one field: its tag and its value.
    for (field, contents, expected) in [
        (
            0x12,
            &[3 << 3, 3][..],
            "its model type 3 (word) is not supported; supported are unigram (1) and bpe (2)",
        ),
        (
            0x12,
            &[3 << 3, 4],
            "its model type 4 (char) is not supported; supported are unigram (1) and bpe (2)",
        ),
        (
            0x12,
            &[0xC0, 1, 1],
            "it sets treat_whitespace_as_suffix, which is not supported",
        ),
        (
            0x1A,
            &[5 << 3, 0],
            "it does not set escape_whitespaces, which is not supported",
        ),
    ] {
        let added = [&[field, contents.len() as u8][..], contents].concat();
        write(&folder, "spiece.model", [&bytes[..], &added].concat());
        assert_eq!(message(&folder), format!("DIR/spiece.model: {expected}"));
    }
    write(
        &folder,
        "spiece.model",
        [&bytes[..], &[0x12, 2, 3 << 3, 9]].concat(),
    );
    assert!(message(&folder).contains("cannot be used (its model type is 9; there are 1 to 4)"));
}

#[test]
fn vocabularies_and_settings_of_other_tokenizers_are_not_supported() {
    insta::assert_snapshot!(edited("bert_uncased", "tokenizer_config.json", "\"do_basic_tokenize\": true", "\"do_basic_tokenize\": false"), @"DIR/tokenizer_config.json: `do_basic_tokenize` false is not supported without a tokenizer.json; add it");
    insta::assert_snapshot!(edited("bert_uncased", "tokenizer_config.json", "\"never_split\": null", "\"never_split\": [\"x\"]"), @"DIR/tokenizer_config.json: a `never_split` that is not empty is not supported without a tokenizer.json; add it");
    let gap = edited("gpt2", "vocab.json", "\"!\":1", "\"!\":9000");
    assert!(
        gap.starts_with("DIR/vocab.json: a vocabulary with gaps ("),
        "{gap}"
    );
    assert!(
        gap.ends_with("and the largest is 9000) is not supported without a tokenizer.json; add it"),
        "{gap}"
    );
}

#[test]
fn missing_settings_are_not_guessed() {
    for (name, files) in [
        ("gpt2", vec!["tokenizer_config.json"]),
        ("albert", vec!["tokenizer_config.json"]),
        ("xlm_roberta", vec!["config.json"]),
        ("bert_cased", vec!["config.json"]),
        (
            "llama",
            vec!["tokenizer_config.json", "special_tokens_map.json"],
        ),
    ] {
        let folder = copy(name);
        remove(&folder, &files);
        let error = Tokenizer::from_folder(folder.path()).expect_err(name);
        assert!(
            matches!(error, TextError::AmbiguousTokenizer { .. }),
            "{name}: {error}"
        );
    }
    let folder = copy("t5_plain");
    std::fs::copy(
        folder.path().join("spiece.model"),
        folder.path().join("tokenizer.model"),
    )
    .expect("copying");
    insta::assert_snapshot!(message(&folder), @"the tokenizer of DIR is ambiguous (it holds more than one SentencePiece model); add its tokenizer.json or complete its tokenizer_config.json");
    let folder = copy("t5_plain");
    write(
        &folder,
        "tokenizer_config.json",
        r#"{"tokenizer_class": "PreTrainedTokenizerFast"}"#,
    );
    insta::assert_snapshot!(message(&folder), @r#"DIR: the tokenizer class "PreTrainedTokenizerFast" is not supported without a tokenizer.json; add it; supported are BertTokenizer, DistilBertTokenizer, ElectraTokenizer, MobileBertTokenizer, ConvBertTokenizer, LayoutLMTokenizer, SqueezeBertTokenizer, LxmertTokenizer, GPT2Tokenizer, RobertaTokenizer, LongformerTokenizer, BartTokenizer, LEDTokenizer, MvpTokenizer, T5Tokenizer, MT5Tokenizer, AlbertTokenizer, BigBirdTokenizer, ReformerTokenizer, LlamaTokenizer, XLMRobertaTokenizer, MarianTokenizer"#);
    write(
        &folder,
        "tokenizer_config.json",
        r#"{"tokenizer_class": "BertTokenizer"}"#,
    );
    insta::assert_snapshot!(message(&folder), @"the tokenizer of DIR is ambiguous (its tokenizer needs a vocab.txt, which is missing); add its tokenizer.json or complete its tokenizer_config.json");
}

#[test]
fn broken_marian_folders() {
    let folder = copy("marian");
    remove(&folder, &["source.spm"]);
    insta::assert_snapshot!(message(&folder), @"the tokenizer of DIR is ambiguous (its tokenizer needs a source.spm, which is missing); add its tokenizer.json or complete its tokenizer_config.json");
    let folder = copy("marian");
    write(&folder, "source.spm", "no model");
    assert!(message(&folder).starts_with("DIR/source.spm cannot be used"));
    insta::assert_snapshot!(edited("marian", "vocab.json", "<unk>", "<unknown>"), @"DIR/vocab.json cannot be used (it has no <unk>); download or export the tokenizer again");
    insta::assert_snapshot!(edited("marian", "tokenizer_config.json", "{", "{ \"separate_vocabs\": true,"), @"DIR/tokenizer_config.json: `separate_vocabs` true is not supported; supported are shared vocabularies");
}

/// Text that exercises the charsmaps of the test models.
const TEXT: &str = " The ﬁne ＡＢＣ café e\u{301} 日本 🦀\t\n <s> [MASK] 3,000 \u{200b}\u{a0}zz";

/// Loads a damaged model. If it loads, it must also be able to encode and decode.
fn try_model(folder: &tempfile::TempDir, file: &str, bytes: &[u8]) {
    write(folder, file, bytes);
    if let Ok(Some(tokenizer)) = Tokenizer::from_folder(folder.path())
        && let Ok(encoded) = tokenizer.encode_pair(TEXT, "two", None)
    {
        tokenizer
            .decode(&encoded.ids)
            .expect("ids of the tokenizer itself");
    }
}

#[test]
fn damaged_sentence_piece_models_never_panic() {
    for (name, file) in [
        ("t5", "spiece.model"),
        ("reformer", "spiece.model"),
        ("llama", "tokenizer.model"),
    ] {
        let folder = copy(name);
        let bytes = std::fs::read(folder.path().join(file)).expect("a model");
        for length in (0..bytes.len()).step_by(31) {
            try_model(&folder, file, &bytes[..length]);
        }
        // Prime, to reach all bits and all kinds of fields.
        for position in (0..bytes.len()).step_by(13) {
            let mut flipped = bytes.clone();
            flipped[position] ^= 1 << (position / 13 % 8);
            try_model(&folder, file, &flipped);
        }
    }
}

#[test]
fn damaged_charsmaps_never_panic() {
    let folder = copy("t5");
    let bytes = std::fs::read(folder.path().join("spiece.model")).expect("a model");
    // The charsmap starts with the length of its trie in bytes: 1024.
    let start = bytes
        .windows(5)
        .position(|window| window == [0, 4, 0, 0, 0])
        .expect("the charsmap");
    for position in start..start + 260 {
        let mut flipped = bytes.clone();
        flipped[position] ^= 1 << (position * 3 % 8);
        try_model(&folder, "spiece.model", &flipped);
    }
}

#[test]
fn errors_name_the_damaged_sentence_piece_model() {
    let folder = copy("t5");
    let bytes = std::fs::read(folder.path().join("spiece.model")).expect("a model");
    write(&folder, "spiece.model", &bytes[..bytes.len() - 3]);
    insta::assert_snapshot!(message(&folder), @"DIR/spiece.model cannot be used (it ends in the middle of a field); download or export the tokenizer again");
    write(&folder, "spiece.model", b"");
    insta::assert_snapshot!(message(&folder), @"DIR/spiece.model cannot be used (its unknown id 0 is outside its 0 pieces); download or export the tokenizer again");
    write(
        &folder,
        "spiece.model",
        b"version https://git-lfs.github.com/spec/v1\n",
    );
    insta::assert_snapshot!(message(&folder), @"DIR/spiece.model cannot be used (it has a field of wire type 6, so it is not a SentencePiece model); download or export the tokenizer again");
    write(
        &folder,
        "spiece.model",
        [&bytes[..], &[0x0A, 3, 0x0A, 1, b's']].concat(),
    );
    insta::assert_snapshot!(message(&folder), @r#"DIR/spiece.model cannot be used (the piece "s" occurs twice, with ids 4 and 122); download or export the tokenizer again"#);
}

#[test]
fn errors_name_the_broken_json_file() {
    for name in [
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "config.json",
    ] {
        for contents in ["", "{", "[]", "{\"a\": }", "\u{0}", "3"] {
            let folder = copy("t5_plain");
            write(&folder, name, contents);
            let message = message(&folder);
            assert!(
                message.starts_with(&format!("DIR/{name} cannot be used")),
                "{message}"
            );
        }
    }
    let folder = copy("roberta");
    write(&folder, "special_tokens_map.json", r#"{"mask_token": 3}"#);
    insta::assert_snapshot!(message(&folder), @"DIR/special_tokens_map.json cannot be used (`mask_token` is not a token); download or export the tokenizer again");
    let folder = copy("reformer");
    write(&folder, "added_tokens.json", r#"{"x": "y"}"#);
    insta::assert_snapshot!(message(&folder), @r#"DIR/added_tokens.json cannot be used (the id of "x" is not a non-negative integer); download or export the tokenizer again"#);
    let folder = copy("t5_plain");
    write(
        &folder,
        "tokenizer_config.json",
        r#"{"extra_ids": 4000000000}"#,
    );
    insta::assert_snapshot!(message(&folder), @"DIR/tokenizer_config.json cannot be used (`extra_ids` is 4000000000; at most 100000 are allowed); download or export the tokenizer again");
    write(
        &folder,
        "tokenizer_config.json",
        r#"{"padding_side": "up"}"#,
    );
    insta::assert_snapshot!(message(&folder), @r#"DIR/tokenizer_config.json cannot be used (`padding_side` is neither "left" nor "right"); download or export the tokenizer again"#);
}
