//! Recurrent encoder-decoders: `forward` matches PyTorch, `info` describes them.

use std::path::{Path, PathBuf};

use attentive::checkpoint::TensorFile;
use attentive::tensor::TensorData;
use attentive_testing::{Scale, VALUES, assert_close};

use crate::forward::write;
use crate::program::{succeed, transcript};

fn fixture(name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models");
    fixtures.join(name).canonicalize().unwrap()
}

const FORWARD: [&str; 4] = ["--inputs", "in.safetensors", "--save", "out.safetensors"];

#[test]
fn forward_matches_pytorch() {
    for name in ["bahdanau-gru", "bahdanau-lstm", "bahdanau-plain"] {
        let golden = TensorFile::open(&fixture(name).join("golden.safetensors")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let input = |ours, theirs: &str| {
            let shape = golden.shape(theirs).unwrap().to_vec();
            (
                ours,
                TensorData::new(golden.integers(theirs).unwrap(), shape),
            )
        };
        let inputs = vec![
            input("input_ids", "padded.source_ids"),
            input("attention_mask", "padded.source_mask"),
            input("decoder_input_ids", "padded.target_ids"),
            input("decoder_attention_mask", "padded.target_mask"),
        ];
        write(&folder.path().join("in.safetensors"), inputs);
        let model = fixture(name).display().to_string();
        let arguments = [&["forward", &model, "--attentions"], &FORWARD[..]].concat();
        succeed(folder.path(), &arguments);
        let output = TensorFile::open(&folder.path().join("out.safetensors")).unwrap();
        let names = [
            ("cross_attentions.0", "padded.weights"),
            ("encoder_last_hidden_state", "padded.states"),
            ("last_hidden_state", "padded.hidden"),
            ("logits", "padded.logits"),
        ];
        assert_eq!(output.names(), names.map(|(ours, _)| ours));
        let mask = golden.integers("padded.target_mask").unwrap();
        for (ours, theirs) in names {
            assert_eq!(output.shape(ours), golden.shape(theirs), "{name}: {ours}");
            let (found, expected) = (output.floats(ours).unwrap(), golden.floats(theirs).unwrap());
            // Logits at padding are undefined.
            let values_per_token = found.len() / mask.len();
            let is_compared = |i: &usize| ours != "logits" || mask[i / values_per_token] != 0;
            let kept = |all: &[f32]| -> Vec<f32> {
                let kept = (0..all.len()).filter(is_compared);
                kept.map(|i| all[i]).collect()
            };
            let what = format!("{name}: {ours}");
            let (found, expected) = (kept(&found), kept(&expected));
            assert_close(what, &found, &expected, Scale::Largest, VALUES);
        }
    }
}

#[test]
fn transcripts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let model = fixture("bahdanau-gru").display().to_string();
    let show = |arguments: &[&str]| transcript(path, arguments).replace(&model, "bahdanau-gru");
    let forward = |ids: &[i64], decoder: [usize; 2], more: &[&str]| {
        let ids = TensorData::new(ids.to_vec(), [1, ids.len()]);
        let decoder_ids = TensorData::new(vec![1i64; decoder[0] * decoder[1]], decoder);
        let inputs = vec![("input_ids", ids), ("decoder_input_ids", decoder_ids)];
        write(&path.join("in.safetensors"), inputs);
        show(&[&["forward", &model], more, &FORWARD[..]].concat())
    };
    let transcripts = [
        show(&["info", &model]),
        show(&["info", &model, "--json"]),
        forward(&[1, 2, 999], [1, 2], &[]),
        forward(&[1, 2], [2, 2], &[]),
        forward(&[1, 2], [1, 2], &["--hidden-states"]),
        forward(&[1, 2], [1, 2], &["--past-key-values"]),
        show(&["translate", &model, "a text"]),
        show(&["generate", &model, "--prompt", "a text"]),
    ];
    insta::assert_snapshot!(transcripts.join("\n\n"));
}
