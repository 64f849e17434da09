//! What the tensors of a pass are called, for each class: by Hugging Face's own names.

use attentive_model::Model;
use attentive_model::checkpoint::{self, TensorFile, Wanted};
use burn::tensor::Device;

use crate::support::folder;

/// The outputs of a class besides the last state, from the settings and the inputs of a fixture of its family.
fn check(fixture: &str, class: &str, expected: &[&str]) {
    let place =
        std::env::temp_dir().join(format!("attentive-names-{}-{class}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let words = std::fs::read_to_string(folder(fixture).join("config.json")).unwrap();
    let mut words: serde_json::Value = serde_json::from_str(&words).unwrap();
    words["architectures"] = serde_json::json!([class]);
    std::fs::write(place.join("config.json"), words.to_string()).unwrap();
    let description = checkpoint::describe(&place).unwrap_or_else(|it| panic!("{class}: {it}"));
    std::fs::remove_dir_all(&place).unwrap();
    let model = Model::new(&description.config, 0, &Device::flex()).unwrap();
    let file = TensorFile::open(&folder(fixture).join("golden.safetensors")).unwrap();
    let found = checkpoint::forward(&model, &description, &file, "", Wanted::default()).unwrap();
    let found: Vec<&str> = found.keys().map(String::as_str).collect();
    let mut expected = [expected, &["last_hidden_state"]].concat();
    expected.sort_unstable();
    assert_eq!(found, expected, "{class}");
}

#[test]
fn heads_of_training_before_any_task_have_names_of_their_own() {
    let [words, pooler] = ["prediction_logits", "pooler_output"];
    let next = "seq_relationship_logits";
    check("bert", "BertForPreTraining", &[words, next, pooler]);
    check("big-bird", "BigBirdForPreTraining", &[words, next, pooler]);
    check(
        "albert",
        "AlbertForPreTraining",
        &[words, "sop_logits", pooler],
    );
}

#[test]
fn a_head_alone_gives_logits() {
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
fn both_heads_of_a_model_with_a_teacher_are_there() {
    let class = "DeiTForImageClassificationWithTeacher";
    check(
        "deit",
        class,
        &["logits", "cls_logits", "distillation_logits"],
    );
    check("deit", "DeiTForImageClassification", &["logits"]);
}

#[test]
fn the_map_before_the_classes_is_a_pooler_where_hugging_face_has_one() {
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
