//! Pairs in windows of their second text: those of transformers (`windows.json`, made by `reference/windows.py`), and what holds
//! for every length and overlap. The same file has each window decoded with its special tokens.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use attentive_text::{Encoded, SequenceId, TextError, Tokenizer};
use proptest::prelude::*;
use serde::Deserialize;

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| tokenizer("bert_uncased"));

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn tokenizer(folder: &str) -> Tokenizer {
    let tokenizer = Tokenizer::from_folder(&tests().join("folders").join(folder));
    tokenizer.unwrap().unwrap()
}

#[derive(Deserialize)]
struct Case {
    folder: String,
    first: String,
    second: String,
    length: usize,
    overlap: usize,
    windows: Vec<Window>,
}

#[derive(Deserialize)]
struct Window {
    ids: Vec<u32>,
    type_ids: Vec<u32>,
    special_mask: Vec<u8>,
    /// In characters.
    offsets: Vec<(usize, usize)>,
    decoded: String,
}

#[test]
fn windows_are_those_of_transformers() {
    let text = std::fs::read(tests().join("windows.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_slice(&text).unwrap();
    assert_eq!(cases.len(), 18);
    for case in cases {
        let Case {
            folder,
            first,
            second,
            length,
            overlap,
            windows,
        } = case;
        let what = format!("{folder}: {length} tokens, {overlap} shared");
        let characters: Vec<char> = second.chars().collect();
        let tokenizer = tokenizer(&folder);
        let encoded = tokenizer.encode_pair(&first, &second, None).unwrap();
        let found = encoded.windows_of_second(length, overlap).unwrap();
        assert_eq!(found.len(), windows.len(), "{what}");
        for (index, (found, mut expected)) in found.iter().zip(windows).enumerate() {
            let is_second = |it: &Option<SequenceId>| *it == Some(SequenceId::Second);
            let start = found.sequence_ids.iter().position(is_second);
            if let Some(start) = start.filter(|_| index > 0) {
                // transformers keeps the space before the first token of a window, as at the beginning of a text.
                trim_start(&mut expected.offsets[start], &characters);
            }
            assert_eq!(found.ids, expected.ids, "{what}");
            assert_eq!(found.type_ids, expected.type_ids, "{what}");
            let mask = found.special_tokens_mask.iter().map(|it| u8::from(*it));
            assert!(mask.eq(expected.special_mask.iter().copied()), "{what}");
            let offsets = found.character_offsets([&first, &second]).into_iter();
            let offsets: Vec<(usize, usize)> = offsets.map(|it| (it.start, it.end)).collect();
            assert_eq!(offsets, expected.offsets, "{what}");
            let decoded = tokenizer.decode_with_special(&found.ids).unwrap();
            assert_eq!(decoded, expected.decoded, "{what}");
        }
    }
}

/// Moves the start of a range of characters behind its white space.
fn trim_start((start, end): &mut (usize, usize), text: &[char]) {
    let space = text[*start..].iter().take_while(|it| it.is_whitespace());
    *start += space.count();
    *end = (*end).max(*start);
}

/// The tokens of one text, which their ranges tell apart.
fn tokens(encoded: &Encoded, text: SequenceId) -> Vec<(u32, Range<usize>)> {
    let ids = encoded.ids.iter().copied();
    let tokens = ids.zip(encoded.offsets.iter().cloned());
    let tokens = tokens.zip(&encoded.sequence_ids);
    let of_text = tokens.filter(|(_, it)| **it == Some(text));
    of_text.map(|(token, _)| token).collect()
}

/// The ranges of tokens that `tokenizers` keeps, step by step.
fn ranges(count: usize, room: usize, overlap: usize) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut start = 0;
    loop {
        let end = count.min(start + room);
        ranges.push(start..end);
        if end == count {
            return ranges;
        }
        start += room - overlap;
    }
}

fn text(most: usize) -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec!["the", "dog", "robot,", "playing", "é🦀", "3,000"]);
    prop::collection::vec(word, 0..=most).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn windows_cover_the_second_text_and_share_the_overlap(
        first in text(6), second in text(30), length in 0usize..50, overlap in 0usize..20,
    ) {
        let whole = TOKENIZER.encode_pair(&first, &second, None).unwrap();
        let all = tokens(&whole, SequenceId::Second);
        let room = length.saturating_sub(whole.ids.len() - all.len());
        let fits = whole.ids.len() <= length;
        let windows = match whole.clone().windows_of_second(length, overlap) {
            Ok(windows) => windows,
            Err(TextError::CannotTruncate { text: "second", .. }) => {
                prop_assert!(!fits && room <= overlap);
                return Ok(());
            }
            Err(error) => panic!("{error}"),
        };
        if fits {
            prop_assert_eq!(windows, [whole]);
            return Ok(());
        }
        let expected = ranges(all.len(), room, overlap);
        prop_assert_eq!(windows.len(), expected.len());
        for (window, range) in windows.iter().zip(&expected) {
            prop_assert_eq!(tokens(window, SequenceId::Second), &all[range.clone()]);
            prop_assert_eq!(tokens(window, SequenceId::First), tokens(&whole, SequenceId::First));
            let added = window.special_tokens_mask.iter().filter(|it| **it).count();
            prop_assert_eq!(added, 3);
            let size = window.ids.len();
            prop_assert!(size <= length);
            let sizes = [
                window.type_ids.len(), window.special_tokens_mask.len(), window.offsets.len(), window.sequence_ids.len(),
            ];
            prop_assert_eq!(sizes, [size; 4]);
        }
        // The windows cover the text without a gap, share `overlap` tokens, and only the last is shorter and reaches the end.
        let (last, before) = expected.split_last().unwrap();
        prop_assert_eq!(last.end, all.len());
        for (range, next) in expected.iter().zip(&expected[1..]) {
            prop_assert_eq!(range.end - next.start, overlap);
            prop_assert!(range.end < all.len());
        }
        for (window, _) in windows.iter().zip(before) {
            prop_assert_eq!(window.ids.len(), length);
        }
    }
}
