//! GGUF files of Llamas: the same weights as in the Hugging Face folder, the same logits as numpy computes from the file
//! (`fixtures/gguf`, made by `reference/gguf_models.py`), and files that are refused.

use std::path::{Path, PathBuf};

use attentive_checkpoint::{self as checkpoint, CheckpointError, model_tensors};
use attentive_model::{ForwardOptions, Input};
use burn::tensor::Device;

use crate::support::Golden;

const FILES: [&str; 2] = ["byte-pairs", "pieces"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/gguf")
        .join(name)
}

#[test]
fn a_file_loads_as_the_model_of_its_folder() {
    let device = Device::flex();
    for name in FILES {
        let (of_file, description) =
            checkpoint::load(&fixture(&format!("{name}.gguf")), &device).unwrap();
        let (from_folder, expected) = checkpoint::load(&fixture(name), &device).unwrap();
        assert_eq!(description.model_type, "llama");
        assert_eq!(description.special, expected.special, "{name}");
        assert_eq!(
            description.config.canonical(),
            expected.config.canonical(),
            "{name}"
        );
        assert_eq!(
            model_tensors(&of_file),
            model_tensors(&from_folder),
            "{name}"
        );
    }
}

#[test]
fn logits_match_llama_cpp_in_numpy() {
    let device = Device::flex();
    for name in FILES {
        let golden = Golden::of_file(name, fixture(""), &format!("{name}.safetensors"));
        let (model, _) = checkpoint::load(&fixture(&format!("{name}.gguf")), &device).unwrap();
        let input = Input::new(golden.ids("input_ids", &device));
        golden.check(
            "logits",
            model
                .forward(input, ForwardOptions::default())
                .into_logits(),
        );
    }
}

#[test]
fn a_gguf_model_is_saved_as_a_folder() {
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
fn a_file_is_recognized_by_its_magic_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights");
    std::fs::copy(fixture("pieces.gguf"), &path).unwrap();
    assert_eq!(checkpoint::describe(&path).unwrap().model_type, "llama");
}

/// A metadata value with its type.
enum MetadataValue<'a> {
    Uint32(u32),
    Float32(f32),
    String(&'a str),
    Array(&'a [u32]),
}

/// A file with metadata and no tensors.
fn metadata_only(keys: &[(&str, MetadataValue)]) -> Vec<u8> {
    fn string(out: &mut Vec<u8>, text: &str) {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    }
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend(0u64.to_le_bytes());
    out.extend((keys.len() as u64).to_le_bytes());
    for (key, value) in keys {
        string(&mut out, key);
        let kind: u32 = match value {
            MetadataValue::Uint32(_) => 4,
            MetadataValue::Float32(_) => 6,
            MetadataValue::String(_) => 8,
            MetadataValue::Array(_) => 9,
        };
        out.extend(kind.to_le_bytes());
        match value {
            MetadataValue::Uint32(value) => out.extend(value.to_le_bytes()),
            MetadataValue::Float32(value) => out.extend(value.to_le_bytes()),
            MetadataValue::String(value) => string(&mut out, value),
            MetadataValue::Array(values) => {
                out.extend(4u32.to_le_bytes());
                out.extend((values.len() as u64).to_le_bytes());
                out.extend(values.iter().flat_map(|it| it.to_le_bytes()));
            }
        }
    }
    out
}

/// The metadata of a small Llama, with some keys `changed`.
fn llama<'a>(changed: Vec<(&'a str, MetadataValue<'a>)>) -> Vec<(&'a str, MetadataValue<'a>)> {
    let defaults = [
        ("general.architecture", MetadataValue::String("llama")),
        ("llama.vocab_size", MetadataValue::Uint32(8)),
        ("llama.context_length", MetadataValue::Uint32(16)),
        ("llama.embedding_length", MetadataValue::Uint32(8)),
        ("llama.block_count", MetadataValue::Uint32(1)),
        ("llama.feed_forward_length", MetadataValue::Uint32(8)),
        ("llama.attention.head_count", MetadataValue::Uint32(2)),
        (
            "llama.attention.layer_norm_rms_epsilon",
            MetadataValue::Float32(1e-5),
        ),
    ];
    let defaults = defaults.into_iter();
    let unchanged: Vec<_> = defaults
        .filter(|(key, _)| changed.iter().all(|(other, _)| other != key))
        .collect();
    changed.into_iter().chain(unchanged).collect()
}

/// The same file with a tensor of this `ggml_type`.
fn with_tensor(mut file: Vec<u8>, dtype: u32) -> Vec<u8> {
    file[8..16].copy_from_slice(&1u64.to_le_bytes());
    // A name of one byte, one dimension of 32 elements, the type, and the offset.
    file.extend(1u64.to_le_bytes());
    file.extend(b"t");
    file.extend(1u32.to_le_bytes());
    file.extend(32u64.to_le_bytes());
    file.extend(dtype.to_le_bytes());
    file.extend(0u64.to_le_bytes());
    file.resize(file.len().next_multiple_of(32) + 128, 0);
    file
}

