//! config.json as typed structs, and its label names.

use attentive_model::ModelConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use attentive_formats::json::{read, typed};

/// A config.json as a struct; missing keys have the values of `defaults`.
pub fn typed_over<T: Serialize + DeserializeOwned>(
    json: &Value,
    defaults: &T,
) -> Result<T, String> {
    let mut all = json!(defaults);
    if let (Some(all), Some(given)) = (all.as_object_mut(), json.as_object()) {
        all.extend(given.clone());
    }
    typed(&all, "")
}

/// Writes placeholder names of the classes or labels, from which their number is read.
pub fn write_labels(json: &mut Value, config: &ModelConfig) {
    let classes = config
        .sequence_classifier
        .as_ref()
        .map(|classes| classes.classes);
    let labels = config.token_classifier.as_ref().map(|labels| labels.labels);
    let Some(count) = classes.or(labels) else {
        return;
    };
    let names = (0..count).map(|label| (label.to_string(), json!(format!("LABEL_{label}"))));
    json["id2label"] = Value::Object(names.collect());
}

/// The number of classes or labels; two by default. As in Hugging Face, `num_labels` counts where `id2label` has another number
/// of names.
pub fn read_labels(json: &Value) -> Result<usize, String> {
    let names = match &json["id2label"] {
        Value::Null => None,
        Value::Object(names) => Some(names.len()),
        other => {
            return Err(format!(
                "id2label: {other} is not an object of ids and names"
            ));
        }
    };
    match &json["num_labels"] {
        Value::Null => Ok(names.unwrap_or(2)),
        count => {
            let number = count.as_u64().and_then(|count| usize::try_from(count).ok());
            number.ok_or_else(|| format!("num_labels: {count} is not a whole number"))
        }
    }
}

/// Class or label names, by id; empty unless there is one for each. As in Hugging Face, names of another number than `num_labels`
/// are not used.
pub fn label_names(json: &Value) -> Vec<String> {
    let Some(names) = json["id2label"].as_object() else {
        return Vec::new();
    };
    if read_labels(json) != Ok(names.len()) {
        return Vec::new();
    }
    let name = |label: usize| names.get(&label.to_string())?.as_str().map(str::to_owned);
    let all: Option<Vec<String>> = (0..names.len()).map(name).collect();
    all.unwrap_or_default()
}

/// Replaces placeholder names by class or label names.
pub fn write_label_names(json: &mut Value, names: &[String]) {
    let count = json["id2label"].as_object().map_or(0, serde_json::Map::len);
    if count == 0 || count != names.len() {
        return;
    }
    let numbered = names.iter().enumerate();
    let by_id = numbered
        .clone()
        .map(|(label, name)| (label.to_string(), json!(name)));
    json["id2label"] = Value::Object(by_id.collect());
    let by_name = numbered.map(|(label, name)| (name.clone(), json!(label)));
    json["label2id"] = Value::Object(by_name.collect());
}
