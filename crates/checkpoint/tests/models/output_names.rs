//! The output names of each model class: Hugging Face's.

use attentive_checkpoint::{self as checkpoint, RequestedOutputs, TensorFile};
use attentive_model::Model;
use burn::tensor::Device;

use crate::support::folder;

/// Checks the outputs of a class besides `last_hidden_state`, with the config and the inputs of a fixture of its family.
fn check(fixture: &str, class: &str, expected: &[&str]) {
    let saved =
        std::env::temp_dir().join(format!("attentive-names-{}-{class}", std::process::id()));
    std::fs::create_dir_all(&saved).unwrap();
    let json = std::fs::read_to_string(folder(fixture).join("config.json")).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&json).unwrap();
    json["architectures"] = serde_json::json!([class]);
    std::fs::write(saved.join("config.json"), json.to_string()).unwrap();
    let description = checkpoint::describe(&saved).unwrap_or_else(|it| panic!("{class}: {it}"));
    std::fs::remove_dir_all(&saved).unwrap();
    let model = Model::new(&description.config, 0, &Device::flex()).unwrap();
    let file = TensorFile::open(&folder(fixture).join("golden.safetensors")).unwrap();
    let found =
        checkpoint::forward(&model, &description, &file, "", RequestedOutputs::default()).unwrap();
    let found: Vec<&str> = found.keys().map(String::as_str).collect();
    let mut expected = [expected, &["last_hidden_state"]].concat();
    expected.sort_unstable();
    assert_eq!(found, expected, "{class}");
}

#[test]
fn pretraining_heads_have_their_own_names() {
    let [logits, pooler] = ["prediction_logits", "pooler_output"];
    let next = "seq_relationship_logits";
    check("bert", "BertForPreTraining", &[logits, next, pooler]);
    check("big-bird", "BigBirdForPreTraining", &[logits, next, pooler]);
    check(
        "albert",
        "AlbertForPreTraining",
        &[logits, "sop_logits", pooler],
    );
}

#[test]
fn a_single_head_returns_logits() {
    check("bert", "BertForMaskedLM", &["logits"]);
    check(
        "bert",
        "BertForNextSentencePrediction",
        &["logits", "pooler_output"],
    );
    check("bert", "BertForTokenClassification", &["logits"]);
    check(
        "bert",
        "BertForQuestionAnswering",
        &["start_logits", "end_logits"],
    );
    check("vit", "ViTForImageClassification", &["logits"]);
}

#[test]
fn a_distilled_model_returns_both_heads() {
    let class = "DeiTForImageClassificationWithTeacher";
    check(
        "deit",
        class,
        &["logits", "cls_logits", "distillation_logits"],
    );
    check("deit", "DeiTForImageClassification", &["logits"]);
}

#[test]
fn the_projection_before_the_classifier_is_a_pooler_where_hugging_face_has_one() {
    let pooled = ["logits", "pooler_output"];
    check("bert", "BertForSequenceClassification", &pooled);
    check("albert", "AlbertForSequenceClassification", &pooled);
    check("roberta", "RobertaForSequenceClassification", &["logits"]);
    check(
        "longformer",
        "LongformerForSequenceClassification",
        &["logits"],
    );
    check("big-bird", "BigBirdForSequenceClassification", &["logits"]);
    check(
        "distilbert",
        "DistilBertForSequenceClassification",
        &["logits"],
    );
}
