//! `fill`, `classify`, `embed` and `convert`, on small models with random weights and the tokenizers of the tests of `text`.

use std::path::Path;

use attentive::checkpoint::{self};
use attentive::generation::SpecialTokens;
use attentive::model::{Model, ModelConfig};
use attentive::tensor::Device;
use attentive_testing::{Scale, assert_close, assert_near};
use serde_json::{Value, json};

use crate::program::{succeed, transcript};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Saves a BERT with these heads, and its tokenizer.
fn bert(folder: &Path, heads: &Value) {
    let mut json = json!({
        "vocabulary": 110, "length": 16, "width": 16, "role": "bidirectional", "head": "none", "init_std": 0.4,
        "embedding": { "types": 2, "norm": { "kind": "layer", "epsilon": 1e-12 } },
        "positions": { "kind": "learned" },
        "blocks": [{
            "repeat": 2, "placement": "after", "norm": { "kind": "layer", "epsilon": 1e-12 },
            "attention": { "kind": "full", "heads": 2, "bias": true, "output_bias": true },
            "feed_forward": { "kind": "plain", "hidden_width": 24, "activation": "gelu" }
        }]
    });
    let heads = heads.as_object().unwrap().clone();
    json.as_object_mut().unwrap().extend(heads);
    let config: ModelConfig = serde_json::from_value(json).unwrap();
    let model = Model::new(&config, 7, &Device::flex()).unwrap();
    checkpoint::save(folder, &model, &SpecialTokens::default()).unwrap();
    assert_eq!(checkpoint::describe(folder).unwrap().model_type, "bert");
    for name in [
        "vocab.txt",
        "tokenizer_config.json",
        "special_tokens_map.json",
    ] {
        let source = root().join("../text/tests/folders/bert_uncased").join(name);
        std::fs::copy(source, folder.join(name)).unwrap();
    }
}

fn masked() -> Value {
    let transform = json!({ "activation": "gelu", "norm": { "kind": "layer", "epsilon": 1e-12 } });
    json!({ "head": { "lm_head": { "tied": true, "bias": true, "transform": transform } } })
}

fn classes() -> Value {
    json!({ "pooler": { "from": "first", "projection": {} }, "sequence_classifier": { "classes": 3 } })
}

fn lines(folder: &Path, arguments: &[&str]) -> Vec<Value> {
    let output = succeed(folder, arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

#[test]
fn masks_are_filled_the_same_alone_and_in_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    bert(&path.join("model"), &masked());
    let texts = [
        "the [MASK] is quick",
        "a small robot and the [MASK] play in [MASK]",
    ];
    let both = lines(path, &["fill", "model", texts[0], texts[1], "--json"]);
    for (text, found) in texts.iter().zip(&both) {
        let alone = lines(path, &["fill", "model", text, "--json"]).remove(0);
        assert_eq!(alone["text"], found["text"]);
        let tokens = |found: &Value| -> Vec<String> {
            let masks = found["masks"].as_array().unwrap().iter();
            let candidates = masks.flat_map(|mask| mask["candidates"].as_array().unwrap());
            candidates.map(|it| it["token"].to_string()).collect()
        };
        assert_eq!(tokens(&alone), tokens(found));
    }
    assert_eq!(both[1]["masks"].as_array().unwrap().len(), 2);
    let first = &both[0]["masks"][0]["candidates"];
    let probabilities: Vec<f64> = (0..5)
        .map(|i| first[i]["probability"].as_f64().unwrap())
        .collect();
    assert!(probabilities.is_sorted_by(|a, b| a >= b) && probabilities.iter().sum::<f64>() <= 1.0);
}

#[test]
fn probabilities_sum_to_one_and_pairs_differ_from_texts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    bert(&path.join("model"), &classes());
    std::fs::write(
        path.join("pairs.tsv"),
        "the dog\tis quick\nthe robot\tis not\n",
    )
    .unwrap();
    let pairs = [
        "classify",
        "model",
        "--pairs",
        "--file",
        "pairs.tsv",
        "--json",
    ];
    let pairs = lines(path, &pairs);
    let texts = lines(path, &["classify", "model", "the dog is quick", "--json"]);
    let probabilities = |found: &Value| -> Vec<f64> {
        let classes = found["classes"].as_array().unwrap().iter();
        classes
            .map(|it| it["probability"].as_f64().unwrap())
            .collect()
    };
    for found in pairs.iter().chain(&texts) {
        assert_eq!(probabilities(found).len(), 3);
        let sum = probabilities(found).iter().sum::<f64>();
        assert_near("probabilities", sum, 1.0, Scale::One, 1e-9);
    }
    assert_ne!(probabilities(&pairs[0]), probabilities(&texts[0]));
}

