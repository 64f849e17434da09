//! Tokenizers that GGUF files describe: the vocabularies of `tests/folders`, handed over as such files have them, give the ids
//! that Hugging Face's classes give; and descriptions that are refused.

use std::path::{Path, PathBuf};

use attentive_text::{ChatEnd, ChatMessage, ChatTemplates, GgufTokenizer, Tokenizer};
use serde_json::Value;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/folders")
        .join(name)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The vocabulary of a folder of byte pairs.
fn byte_pairs(name: &str, pre: &str) -> GgufTokenizer {
    let vocabulary = json(&folder(name).join("vocab.json"));
    let vocabulary = vocabulary.as_object().unwrap();
    let mut tokens = vec![String::new(); vocabulary.len()];
    for (token, id) in vocabulary {
        tokens[id.as_u64().unwrap() as usize] = token.clone();
    }
    let merges = std::fs::read_to_string(folder(name).join("merges.txt")).unwrap();
    let control = |token: &String| if token == "<|endoftext|>" { 3 } else { 1 };
    GgufTokenizer {
        model: "gpt2".to_owned(),
        pre: Some(pre.to_owned()),
        types: tokens.iter().map(control).collect(),
        tokens,
        merges: merges.lines().skip(1).map(str::to_owned).collect(),
        beginning: Some(0),
        end: Some(0),
        unknown: Some(0),
        ..GgufTokenizer::default()
    }
}

/// The pieces of a SentencePiece model, whose kinds have the same numbers in both.
fn pieces(name: &str) -> GgufTokenizer {
    let bytes = std::fs::read(folder(name).join("tokenizer.model")).unwrap();
    let mut said = GgufTokenizer {
        model: "llama".to_owned(),
        beginning: Some(1),
        end: Some(2),
        unknown: Some(0),
        ..GgufTokenizer::default()
    };
    for (field, piece) in fields(&bytes) {
        if field != 1 {
            continue;
        }
        let (mut text, mut score, mut kind) = (String::new(), 0.0, 1);
        for (field, value) in fields(piece) {
            match field {
                1 => text = String::from_utf8(value.to_vec()).unwrap(),
                2 => score = f32::from_le_bytes(value.try_into().unwrap()).into(),
                _ => kind = i64::from(value[0]),
            }
        }
        said.tokens.push(text);
        said.scores.push(score);
        said.types.push(kind);
    }
    said
}

/// The fields of a message of Protocol Buffers, as far as these files need them.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    fn number(bytes: &mut &[u8]) -> u64 {
        let mut number = 0;
        for shift in (0..).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            number |= u64::from(byte & 127) << shift;
            if byte < 128 {
                break;
            }
        }
        number
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = number(&mut bytes);
        let length = match key & 7 {
            0 => {
                let mut rest = bytes;
                number(&mut rest);
                bytes.len() - rest.len()
            }
            5 => 4,
            1 => 8,
            _ => number(&mut bytes) as usize,
        };
        let (value, rest) = bytes.split_at(length);
        found.push((key >> 3, value));
        bytes = rest;
    }
    found
}

fn check(name: &str, said: &GgufTokenizer) {
    let tokenizer = Tokenizer::of_gguf(Path::new("model.gguf"), said).unwrap();
    let expected = json(&folder(name).join("expected.json"));
    for sentence in expected["sentences"].as_array().unwrap() {
        let text = sentence["text"].as_str().unwrap();
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!(serde_json::json!(ids), sentence["ids"], "{name}: {text:?}");
        assert_eq!(
            tokenizer.decode(&ids).unwrap(),
            sentence["decoded"].as_str().unwrap(),
            "{name}"
        );
    }
}

#[test]
fn byte_pairs_are_those_of_hugging_face() {
    check("gpt2", &byte_pairs("gpt2", "gpt-2"));
}

#[test]
fn pieces_are_those_of_hugging_face() {
    check("llama", &pieces("llama"));
}

