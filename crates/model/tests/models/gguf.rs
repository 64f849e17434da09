//! GGUF files of Llamas: the same numbers as the Hugging Face folder of the same weights, and what numpy computes from the file
//! (`fixtures/gguf`, made by `reference/gguf_models.py`); and files that are refused.

use std::path::{Path, PathBuf};

use attentive_model::checkpoint::{self, model_tensors};
use attentive_model::{Extras, Input};
use burn::tensor::Device;

use crate::support::Golden;

const FILES: [&str; 2] = ["byte-pairs", "pieces"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/gguf")
        .join(name)
}

#[test]
fn a_file_is_the_model_of_its_folder() {
    let device = Device::flex();
    for name in FILES {
        let (of_file, description) =
            checkpoint::load(&fixture(&format!("{name}.gguf")), &device).unwrap();
        let (of_folder, expected) = checkpoint::load(&fixture(name), &device).unwrap();
        assert_eq!(description.model_type, "llama");
        assert_eq!(description.special, expected.special, "{name}");
        assert_eq!(
            description.config.canonical(),
            expected.config.canonical(),
            "{name}"
        );
        assert_eq!(model_tensors(&of_file), model_tensors(&of_folder), "{name}");
    }
}

#[test]
fn logits_are_those_of_llama_cpp_in_numpy() {
    let device = Device::flex();
    for name in FILES {
        let golden = Golden::of_file(name, fixture(""), &format!("{name}.safetensors"));
        let (model, _) = checkpoint::load(&fixture(&format!("{name}.gguf")), &device).unwrap();
        let input = Input::new(golden.ids("input_ids", &device));
        golden.check(
            "logits",
            model.forward(input, Extras::default()).into_words(),
        );
    }
}

#[test]
fn what_was_read_is_saved_as_a_folder() {
    let device = Device::flex();
    for name in FILES {
        let path = fixture(&format!("{name}.gguf"));
        let (model, description) = checkpoint::load(&path, &device).unwrap();
        let folder = tempfile::tempdir().unwrap();
        checkpoint::save(folder.path(), &model, &description.special).unwrap();
        let (back, again) = checkpoint::load(folder.path(), &device).unwrap();
        assert_eq!(again.model_type, "llama");
        assert_eq!(again.config.canonical(), description.config.canonical());
        assert_eq!(again.special, description.special);
        assert_eq!(model_tensors(&back), model_tensors(&model));
    }
}

#[test]
fn a_file_is_known_by_how_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights");
    std::fs::copy(fixture("pieces.gguf"), &path).unwrap();
    assert_eq!(checkpoint::describe(&path).unwrap().model_type, "llama");
}

/// A value of a key, with its type.
enum Said<'s> {
    Size(u32),
    Number(f32),
    Text(&'s str),
    Sizes(&'s [u32]),
}

/// A file of nothing but keys.
fn keys_alone(keys: &[(&str, Said)]) -> Vec<u8> {
    fn text(out: &mut Vec<u8>, text: &str) {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    }
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend(0u64.to_le_bytes());
    out.extend((keys.len() as u64).to_le_bytes());
    for (key, value) in keys {
        text(&mut out, key);
        let kind: u32 = match value {
            Said::Size(_) => 4,
            Said::Number(_) => 6,
            Said::Text(_) => 8,
            Said::Sizes(_) => 9,
        };
        out.extend(kind.to_le_bytes());
        match value {
            Said::Size(size) => out.extend(size.to_le_bytes()),
            Said::Number(number) => out.extend(number.to_le_bytes()),
            Said::Text(said) => text(&mut out, said),
            Said::Sizes(sizes) => {
                out.extend(4u32.to_le_bytes());
                out.extend((sizes.len() as u64).to_le_bytes());
                out.extend(sizes.iter().flat_map(|it| it.to_le_bytes()));
            }
        }
    }
    out
}

/// The keys of a small Llama, after `changed` ones, which stand for theirs.
fn llama<'s>(changed: Vec<(&'s str, Said<'s>)>) -> Vec<(&'s str, Said<'s>)> {
    let plain = [
        ("general.architecture", Said::Text("llama")),
        ("llama.vocab_size", Said::Size(8)),
        ("llama.context_length", Said::Size(16)),
        ("llama.embedding_length", Said::Size(8)),
        ("llama.block_count", Said::Size(1)),
        ("llama.feed_forward_length", Said::Size(8)),
        ("llama.attention.head_count", Said::Size(2)),
        ("llama.attention.layer_norm_rms_epsilon", Said::Number(1e-5)),
    ];
    let plain = plain.into_iter();
    let kept: Vec<_> = plain
        .filter(|(key, _)| changed.iter().all(|(other, _)| other != key))
        .collect();
    changed.into_iter().chain(kept).collect()
}

