//! Tokenizers of folders must match Hugging Face's. `reference/tokenizers_of_folders.py` made `tests/folders`.

use std::path::{Path, PathBuf};

use attentive_text::{
    Encoded, PadTo, SpecialToken, TextError, TextStream, Tokenizer, Truncation, TruncationStrategy,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

#[derive(Deserialize)]
struct Expected {
    vocabulary: usize,
    roles: serde_json::Map<String, serde_json::Value>,
    sentences: Vec<Sentence>,
    pairs: Vec<Pair>,
    truncations: Vec<TruncationCase>,
    paddings: Vec<Padding>,
    /// Ids that no text encodes to.
    #[serde(default)]
    decodings: Vec<Decoding>,
}

#[derive(Deserialize)]
struct Row {
    ids: Vec<u32>,
    type_ids: Vec<u32>,
    /// Only fast tokenizers have these two.
    special_mask: Option<Vec<u8>>,
    /// In characters.
    offsets: Option<Vec<(usize, usize)>>,
}

#[derive(Deserialize)]
struct Sentence {
    text: String,
    decoded: String,
    #[serde(flatten)]
    row: Row,
}

#[derive(Deserialize)]
struct Decoding {
    ids: Vec<u32>,
    decoded: String,
}

#[derive(Deserialize)]
struct Pair {
    first: String,
    second: String,
    #[serde(flatten)]
    row: Row,
}

#[derive(Deserialize)]
struct TruncationCase {
    first: String,
    second: Option<String>,
    strategy: String,
    length: usize,
    #[serde(flatten)]
    row: Option<Row>,
}

#[derive(Deserialize)]
struct Padding {
    texts: Vec<String>,
    length: Option<usize>,
    ids: Vec<Vec<u32>>,
    type_ids: Vec<Vec<u32>>,
    attention_mask: Vec<Vec<u8>>,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/folders")
        .join(name)
}

fn read<T: DeserializeOwned>(folder: &Path, name: &str) -> T {
    let bytes =
        std::fs::read(folder.join(name)).expect("a file of reference/tokenizers_of_folders.py");
    serde_json::from_slice(&bytes).expect("expected values")
}

fn check(name: &str) {
    let folder = folder(name);
    let expected: Expected = read(&folder, "expected.json");
    let tokenizer = Tokenizer::from_folder(&folder)
        .expect("a good folder")
        .expect("a tokenizer");
    assert_eq!(tokenizer.vocabulary(), expected.vocabulary, "{name}");
    check_roles(&tokenizer, &expected);
    for Sentence { text, decoded, row } in &expected.sentences {
        let encoded = tokenizer.encode_text(text, None).expect("encoding");
        check_row(&format!("{name}: {text:?}"), &encoded, row, [text, ""]);
        assert_eq!(tokenizer.encode(text).expect("encoding"), row.ids);
        assert_eq!(
            &tokenizer.decode(&row.ids).expect("decoding"),
            decoded,
            "{name}: {text:?}"
        );
    }
    for Pair { first, second, row } in &expected.pairs {
        let encoded = tokenizer
            .encode_pair(first, second, None)
            .expect("encoding");
        check_row(
            &format!("{name}: {first:?} and {second:?}"),
            &encoded,
            row,
            [first, second],
        );
    }
    for truncation in &expected.truncations {
        check_truncation(name, &tokenizer, truncation);
    }
    for padding in &expected.paddings {
        check_padding(name, &tokenizer, padding);
    }
    for Decoding { ids, decoded } in &expected.decodings {
        assert_eq!(
            tokenizer.decode(ids).expect("decoding"),
            *decoded,
            "{name}: {ids:?}"
        );
        let mut stream = TextStream::new(&tokenizer);
        let pieces = ids.iter().map(|id| stream.push(*id).expect("decoding"));
        let pieces: String = pieces.collect();
        assert_eq!(pieces + &stream.finish(), *decoded, "{name}: {ids:?}");
    }
}

fn check_roles(tokenizer: &Tokenizer, expected: &Expected) {
    let special = tokenizer.special_tokens();
    let roles = [
        ("beginning", &special.bos),
        ("end", &special.eos),
        ("separator", &special.sep),
        ("class", &special.cls),
        ("padding", &special.pad),
        ("mask", &special.mask),
    ];
    for (role, found) in roles {
        let expected: Option<(String, u32)> =
            serde_json::from_value(expected.roles[role].clone()).expect("a role");
        let expected = expected.map(|(text, id)| SpecialToken { text, id });
        assert_eq!(*found, expected, "{role}");
    }
}

fn check_row(case: &str, encoded: &Encoded, row: &Row, texts: [&str; 2]) {
    assert_eq!(encoded.ids, row.ids, "ids of {case}");
    assert_eq!(encoded.type_ids, row.type_ids, "type ids of {case}");
    if let Some(mask) = &row.special_mask {
        let found: Vec<u8> = encoded
            .special_tokens_mask
            .iter()
            .map(|added| u8::from(*added))
            .collect();
        assert_eq!(&found, mask, "special mask of {case}");
    }
    if let Some(offsets) = &row.offsets {
        let found = encoded.character_offsets(texts).into_iter();
        let found: Vec<(usize, usize)> = found.map(|it| (it.start, it.end)).collect();
        assert_eq!(&found, offsets, "offsets of {case}");
    }
}

fn check_truncation(name: &str, tokenizer: &Tokenizer, expected: &TruncationCase) {
    let strategy = match expected.strategy.as_str() {
        "longest_first" => TruncationStrategy::LongestFirst,
        "only_first" => TruncationStrategy::OnlyFirst,
        "only_second" => TruncationStrategy::OnlySecond,
        other => panic!("unknown strategy {other}"),
    };
    let truncation = Some(Truncation {
        length: expected.length,
        strategy,
    });
    let found = match &expected.second {
        Some(second) => tokenizer.encode_pair(&expected.first, second, truncation),
        None => tokenizer.encode_text(&expected.first, truncation),
    };
    let case = format!(
        "{name}: {:?} and {:?} truncated to {} by {}",
        expected.first, expected.second, expected.length, expected.strategy
    );
    match (&expected.row, found) {
        (Some(row), Ok(encoded)) => {
            check_row(
                &case,
                &encoded,
                row,
                [&expected.first, expected.second.as_deref().unwrap_or("")],
            );
        }
        (None, Err(TextError::CannotTruncate { .. })) => {}
        (_, found) => panic!("{case}: {found:?}"),
    }
}

fn check_padding(name: &str, tokenizer: &Tokenizer, padding: &Padding) {
    let rows: Vec<Encoded> = padding
        .texts
        .iter()
        .map(|text| tokenizer.encode_text(text, None).expect("encoding"))
        .collect();
    let to = padding.length.map_or(PadTo::Longest, PadTo::Length);
    let batch = tokenizer.pad(&rows, to).expect("padding");
    assert_eq!(batch.ids, padding.ids, "{name}");
    assert_eq!(batch.type_ids, padding.type_ids, "{name}");
    assert_eq!(batch.attention_mask, padding.attention_mask, "{name}");
}

macro_rules! folders {
    ($($name:ident),*) => {$(
        #[test]
        fn $name() {
            check(stringify!($name));
        }
    )*};
}

folders!(
    albert,
    bart,
    bert_cased,
    bert_uncased,
    big_bird,
    gpt2,
    llama,
    llama_new,
    marian,
    reformer,
    roberta,
    t5,
    t5_byte_fallback,
    t5_plain,
    xlm_roberta
);

#[test]
fn a_tokenizer_that_tokenizer_json_cannot_express_is_refused() {
    let tokenizer = Tokenizer::from_folder(&folder("marian"))
        .expect("a good folder")
        .expect("a tokenizer");
    let sentence = tokenizer
        .to_json()
        .expect_err("two vocabularies")
        .to_string();
    assert!(
        sentence.ends_with("copy the files of its folder"),
        "{sentence}"
    );
}

#[test]
fn an_exported_tokenizer_json_gives_the_same_ids() {
    for name in ["bert_uncased", "llama_new", "t5"] {
        let old = Tokenizer::from_folder(&folder(name))
            .expect("a good folder")
            .expect("a tokenizer");
        let copy = tempfile::tempdir().expect("a temporary folder");
        let text = old.to_json().expect("writing");
        std::fs::write(copy.path().join("tokenizer.json"), text).expect("writing");
        std::fs::copy(
            folder(name).join("tokenizer_config.json"),
            copy.path().join("tokenizer_config.json"),
        )
        .expect("copying");
        let new = Tokenizer::from_folder(copy.path())
            .expect("a good folder")
            .expect("a tokenizer");
        assert_eq!(new.special_tokens(), old.special_tokens());
        let expected: Expected = read(&folder(name), "expected.json");
        for sentence in &expected.sentences {
            assert_eq!(
                new.encode_text(&sentence.text, None).expect("encoding").ids,
                sentence.row.ids
            );
        }
        for padding in &expected.paddings {
            check_padding(name, &new, padding);
        }
    }
}

#[test]
fn without_a_padding_token_rows_must_have_equal_lengths() {
    let tokenizer = Tokenizer::from_folder(&folder("gpt2"))
        .expect("a good folder")
        .expect("a tokenizer");
    let row = |text: &str| tokenizer.encode_text(text, None).expect("encoding");
    let error = tokenizer
        .pad(&[row("the dog"), row("a")], PadTo::Longest)
        .expect_err("no padding token");
    insta::assert_snapshot!(error, @"the tokenizer has no padding token, so rows of different lengths cannot be batched; name a `pad_token` in tokenizer_config.json");
    assert_eq!(
        tokenizer
            .pad(&[row("a"), row("a")], PadTo::Longest)
            .expect("equal rows")
            .attention_mask,
        [[1], [1]]
    );
    let error = tokenizer
        .pad(&[row("the dog")], PadTo::Length(1))
        .expect_err("too long");
    assert!(matches!(error, TextError::RowTooLong { length: 1, .. }));
}

#[test]
fn special_tokens_need_room() {
    let tokenizer = Tokenizer::from_folder(&folder("bert_uncased"))
        .expect("a good folder")
        .expect("a tokenizer");
    let truncation = |length| {
        Some(Truncation {
            length,
            strategy: TruncationStrategy::LongestFirst,
        })
    };
    let error = tokenizer
        .encode_pair("the", "dog", truncation(2))
        .expect_err("no room");
    insta::assert_snapshot!(error, @"a length of 2 leaves no room for the 3 special tokens around the text; allow more tokens");
    assert_eq!(
        tokenizer
            .encode_pair("the", "dog", truncation(3))
            .expect("room for no text")
            .ids
            .len(),
        3
    );
    let only_second = Truncation {
        length: 20,
        strategy: TruncationStrategy::OnlySecond,
    };
    assert!(matches!(
        tokenizer.encode_text("the", Some(only_second)),
        Err(TextError::CannotTruncate { .. })
    ));
}

#[test]
fn special_tokens_can_be_kept_when_decoding() {
    let tokenizer = Tokenizer::from_folder(&folder("bert_uncased"));
    let tokenizer = tokenizer.expect("a good folder").expect("a tokenizer");
    let ids = tokenizer.encode("the [MASK] [SEP] dog").expect("encoding");
    let mask = tokenizer.special_tokens().mask.as_ref().expect("a mask");
    let decoded = [
        tokenizer.decode(&ids),
        tokenizer.decode_keeping(&ids, mask.id),
        tokenizer.decode_with_special(&ids),
    ];
    assert_eq!(
        decoded.map(|text| text.expect("decoding")),
        [
            "the dog",
            "the [MASK] dog",
            "[CLS] the [MASK] [SEP] dog [SEP]"
        ]
    );
    assert!(tokenizer.decode_with_special(&[9000]).is_err());
    assert!(tokenizer.decode_keeping(&[9000], mask.id).is_err());
}