#[test]
fn texts_are_cut_as_the_name_says() {
    let tokens = |pre: &str, text: &str| {
        let said = byte_pairs("gpt2", pre);
        let tokenizer = Tokenizer::of_gguf(Path::new("model.gguf"), &said).unwrap();
        let ids = tokenizer.encode_bare(text).unwrap();
        let tokens = ids.iter().map(|id| tokenizer.token(*id).unwrap());
        tokens.collect::<Vec<_>>().join("|")
    };
    // This vocabulary joins the space and a digit, and two zeros.
    assert_eq!(tokens("gpt-2", "it 3 the"), "it|Ġ3|Ġthe");
    assert_eq!(tokens("smollm", "it 3 the"), "it|Ġ|3|Ġthe");
    assert_eq!(tokens("llama-bpe", "it 3 the"), "it|Ġ|3|Ġthe");
    assert_eq!(tokens("qwen2", "it 3 the"), "it|Ġ|3|Ġthe");
}

#[test]
fn a_text_begins_and_ends_as_the_file_says() {
    let mut said = pieces("llama");
    let around = |said: &GgufTokenizer| {
        let tokenizer = Tokenizer::of_gguf(Path::new("model.gguf"), said).unwrap();
        let (with, bare) = (tokenizer.encode("a"), tokenizer.encode_bare("a"));
        let (with, bare) = (with.unwrap(), bare.unwrap());
        let first = with.first() == Some(&1);
        let last = with.last() == Some(&2);
        assert_eq!(
            with.len(),
            bare.len() + usize::from(first) + usize::from(last)
        );
        (first, last)
    };
    assert_eq!(around(&said), (true, false));
    (said.add_beginning, said.add_end) = (Some(false), Some(true));
    assert_eq!(around(&said), (false, true));
}

#[test]
fn pieces_need_no_space_before_them_where_the_file_says_so() {
    let said = GgufTokenizer {
        add_space: Some(false),
        ..pieces("llama")
    };
    let tokenizer = Tokenizer::of_gguf(Path::new("model.gguf"), &said).unwrap();
    let ids = tokenizer.encode_bare("the dog").unwrap();
    assert!(!tokenizer.token(ids[0]).unwrap().starts_with('▁'));
    assert_eq!(tokenizer.decode(&ids).unwrap(), "the dog");
}

#[test]
fn the_chat_template_knows_the_special_tokens() {
    let said = GgufTokenizer {
        chat_template: Some("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}".to_owned()),
        ..pieces("llama")
    };
    let templates = ChatTemplates::of_gguf(Path::new("model.gguf"), &said).unwrap();
    let message = ChatMessage {
        role: "user".to_owned(),
        content: "hello".to_owned(),
    };
    let text = templates.render(None, &[message], ChatEnd::Complete);
    assert_eq!(text.unwrap(), "<s>hello</s>");
    assert!(ChatTemplates::of_gguf(Path::new("model.gguf"), &pieces("llama")).is_none());
}

#[test]
fn descriptions_that_cannot_be_used_are_told_in_a_sentence() {
    let refusal = |said: GgufTokenizer, change: &dyn Fn(&mut GgufTokenizer)| {
        let mut said = said;
        change(&mut said);
        let error = Tokenizer::of_gguf(Path::new("model.gguf"), &said);
        error.unwrap_err().to_string()
    };
    let pairs = |change: &dyn Fn(&mut GgufTokenizer)| refusal(byte_pairs("gpt2", "gpt-2"), change);
    let pieces = |change: &dyn Fn(&mut GgufTokenizer)| refusal(pieces("llama"), change);
    let told = [
        pairs(&|said| said.model = "bert".to_owned()),
        pairs(&|said| said.pre = Some("tekken".to_owned())),
        pairs(&|said| said.pre = None),
        pairs(&|said| said.tokens.clear()),
        pairs(&|said| said.types.truncate(3)),
        pairs(&|said| said.types[2] = 7),
        pairs(&|said| said.tokens[5] = said.tokens[6].clone()),
        pairs(&|said| said.merges[0] = "nothing".to_owned()),
        pairs(&|said| said.merges[0] = "no thing".to_owned()),
        pairs(&|said| said.end = Some(314)),
        pairs(&|said| (said.add_beginning, said.beginning) = (Some(true), None)),
        pieces(&|said| said.scores.truncate(3)),
        pieces(&|said| said.scores[9] = f64::NAN),
        pieces(&|said| said.tokens[9] = String::new()),
        pieces(&|said| said.tokens[9] = "x".repeat(3000)),
    ];
    insta::assert_snapshot!(told.join("\n"));
}
