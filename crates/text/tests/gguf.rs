//! Tokenizers of GGUF files: the vocabularies of `tests/folders`, converted to GGUF metadata, must give the ids of
//! Hugging Face's classes, and invalid metadata is refused.

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

/// The vocabulary of a BPE folder.
fn byte_level_bpe(name: &str, pre: &str) -> GgufTokenizer {
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
        bos_id: Some(0),
        eos_id: Some(0),
        unknown_id: Some(0),
        ..GgufTokenizer::default()
    }
}

/// The pieces of a SentencePiece model; types have the same numbers in both formats.
fn pieces(name: &str) -> GgufTokenizer {
    let bytes = std::fs::read(folder(name).join("tokenizer.model")).unwrap();
    let mut gguf = GgufTokenizer {
        model: "llama".to_owned(),
        bos_id: Some(1),
        eos_id: Some(2),
        unknown_id: Some(0),
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
        gguf.tokens.push(text);
        gguf.scores.push(score);
        gguf.types.push(kind);
    }
    gguf
}

/// A minimal Protocol Buffers parser.
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

fn check(name: &str, gguf: &GgufTokenizer) {
    let tokenizer = Tokenizer::from_gguf(Path::new("model.gguf"), gguf).unwrap();
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
fn bpe_ids_are_those_of_hugging_face() {
    check("gpt2", &byte_level_bpe("gpt2", "gpt-2"));
}

#[test]
fn sentence_piece_ids_are_those_of_hugging_face() {
    check("llama", &pieces("llama"));
}

#[test]
fn text_is_split_by_the_named_pre_tokenizer() {
    let tokens = |pre: &str, text: &str| {
        let gguf = byte_level_bpe("gpt2", pre);
        let tokenizer = Tokenizer::from_gguf(Path::new("model.gguf"), &gguf).unwrap();
        let ids = tokenizer.encode_without_special(text).unwrap();
        let tokens = ids.iter().map(|id| tokenizer.token(*id).unwrap());
        tokens.collect::<Vec<_>>().join("|")
    };
    // This vocabulary merges space and digit, and two zeros.
    assert_eq!(tokens("gpt-2", "it 3 the"), "it|Ġ3|Ġthe");
    assert_eq!(tokens("smollm", "it 3 the"), "it|Ġ|3|Ġthe");
    assert_eq!(tokens("llama-bpe", "it 3 the"), "it|Ġ|3|Ġthe");
    assert_eq!(tokens("qwen2", "it 3 the"), "it|Ġ|3|Ġthe");
}

#[test]
fn bos_and_eos_are_added_as_the_file_says() {
    let mut gguf = pieces("llama");
    let around = |gguf: &GgufTokenizer| {
        let tokenizer = Tokenizer::from_gguf(Path::new("model.gguf"), gguf).unwrap();
        let (with, bare) = (tokenizer.encode("a"), tokenizer.encode_without_special("a"));
        let (with, bare) = (with.unwrap(), bare.unwrap());
        let first = with.first() == Some(&1);
        let last = with.last() == Some(&2);
        assert_eq!(
            with.len(),
            bare.len() + usize::from(first) + usize::from(last)
        );
        (first, last)
    };
    assert_eq!(around(&gguf), (true, false));
    (gguf.add_bos, gguf.add_eos) = (Some(false), Some(true));
    assert_eq!(around(&gguf), (false, true));
}

#[test]
fn the_space_prefix_is_optional() {
    let gguf = GgufTokenizer {
        add_space_prefix: Some(false),
        ..pieces("llama")
    };
    let tokenizer = Tokenizer::from_gguf(Path::new("model.gguf"), &gguf).unwrap();
    let ids = tokenizer.encode_without_special("the dog").unwrap();
    assert!(!tokenizer.token(ids[0]).unwrap().starts_with('▁'));
    assert_eq!(tokenizer.decode(&ids).unwrap(), "the dog");
}

#[test]
fn the_chat_template_sees_the_special_tokens() {
    let gguf = GgufTokenizer {
        chat_template: Some("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}".to_owned()),
        ..pieces("llama")
    };
    let templates = ChatTemplates::from_gguf(Path::new("model.gguf"), &gguf).unwrap();
    let message = ChatMessage {
        role: "user".to_owned(),
        content: "hello".to_owned(),
    };
    let text = templates.render(None, &[message], ChatEnd::Complete);
    assert_eq!(text.unwrap(), "<s>hello</s>");
    assert!(ChatTemplates::from_gguf(Path::new("model.gguf"), &pieces("llama")).is_none());
}

#[test]
fn unusable_descriptions_are_refused_in_a_sentence() {
    let refusal = |gguf: GgufTokenizer, change: &dyn Fn(&mut GgufTokenizer)| {
        let mut gguf = gguf;
        change(&mut gguf);
        let error = Tokenizer::from_gguf(Path::new("model.gguf"), &gguf);
        error.unwrap_err().to_string()
    };
    let bpe =
        |change: &dyn Fn(&mut GgufTokenizer)| refusal(byte_level_bpe("gpt2", "gpt-2"), change);
    let pieces = |change: &dyn Fn(&mut GgufTokenizer)| refusal(pieces("llama"), change);
    let refusals = [
        bpe(&|gguf| gguf.model = "bert".to_owned()),
        bpe(&|gguf| gguf.pre = Some("tekken".to_owned())),
        bpe(&|gguf| gguf.pre = None),
        bpe(&|gguf| gguf.tokens.clear()),
        bpe(&|gguf| gguf.types.truncate(3)),
        bpe(&|gguf| gguf.types[2] = 7),
        bpe(&|gguf| gguf.tokens[5] = gguf.tokens[6].clone()),
        bpe(&|gguf| gguf.merges[0] = "nothing".to_owned()),
        bpe(&|gguf| gguf.merges[0] = "no thing".to_owned()),
        bpe(&|gguf| gguf.eos_id = Some(314)),
        bpe(&|gguf| (gguf.add_bos, gguf.bos_id) = (Some(true), None)),
        pieces(&|gguf| gguf.scores.truncate(3)),
        pieces(&|gguf| gguf.scores[9] = f64::NAN),
        pieces(&|gguf| gguf.tokens[9] = String::new()),
        pieces(&|gguf| gguf.tokens[9] = "x".repeat(3000)),
    ];
    insta::assert_snapshot!(refusals.join("\n"));
}

/// Of another kind, everything else may be different, so nothing else is checked before it.
#[test]
fn the_kind_of_tokenizer_is_checked_first() {
    let refusal = |model: &str, pre: Option<&str>| {
        let gguf = GgufTokenizer {
            model: model.to_owned(),
            pre: pre.map(str::to_owned),
            ..GgufTokenizer::default()
        };
        let error = Tokenizer::from_gguf(Path::new("model.gguf"), &gguf);
        error.unwrap_err().to_string()
    };
    assert_eq!(
        refusal("t5", None),
        "model.gguf: tokenizer.ggml.model \"t5\" is not supported; supported are gpt2, llama"
    );
    assert!(refusal("gpt2", Some("tekken")).contains("\"tekken\" is not supported"));
}
