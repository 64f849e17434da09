//! `forward`: its outputs match transformers and have its names; invalid inputs are refused with an error message.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use crate::program::{succeed, transcript};
use attentive::checkpoint::{TensorFile, write_tensors};
use attentive::tensor::TensorData;
use attentive_testing::{Scale, VALUES, assert_close};

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(name)
}

pub fn write(path: &Path, tensors: Vec<(&str, TensorData)>) {
    let tensors: BTreeMap<String, TensorData> = tensors
        .into_iter()
        .map(|(name, data)| (name.to_owned(), data))
        .collect();
    write_tensors(path, tensors, HashMap::new()).unwrap();
}

fn integers(numbers: &[i64], shape: [usize; 2]) -> TensorData {
    TensorData::new(numbers.to_vec(), shape)
}

#[test]
fn outputs_match_transformers_in_names_and_values() {
    for name in ["gpt2", "llama", "llama-tied"] {
        let folder = tempfile::tempdir().unwrap();
        let golden = TensorFile::open(&fixture(name).join("golden.safetensors")).unwrap();
        let ids = golden.integers("input_ids").unwrap();
        let ones = integers(&[1; 48], [2, 24]);
        let inputs = folder.path().join("in.safetensors");
        write(
            &inputs,
            vec![
                ("input_ids", integers(&ids, [2, 24])),
                ("attention_mask", ones),
            ],
        );
        let model = fixture(name).display().to_string();
        let arguments = [
            "forward",
            &model,
            "--inputs",
            "in.safetensors",
            "--save",
            "out.safetensors",
            "--hidden-states",
            "--attentions",
        ];
        succeed(folder.path(), &arguments);
        let output = TensorFile::open(&folder.path().join("out.safetensors")).unwrap();
        let expected: Vec<String> = golden
            .names()
            .into_iter()
            .filter(|name| {
                name == "logits"
                    || name == "last_hidden_state"
                    || name.starts_with("hidden_states.")
                    || name.starts_with("attentions.")
            })
            .collect();
        assert_eq!(output.names(), expected);
        for tensor in expected {
            assert_eq!(
                output.shape(&tensor),
                golden.shape(&tensor),
                "{name}: {tensor}"
            );
            let ours = output.floats(&tensor).unwrap();
            let theirs = golden.floats(&tensor).unwrap();
            let what = format!("{name}: {tensor}");
            assert_close(what, &ours, &theirs, Scale::Largest, VALUES);
        }
    }
}

#[test]
fn errors_of_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let model = fixture("gpt2")
        .canonicalize()
        .unwrap()
        .display()
        .to_string();
    let check = |tensors: Vec<(&str, TensorData)>| {
        write(&path.join("in.safetensors"), tensors);
        let arguments = [
            "forward",
            &model,
            "--inputs",
            "in.safetensors",
            "--save",
            "out.safetensors",
        ];
        transcript(path, &arguments).replace(&model, "gpt2")
    };
    let ids = || ("input_ids", integers(&[1, 2, 3, 4], [1, 4]));
    let floats = TensorData::new(vec![1f32; 4], [1, 4]);
    let transcripts = [
        check(vec![]),
        check(vec![("inputs", integers(&[1], [1, 1]))]),
        check(vec![("input_ids", floats)]),
        check(vec![("input_ids", TensorData::new(vec![1i64; 4], [4]))]),
        check(vec![("input_ids", integers(&[], [0, 4]))]),
        check(vec![("input_ids", integers(&[1, 97], [1, 2]))]),
        check(vec![("input_ids", integers(&[-1, 5], [1, 2]))]),
        check(vec![("input_ids", integers(&[1; 49], [1, 49]))]),
        check(vec![
            ids(),
            ("attention_mask", integers(&[1, 1, 1], [1, 3])),
        ]),
        check(vec![
            ids(),
            ("attention_mask", integers(&[1, 0, 1, 1], [1, 4])),
        ]),
        check(vec![
            ids(),
            ("position_ids", integers(&[0, 1, 2, 48], [1, 4])),
        ]),
        check(vec![ids(), ("position_ids", integers(&[0, 1], [1, 2]))]),
    ];
    assert!(!path.join("out.safetensors").exists());
    let copy = path.join("model");
    std::fs::create_dir(&copy).unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture("gpt2").join(file), copy.join(file)).unwrap();
    }
    write(&path.join("in.safetensors"), vec![ids()]);
    let save = |target: &str| {
        let inputs = ["--inputs", "in.safetensors", "--save", target];
        transcript(path, &[&["forward", "model"][..], &inputs].concat())
    };
    let transcripts = [
        &transcripts[..],
        &[save("in.safetensors"), save("model/model.safetensors")],
    ]
    .concat();
    insta::assert_snapshot!(transcripts.join("\n\n"));
}
