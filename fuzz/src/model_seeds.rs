//! Seeds of the targets that need models.

use std::path::PathBuf;

use serde_json::{Map, json};

use crate::Files;
use crate::seeds::{folder, folders, root};

/// A recipe to mutate.
pub(crate) const RECIPE: &str = include_str!("../../recipes/stories.toml");

pub(crate) const CONFIG_FILES: [&str; 2] = ["config.json", "generation_config.json"];

/// The files of a run that are read again.
pub(crate) const RUN_FILES: [&str; 4] = [
    "recipe.toml",
    "metrics.jsonl",
    "checkpoints/last.safetensors",
    "tokenizer.json",
];

pub(crate) const SENTENCE_FILES: [&str; 3] = [
    "modules.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
];

/// The configs of every architecture, including our own formats.
pub(crate) fn configs() -> Vec<Vec<u8>> {
    let mut all = folders("fixtures/models");
    all.extend(["fixtures/gpt2", "fixtures/llama"].map(root));
    let read = |path: &PathBuf| folder(path, &CONFIG_FILES).to_bytes();
    let mut seeds: Vec<Vec<u8>> = all.iter().map(read).collect();
    let generation = json!({
        "bos_token_id": 1, "eos_token_id": [2, 3], "forced_eos_token_id": 2, "max_new_tokens": 9, "min_length": 2,
        "num_beams": 4, "length_penalty": 0.5, "early_stopping": "never", "no_repeat_ngram_size": 3,
        "bad_words_ids": [[5], [6, 7]],
    });
    let mut both = Files::parse(&seeds[0]);
    both.0.push((
        CONFIG_FILES[1].to_owned(),
        generation.to_string().into_bytes(),
    ));
    seeds.push(both.to_bytes());
    seeds
}

pub(crate) fn gguf_models() -> Vec<Vec<u8>> {
    ["fixtures/gguf/byte-pairs.gguf", "fixtures/gguf/pieces.gguf"]
        .map(|path| std::fs::read(root(path)).expect("the fixture exists"))
        .to_vec()
}

/// A safetensors file of i64 tensors.
fn integers(tensors: &[(&str, &[i64])], text: Option<&str>) -> Vec<u8> {
    let mut header = Map::new();
    let mut data: Vec<u8> = Vec::new();
    for (name, values) in tensors {
        let start = data.len();
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        let shape = [2, values.len() / 2];
        let entry = json!({ "dtype": "I64", "shape": shape, "data_offsets": [start, data.len()] });
        header.insert((*name).to_owned(), entry);
    }
    if let Some(text) = text {
        header.insert("__metadata__".to_owned(), json!({ "state": text }));
    }
    let header = json!(header).to_string();
    let length = (header.len() as u64).to_le_bytes();
    [&length, header.as_bytes(), &data].concat()
}

pub(crate) fn inputs() -> Vec<Vec<u8>> {
    let ids: &[i64] = &[3, 4, 5, 6, 7, 8];
    let mask: &[i64] = &[1, 1, 1, 1, 1, 0];
    vec![
        integers(&[("input_ids", ids)], None),
        integers(
            &[
                ("attention_mask", mask),
                ("input_ids", ids),
                ("token_type_ids", &[0; 6]),
            ],
            None,
        ),
        integers(
            &[
                ("attention_mask", mask),
                ("decoder_input_ids", &ids[..4]),
                ("input_ids", ids),
            ],
            None,
        ),
        // The last byte selects outputs: without hidden states, as recurrent models require, or with keys and values.
        integers(
            &[
                ("decoder_input_ids", &ids[..4]),
                ("input_ids", ids),
                ("unread", &[0, 1 << 56]),
            ],
            None,
        ),
        integers(
            &[
                ("decoder_input_ids", &ids[..4]),
                ("input_ids", ids),
                ("unread", &[0, 4 << 56]),
            ],
            None,
        ),
        integers(
            &[("input_ids", ids), ("position_ids", &[0, 1, 2, 0, 1, 2])],
            None,
        ),
    ]
}

pub(crate) fn recipes() -> Vec<Vec<u8>> {
    let text = |path: PathBuf| std::fs::read(path).expect("the recipe exists");
    let names = ["stories", "stories-gpt2", "shakespeare-char", "compare"];
    let mut seeds: Vec<Vec<u8>> = names
        .map(|name| text(root(&format!("recipes/{name}.toml"))))
        .to_vec();
    seeds.push(b"training.steps=500\nmodel.blocks.0.repeat=3\ndata.kind=\"files\"\n".to_vec());
    seeds
}

pub(crate) fn run_folders() -> Vec<Vec<u8>> {
    let state = r#"{"step":3,"best":[1.5,2],"fingerprint":7}"#;
    let metrics = "{\"step\":1,\"loss\":2.5,\"learning_rate\":0.1,\"gradient_norm\":1.0}\n{\"step\":1,\"held_out_loss\":2.25}\n{\"st";
    let weights = integers(&[("model.a", &[1, 2])], Some(state));
    let contents = [RECIPE.as_bytes(), metrics.as_bytes(), &weights, b"{}"];
    vec![Files::of(RUN_FILES.into_iter().zip(contents)).to_bytes()]
}

pub(crate) fn sentence_folders() -> Vec<Vec<u8>> {
    let contents = [
        r#"[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"},{"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}]"#,
        r#"{"max_seq_length":256,"do_lower_case":false}"#,
        r#"{"word_embedding_dimension":384,"pooling_mode_cls_token":false,"pooling_mode_mean_tokens":true}"#,
    ];
    let files = SENTENCE_FILES.into_iter().zip(contents.map(str::as_bytes));
    vec![Files::of(files).to_bytes()]
}