/// A file that may be good for another program is not called broken, and what is said first is what decides.
#[test]
fn other_kinds_of_files_are_not_supported_rather_than_broken() {
    const Q5_0: u32 = 6;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mamba = vec![("general.architecture", MetadataValue::String("mamba"))];
    let part = vec![("split.count", MetadataValue::Uint32(3))];
    for (bytes, problem) in [
        (
            // The architecture is checked before the tensors, and before the missing keys.
            with_tensor(metadata_only(&mamba), Q5_0),
            "general.architecture \"mamba\" is not supported; supported are llama",
        ),
        (
            with_tensor(metadata_only(&llama(vec![])), Q5_0),
            "tensor t: its type 6 (Q5_0) is not supported; \
             supported are F32, F16, BF16, F64, Q4_0, Q4_1, Q8_0, Q4_K, Q6_K and integers",
        ),
        (
            metadata_only(&llama(part)),
            "a model that is split into 3 files is not supported; merge them with llama-gguf-split",
        ),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let errors = [
            checkpoint::load(&path, &Device::flex()).unwrap_err(),
            checkpoint::describe(&path).unwrap_err(),
        ];
        for error in errors {
            let unsupported = matches!(error, CheckpointError::Unsupported { .. });
            assert!(unsupported, "{error:?}");
            assert_eq!(error.to_string(), format!("{}: {problem}", path.display()));
        }
    }
}

#[test]
fn unusable_files_are_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut errors = Vec::new();
    let mut check = |what: &str, bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let error = checkpoint::load(&path, &Device::flex()).unwrap_err();
        let error = error.to_string();
        let error = error.replace(&folder.path().display().to_string(), "FOLDER");
        errors.push(format!("{what}\n  {error}"));
    };
    let whole = std::fs::read(fixture("pieces.gguf")).unwrap();
    check("empty", &[]);
    check("another file", b"{ \"model_type\": \"llama\" }");
    check("cut in the metadata", &whole[..200]);
    check("cut in the tensors", &whole[..whole.len() - 1000]);
    check("no architecture", &metadata_only(&[]));
    let mut check = |what: &str, changed: Vec<(&str, MetadataValue)>| {
        check(what, &metadata_only(&llama(changed)));
    };
    check("no tensors", vec![]);
    check(
        "another architecture",
        vec![("general.architecture", MetadataValue::String("mamba"))],
    );
    check(
        "heads of each layer",
        vec![("llama.attention.head_count", MetadataValue::Array(&[2]))],
    );
    check(
        "no heads",
        vec![("llama.attention.head_count", MetadataValue::Uint32(0))],
    );
    check(
        "an epsilon that is none",
        vec![(
            "llama.attention.layer_norm_rms_epsilon",
            MetadataValue::Float32(f32::NAN),
        )],
    );
    check(
        "no layers",
        vec![("llama.block_count", MetadataValue::Uint32(0))],
    );
    check(
        "more layers than any model has",
        vec![("llama.block_count", MetadataValue::Uint32(u32::MAX))],
    );
    check(
        "experts",
        vec![("llama.expert_count", MetadataValue::Uint32(8))],
    );
    check(
        "an unknown setting",
        vec![("llama.logit_scale", MetadataValue::Float32(0.5))],
    );
    check(
        "half of each head rotated",
        vec![("llama.rope.dimension_count", MetadataValue::Uint32(2))],
    );
    check(
        "values of another width",
        vec![("llama.attention.value_length", MetadataValue::Uint32(2))],
    );
    check(
        "positions scaled by yarn",
        vec![("llama.rope.scaling.type", MetadataValue::String("yarn"))],
    );
    check(
        "an end that is no id",
        vec![("tokenizer.ggml.eos_token_id", MetadataValue::String("</s>"))],
    );
    insta::assert_snapshot!(errors.join("\n"));
}

/// Only the factors of Llama 3.1 are recognized, by their values.
#[test]
fn frequency_factors_other_than_llama_3s_are_refused() {
    let mut bytes = std::fs::read(fixture("pieces.gguf")).unwrap();
    let eights = [8f32.to_le_bytes(), 8f32.to_le_bytes()].concat();
    let position = bytes.windows(8).rposition(|it| it == eights).unwrap();
    bytes[position..position + 4].copy_from_slice(&7f32.to_le_bytes());
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
        let keys = llama(vec![(key, MetadataValue::Float32(4.0))]);
        std::fs::write(&path, metadata_only(&keys)).unwrap();
        let positions = checkpoint::describe(&path).unwrap().config.stack.positions;
        let positions = serde_json::to_value(&positions).unwrap();
        assert_eq!(positions["scaling"]["kind"], "linear", "{key}");
        assert_eq!(positions["scaling"]["factor"], 4.0, "{key}");
    }
}