#[test]
fn the_problem_type_selects_the_classification_function() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    bert(&path.join("model"), &classes());
    let file = path.join("model/config.json");
    let written: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let classified = |problem: &str| -> Vec<Value> {
        let mut json = written.clone();
        json["problem_type"] = json!(problem);
        std::fs::write(&file, json.to_string()).unwrap();
        let found = lines(path, &["classify", "model", "the dog is quick", "--json"]);
        found[0]["classes"].as_array().unwrap().clone()
    };
    let plain = classified("regression");
    let scores: Vec<f64> = plain
        .iter()
        .map(|it| it["score"].as_f64().unwrap())
        .collect();
    assert!(scores.is_sorted_by(|a, b| a >= b) && plain[0]["probability"].is_null());
    let shown = transcript(path, &["classify", "model", "the dog is quick"]);
    assert!(
        shown.contains(&format!("{:>8.4}  LABEL_", scores[0])),
        "{shown}"
    );
    let sum: f64 = scores.iter().map(|it| it.exp()).sum();
    let softmax = |score: f64| score.exp() / sum;
    let sigmoid = |score: f64| 1.0 / (1.0 + (-score).exp());
    let problems: [(&str, &dyn Fn(f64) -> f64); 2] = [
        ("multi_label_classification", &sigmoid),
        ("single_label_classification", &softmax),
    ];
    for (problem, expected) in problems {
        for (found, score) in classified(problem).iter().zip(&scores) {
            let probability = found["probability"].as_f64().unwrap();
            assert_near(problem, probability, expected(*score), Scale::One, 1e-6);
        }
    }
    classified("multi_label_classification");
    succeed(path, &["convert", "model", "--out", "again"]);
    let again = std::fs::read_to_string(path.join("again/config.json")).unwrap();
    assert!(again.contains("\"problem_type\": \"multi_label_classification\""));
    let one = json!({ "pooler": { "from": "first", "projection": {} }, "sequence_classifier": { "classes": 1 } });
    bert(&path.join("one"), &one);
    let found = lines(path, &["classify", "one", "the dog", "--json"]);
    let probability = found[0]["classes"][0]["probability"].as_f64().unwrap();
    assert!(
        probability > 0.0 && probability < 1.0 && probability != 0.5,
        "{probability}"
    );
}

#[test]
fn numbers_that_float16_cannot_hold_are_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let fixture = root().join("../../fixtures/llama");
    std::fs::create_dir(path.join("model")).unwrap();
    std::fs::copy(fixture.join("config.json"), path.join("model/config.json")).unwrap();
    let mut bytes = std::fs::read(fixture.join("model.safetensors")).unwrap();
    // The last value of the last tensor of the file.
    let end = bytes.len() - 4;
    bytes[end..].copy_from_slice(&70000f32.to_le_bytes());
    std::fs::write(path.join("model/model.safetensors"), bytes).unwrap();
    let convert = |dtype: &str| {
        transcript(
            path,
            &["convert", "model", "--out", dtype, "--dtype", dtype],
        )
    };
    insta::assert_snapshot!(convert("float16"));
    assert!(!path.join("float16").exists());
    assert!(convert("bfloat16").contains("saved"));
}