#[test]
fn files_that_cannot_be_used_are_told_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut told = Vec::new();
    let mut check = |what: &str, bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let error = checkpoint::load(&path, &Device::flex()).unwrap_err();
        let error = error.to_string();
        let error = error.replace(&folder.path().display().to_string(), "FOLDER");
        told.push(format!("{what}\n  {error}"));
    };
    let whole = std::fs::read(fixture("pieces.gguf")).unwrap();
    check("empty", &[]);
    check("another file", b"{ \"model_type\": \"llama\" }");
    check("cut in the keys", &whole[..200]);
    check("cut in the numbers", &whole[..whole.len() - 1000]);
    check("no architecture", &keys_alone(&[]));
    let mut check = |what: &str, changed: Vec<(&str, Said)>| {
        check(what, &keys_alone(&llama(changed)));
    };
    check("no tensors", vec![]);
    check(
        "another architecture",
        vec![("general.architecture", Said::Text("mamba"))],
    );
    check(
        "heads of each layer",
        vec![("llama.attention.head_count", Said::Sizes(&[2]))],
    );
    check(
        "no heads",
        vec![("llama.attention.head_count", Said::Size(0))],
    );
    check(
        "an epsilon that is none",
        vec![(
            "llama.attention.layer_norm_rms_epsilon",
            Said::Number(f32::NAN),
        )],
    );
    check("no layers", vec![("llama.block_count", Said::Size(0))]);
    check(
        "more layers than any model has",
        vec![("llama.block_count", Said::Size(u32::MAX))],
    );
    check("experts", vec![("llama.expert_count", Said::Size(8))]);
    check(
        "an unknown setting",
        vec![("llama.logit_scale", Said::Number(0.5))],
    );
    check(
        "half of each head rotated",
        vec![("llama.rope.dimension_count", Said::Size(2))],
    );
    check(
        "values of another width",
        vec![("llama.attention.value_length", Said::Size(2))],
    );
    check(
        "positions scaled by yarn",
        vec![("llama.rope.scaling.type", Said::Text("yarn"))],
    );
    check(
        "an end that is no id",
        vec![("tokenizer.ggml.eos_token_id", Said::Text("</s>"))],
    );
    insta::assert_snapshot!(told.join("\n"));
}

/// The factors of Llama 3.1 are known by their values; others have no settings.
#[test]
fn factors_of_wavelengths_that_are_not_llama_3s_are_refused() {
    let mut bytes = std::fs::read(fixture("pieces.gguf")).unwrap();
    let eights = [8f32.to_le_bytes(), 8f32.to_le_bytes()].concat();
    let place = bytes.windows(8).rposition(|it| it == eights).unwrap();
    bytes[place..place + 4].copy_from_slice(&7f32.to_le_bytes());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    let error = checkpoint::describe(&path).unwrap_err().to_string();
    assert!(error.contains("rope_freqs.weight"), "{error}");
}

#[test]
fn a_linear_scaling_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    for key in ["llama.rope.scaling.factor", "llama.rope.scale_linear"] {
        let keys = llama(vec![(key, Said::Number(4.0))]);
        std::fs::write(&path, keys_alone(&keys)).unwrap();
        let positions = checkpoint::describe(&path).unwrap().config.positions;
        let said = serde_json::to_value(&positions).unwrap();
        assert_eq!(said["scaling"]["kind"], "linear", "{key}");
        assert_eq!(said["scaling"]["factor"], 4.0, "{key}");
    }
}
