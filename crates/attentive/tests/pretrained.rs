//! The front door: each task on a small model with random weights, against the parts that it is made of, and what it refuses.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use attentive::checkpoint::{self, TensorFile};
use attentive::generation::{SpecialTokens, StopReason};
use attentive::model::{Model, ModelConfig};
use attentive::pretrained::Loader;
use attentive::tensor::Device;
use attentive::text::ChatMessage;
use attentive::{Pretrained, PretrainedError};
use attentive_testing::{Scale, VALUES, assert_close};
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Saves a model of width 16 with these heads and this role, and the tokenizer of a test folder of `text`.
fn save(folder: &Path, settings: &Value) {
    let mut json = json!({
        "vocabulary": 110, "length": 32, "width": 16, "init_std": 0.4,
        "embedding": { "types": 2, "norm": { "kind": "layer", "epsilon": 1e-12 } },
        "positions": { "kind": "learned" },
        "blocks": [{
            "repeat": 2, "placement": "after", "norm": { "kind": "layer", "epsilon": 1e-12 },
            "attention": { "kind": "full", "heads": 2, "bias": true, "output_bias": true },
            "feed_forward": { "kind": "plain", "hidden_width": 24, "activation": "gelu" }
        }]
    });
    json.as_object_mut()
        .unwrap()
        .extend(settings.as_object().unwrap().clone());
    let config: ModelConfig = serde_json::from_value(json).unwrap();
    let model = Model::new(&config, 7, &Device::flex()).unwrap();
    checkpoint::save(folder, &model, &SpecialTokens::default()).unwrap();
    for name in [
        "vocab.txt",
        "tokenizer_config.json",
        "special_tokens_map.json",
    ] {
        let source = root().join("crates/text/tests/folders/bert_uncased");
        std::fs::copy(source.join(name), folder.join(name)).unwrap();
    }
}

fn encoder(heads: Value) -> Value {
    let mut settings = json!({ "role": "bidirectional", "head": "none" });
    let heads = heads.as_object().unwrap().clone();
    settings.as_object_mut().unwrap().extend(heads);
    settings
}

fn masked() -> Value {
    let transform = json!({ "activation": "gelu", "norm": { "kind": "layer", "epsilon": 1e-12 } });
    encoder(
        json!({ "head": { "lm_head": { "tied": true, "bias": true, "transform": transform } } }),
    )
}

#[test]
fn texts_are_embedded_alike_alone_and_in_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    save(folder.path(), &masked());
    let model = Loader::new().without_heads().load(folder.path()).unwrap();
    let texts = ["the fox", "a small robot and the fox play"];
    let both = model.embed(texts).run().unwrap();
    for (text, vector) in texts.iter().zip(&both) {
        let alone = model.embed([*text]).run().unwrap().remove(0);
        assert_close(text, &alone, vector, Scale::One, VALUES);
        let length: f32 = vector.iter().map(|x| x * x).sum();
        assert_close(text, &[length], &[1f32], Scale::One, VALUES);
    }
    let error = model.fill(["the [MASK]"]).run().unwrap_err();
    assert!(matches!(error, PretrainedError::NoHeads), "{error}");
}

#[test]
fn masks_classes_and_labels_come_from_their_heads() {
    let folder = tempfile::tempdir().unwrap();
    save(folder.path(), &masked());
    let model = Pretrained::load(folder.path()).unwrap();
    let masks = model.fill(["the [MASK] is quick"]).top(3).run().unwrap();
    assert_eq!(masks[0][0].candidates.len(), 3);
    let error = model.classify(["the fox"]).run().unwrap_err();
    assert!(error.to_string().contains("classification"), "{error}");

    let classes = json!({ "pooler": { "from": "first", "projection": {} }, "sequence_classifier": { "classes": 3 } });
    save(folder.path(), &encoder(classes));
    let model = Pretrained::load(folder.path()).unwrap();
    let classes = model.classify([("the fox", "a robot")]).run().unwrap();
    let sum: f64 = classes[0].iter().map(|class| class.score).sum();
    assert_eq!(classes[0].len(), 3);
    assert_close("probabilities", &[sum], &[1.0], Scale::One, VALUES);

    let labels = json!({ "token_classifier": { "labels": 4 } });
    save(folder.path(), &encoder(labels));
    let model = Pretrained::load(folder.path()).unwrap();
    assert!(model.labels_tokens());
    let tokens = model.label(["the small fox"]).run().unwrap().remove(0);
    assert_eq!(&"the small fox"[tokens[1].span.clone()], "small");
}