#[test]
fn images_are_classified() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let source = root().join("../../fixtures/models/vit");
    std::fs::create_dir(path.join("vit")).unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(source.join(name), path.join("vit").join(name)).unwrap();
    }
    let settings = json!({
        "image_processor_type": "ViTImageProcessor", "do_resize": true, "size": { "height": 16, "width": 16 },
        "resample": 2, "do_rescale": true, "rescale_factor": 1.0 / 255.0, "do_normalize": true,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]
    });
    std::fs::write(
        path.join("vit/preprocessor_config.json"),
        settings.to_string(),
    )
    .unwrap();
    let images = root().join("../../fixtures/images/files");
    let images = images.canonicalize().unwrap();
    let png = std::fs::read_dir(&images)
        .unwrap()
        .map(|it| it.unwrap().path());
    let mut png: Vec<_> = png
        .filter(|it| it.extension().is_some_and(|it| it == "png"))
        .collect();
    png.sort();
    let names: Vec<&str> = png.iter().take(3).map(|it| it.to_str().unwrap()).collect();
    let found = lines(
        path,
        &[
            &["classify", "vit", "--json", "--batch-size", "2"],
            &names[..],
        ]
        .concat(),
    );
    assert_eq!(found.len(), 3);
    assert!(
        found
            .iter()
            .all(|it| it["classes"].as_array().unwrap().len() == 5)
    );
}

#[test]
fn embeddings_are_normalized_and_independent_of_padding() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    bert(
        &path.join("model"),
        &json!({ "pooler": { "from": "first", "projection": {} } }),
    );
    let texts = ["the dog", "a small robot is quick", "to play"];
    for pooling in ["mean", "cls", "last", "max"] {
        let arguments = ["embed", "model", "--pooling", pooling, "--json"];
        let found = lines(path, &[&arguments, &texts[..]].concat());
        for line in &found {
            let vector = line["vector"].as_array().unwrap();
            let squares = vector.iter().map(|it| it.as_f64().unwrap().powi(2));
            assert_near(pooling, squares.sum::<f64>(), 1.0, Scale::One, 1e-6);
        }
        let alone = lines(path, &[&arguments, &texts[..1]].concat());
        let vector = |line: &Value| -> Vec<f64> {
            let numbers = line["vector"].as_array().unwrap().iter();
            numbers.map(|it| it.as_f64().unwrap()).collect()
        };
        let what = format!("padding changes {pooling}");
        let (alone, padded) = (vector(&alone[0]), vector(&found[0]));
        assert_close(what, &padded, &alone, Scale::One, 1e-6);
    }
    let rows = lines(
        path,
        &[&["embed", "model", "--similarity", "--json"], &texts[..]].concat(),
    );
    for (i, row) in rows.iter().enumerate() {
        let own = row["similarities"][i].as_f64().unwrap();
        assert_near("similarity", own, 1.0, Scale::One, 1e-6);
    }
}

#[test]
fn a_converted_model_predicts_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    bert(&path.join("model"), &masked());
    let text = "the [MASK] is quick";
    let before = lines(path, &["fill", "model", text, "--json"]);
    succeed(
        path,
        &["convert", "model", "--out", "parts", "--shard-size", "4000"],
    );
    assert!(path.join("parts/model.safetensors.index.json").exists());
    assert_eq!(lines(path, &["fill", "parts", text, "--json"]), before);
    succeed(
        path,
        &["convert", "model", "--out", "ours", "--to", "attentive"],
    );
    let described = checkpoint::describe(&path.join("ours")).unwrap();
    assert_eq!(described.model_type, "attentive");
    assert_eq!(lines(path, &["fill", "ours", text, "--json"]), before);
}

