//! Reading and writing the JSON files of a model folder.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::CheckpointError;
use crate::ModelConfig;

/// Reads a JSON object.
pub fn read(path: &Path) -> Result<Value, CheckpointError> {
    let text = std::fs::read_to_string(path).map_err(|source| CheckpointError::Io {
        path: path.to_owned(),
        source,
    })?;
    let broken = |problem: String| CheckpointError::Broken {
        path: path.to_owned(),
        problem,
    };
    let value: Value = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
    if !value.is_object() {
        return Err(broken("it is not a JSON object".to_owned()));
    }
    Ok(value)
}

/// Words as a struct that mirrors them; the error names the key, as a path that starts with `place`.
pub fn typed<T: DeserializeOwned>(words: &Value, place: &str) -> Result<T, String> {
    serde_path_to_error::deserialize(words).map_err(|error| {
        let path = error.path().to_string();
        let parts = [place, &path].into_iter();
        let parts: Vec<&str> = parts.filter(|part| !["", "."].contains(part)).collect();
        let problem = in_plain_words(&error.into_inner().to_string());
        match parts.as_slice() {
            [] => problem,
            parts => format!("{}: {problem}", parts.join(".")),
        }
    })
}

/// Words as a struct that mirrors them, in which what they leave out has the values of `defaults`.
pub fn typed_over<T: Serialize + DeserializeOwned>(
    words: &Value,
    defaults: &T,
) -> Result<T, String> {
    let mut all = json!(defaults);
    if let (Some(all), Some(said)) = (all.as_object_mut(), words.as_object()) {
        all.extend(said.clone());
    }
    typed(&all, "")
}

/// What serde says of a value, without Rust's names of types.
pub fn in_plain_words(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return match message.strip_prefix("missing field ") {
            Some(key) => format!("the key {key} is missing"),
            None => message.to_owned(),
        };
    };
    if let Some(value) = found.strip_prefix("unknown variant ") {
        let known = expected.trim_start_matches("one of ");
        return format!("there is no {value}; use {known}");
    }
    let expected = match expected {
        "usize" | "u64" | "u32" if found.contains("integer") => "0 or more",
        "usize" | "u64" | "u32" => "a whole number",
        "f64" | "f32" => "a number",
        "bool" => "a boolean",
        table if table.starts_with("struct ") || table.contains("tagged enum ") => "a table",
        other => other,
    };
    format!("{found}, expected {expected}")
}

/// What a message quotes of a file, on one line and not without end, whatever the file holds.
pub fn one_line(text: &str) -> String {
    const LONGEST: usize = 2000;
    let mut line = String::new();
    for character in text.chars().take(LONGEST) {
        match character.is_control() {
            true => line.extend(character.escape_debug()),
            false => line.push(character),
        }
    }
    if text.chars().nth(LONGEST).is_some() {
        line.push('…');
    }
    line
}

/// Adds the numbers of classes or labels to `words`, as names without a meaning.
pub fn write_labels(words: &mut Value, config: &ModelConfig) {
    let classes = config.classes.as_ref().map(|classes| classes.classes);
    let labels = config.labels.as_ref().map(|labels| labels.labels);
    let Some(count) = classes.or(labels) else {
        return;
    };
    let names = (0..count).map(|label| (label.to_string(), json!(format!("LABEL_{label}"))));
    words["id2label"] = Value::Object(names.collect());
}

/// How many classes or labels `words` names; two unless said, as Hugging Face has it.
pub fn read_labels(words: &Value) -> Result<usize, String> {
    match (&words["id2label"], &words["num_labels"]) {
        (Value::Object(names), _) => Ok(names.len()),
        (Value::Null, Value::Null) => Ok(2),
        (Value::Null, count) => {
            let count = count.as_u64().and_then(|count| usize::try_from(count).ok());
            count
                .ok_or_else(|| format!("num_labels: {} is not a whole number", words["num_labels"]))
        }
        (other, _) => Err(format!(
            "id2label: {other} is not a table of numbers and names"
        )),
    }
}

/// The names of classes or labels, by their numbers; none where `words` has not one for each.
pub fn label_names(words: &Value) -> Vec<String> {
    let Some(names) = words["id2label"].as_object() else {
        return Vec::new();
    };
    let name = |label: usize| names.get(&label.to_string())?.as_str().map(str::to_owned);
    let all: Option<Vec<String>> = (0..names.len()).map(name).collect();
    all.unwrap_or_default()
}

/// Puts the names of classes or labels in place of those without a meaning.
pub fn write_label_names(words: &mut Value, names: &[String]) {
    let count = words["id2label"]
        .as_object()
        .map_or(0, serde_json::Map::len);
    if count == 0 || count != names.len() {
        return;
    }
    let numbered = names.iter().enumerate();
    let by_number = numbered
        .clone()
        .map(|(label, name)| (label.to_string(), json!(name)));
    words["id2label"] = Value::Object(by_number.collect());
    let by_name = numbered.map(|(label, name)| (name.clone(), json!(label)));
    words["label2id"] = Value::Object(by_name.collect());
}