#[test]
fn an_answer_is_a_span_of_the_context() {
    let folder = tempfile::tempdir().unwrap();
    let span = json!({ "token_classifier": { "labels": 2, "task": "span" } });
    save(folder.path(), &encoder(span));
    let model = Pretrained::load(folder.path()).unwrap();
    // Longer than the model reads, so that it is read in windows.
    let context = "the small robot and the quick fox play ".repeat(20);
    let answers = model.answer("the fox", &context).top(3).run().unwrap();
    assert_eq!(answers.len(), 3);
    for pair in answers.windows(2) {
        assert!(pair[0].score >= pair[1].score);
    }
    for answer in &answers {
        assert_eq!(answer.text, context[answer.span.clone()]);
    }
}

#[test]
fn a_decoder_continues_prompts_and_streams_the_same_text() {
    let folder = tempfile::tempdir().unwrap();
    let types = json!({ "types": 1 });
    save(folder.path(), &json!({ "embedding": types }));
    let model = Pretrained::load(folder.path()).unwrap();
    let request = || {
        model
            .generate("the small")
            .max_new_tokens(6)
            .temperature(0.0)
    };
    let done = request().run().unwrap();
    assert_eq!(done.texts[0].ids.len(), 6);
    assert_eq!(done.texts[0].reason, StopReason::Length);
    let mut streamed = String::new();
    let again = request()
        .stream(|chunk| {
            streamed += chunk.text;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(done, again);
    assert_eq!(streamed, done.text());
    assert_eq!(done.to_string(), done.text());
    let ids = model.generate_from_ids(done.prompt_ids.clone());
    let ids = ids.max_new_tokens(6).temperature(0.0).run().unwrap();
    assert_eq!(ids.texts, done.texts);
    let beams = request().num_beams(3).num_return_sequences(2).run();
    assert!(beams.is_err(), "a temperature is for sampling");
    let beams = model.generate("the small").max_new_tokens(4);
    let beams = beams.num_beams(3).num_return_sequences(2).run().unwrap();
    assert!(beams.texts[0].score >= beams.texts[1].score);
    let error = model.chat([ChatMessage::user("hello")]).run().unwrap_err();
    assert!(error.to_string().contains("chat template"), "{error}");
}

#[test]
fn an_encoder_decoder_translates_and_leaves_blank_lines() {
    let folder = root().join("fixtures/models/bart");
    let model = Loader::new()
        .tokenizer(root().join("crates/text/tests/folders/bert_uncased"))
        .load(folder)
        .unwrap();
    let found = model.translate(["", "the fox"]).run();
    // The fixture's vocabulary is smaller than the tokenizer's.
    let error = found.unwrap_err().to_string();
    assert!(error.contains("tokens and the model only"), "{error}");
}

#[test]
fn a_forward_pass_has_the_outputs_of_the_golden_file() {
    let folder = root().join("fixtures/gpt2");
    let model = Pretrained::load(&folder).unwrap();
    let golden = TensorFile::open(&folder.join("golden.safetensors")).unwrap();
    let error = model.forward(&golden).run().unwrap_err();
    assert!(error.to_string().contains("has no input"), "{error}");
}

#[test]
fn heads_that_do_not_load_matter_only_to_those_who_need_them() {
    let folder = tempfile::tempdir().unwrap();
    let classes = json!({ "pooler": { "from": "first", "projection": {} }, "sequence_classifier": { "classes": 3 } });
    save(folder.path(), &encoder(classes));
    let path = folder.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config["id2label"] = json!({ "0": "a", "1": "b", "2": "c", "3": "d" });
    std::fs::write(&path, config.to_string()).unwrap();
    let model = Pretrained::load(folder.path()).unwrap();
    model.embed(["the fox"]).run().unwrap();
    let error = model.classify(["the fox"]).run().unwrap_err().to_string();
    assert!(error.contains("classifier"), "{error}");
}

#[test]
fn what_is_not_a_model_is_said() {
    let error = Pretrained::load("no such folder").unwrap_err().to_string();
    assert!(error.contains("is not a model folder"), "{error}");
}