#[test]
fn a_converted_folder_has_its_modules() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let model = path.join("model");
    bert(&model, &masked());
    let modules = |module_path: &str, kind: &str| {
        let json = json!([
            { "path": "", "type": "sentence_transformers.models.Transformer" },
            { "path": module_path, "type": format!("sentence_transformers.models.{kind}") },
            { "path": "2_Normalize", "type": "sentence_transformers.models.Normalize" },
        ]);
        std::fs::write(model.join("modules.json"), json.to_string()).unwrap();
    };
    std::fs::create_dir_all(model.join("sub/1_Pooling")).unwrap();
    let pooling = r#"{"pooling_mode_max_tokens": true}"#;
    std::fs::write(model.join("sub/1_Pooling/config.json"), pooling).unwrap();
    modules("sub/1_Pooling", "Pooling");
    let before = lines(path, &["embed", "model", "the dog", "--json"]);
    succeed(path, &["convert", "model", "--out", "new"]);
    let after = lines(path, &["embed", "new", "the dog", "--json"]);
    assert_eq!(after, before);
    let mut transcripts = Vec::new();
    for (module_path, kind) in [
        ("../sub", "Pooling"),
        ("1_Pooling", "Pooling"),
        ("sub", "Dense"),
    ] {
        modules(module_path, kind);
        transcripts.push(transcript(path, &["convert", "model", "--out", "broken"]));
        assert!(!path.join("broken").exists());
    }
    insta::assert_snapshot!(transcripts.join("\n\n"));
}

#[test]
fn texts_beyond_max_seq_length_are_refused_or_truncated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let model = path.join("model");
    bert(&model, &masked());
    let pooling = r#"{"pooling_mode_mean_tokens": true}"#;
    std::fs::create_dir_all(model.join("1_Pooling")).unwrap();
    std::fs::write(model.join("1_Pooling/config.json"), pooling).unwrap();
    let modules = json!([
        { "path": "", "type": "sentence_transformers.models.Transformer" },
        { "path": "1_Pooling", "type": "sentence_transformers.models.Pooling" },
    ]);
    std::fs::write(model.join("modules.json"), modules.to_string()).unwrap();
    std::fs::write(
        model.join("sentence_bert_config.json"),
        r#"{"max_seq_length": 5}"#,
    )
    .unwrap();
    insta::assert_snapshot!(
        transcript(path, &["embed", "model", "the dog", "the dog the dog"]),
        @r"
    $ attentive embed model the dog the dog the dog
    error: text 2 has 6 tokens, more than the model's limit of 5; shorten it, or give --truncate
    [exit 2]
    "
    );
    let truncated = [
        "embed",
        "model",
        "the dog the",
        "the dog the dog",
        "--truncate",
        "--json",
    ];
    let truncated = lines(path, &truncated);
    let vector = |index: usize| truncated[index]["vector"].as_array().unwrap();
    assert_eq!(vector(0), vector(1));
    assert!(vector(0).len() > 1);
}

#[test]
fn errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    bert(&path.join("masked"), &masked());
    bert(&path.join("classes"), &classes());
    let modules = r#"[{"path": "../classes", "type": "sentence_transformers.models.Pooling"}]"#;
    std::fs::write(path.join("masked/modules.json"), modules).unwrap();
    let long = "the dog ".repeat(20);
    let calls: [&[&str]; 11] = [
        &["fill", "masked", "the dog"],
        &["fill", "classes", "the [MASK]"],
        &["fill", "masked", &long],
        &["fill", "masked", "the [MASK]", "--top", "0"],
        &["classify", "masked", "the dog"],
        &["classify", "classes", "the dog", "--pairs"],
        &["classify", "classes", "--file", "missing.txt"],
        &["embed", "nowhere", "the dog"],
        &["embed", "masked", "the dog"],
        &["convert", "masked", "--out", "classes"],
        &["convert", "masked", "--out", "new", "--dtype", "int8"],
    ];
    let transcripts: Vec<String> = calls.iter().map(|call| transcript(path, call)).collect();
    insta::assert_snapshot!(transcripts.join("\n\n"));
}
