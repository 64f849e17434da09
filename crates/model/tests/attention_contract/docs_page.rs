//! docs/attention.md: every recipe line in it parses and builds, and every kind has one. Its table is checked in
//! `support_table`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use attentive_model::attention::{self, Attention, AttentionConfig, AttentionSpec, Widths};
use attentive_model::feed_forward::FeedForwardConfig;
use attentive_model::positions::PositionsConfig;
use attentive_model::{Initializer, Model, ModelConfig};
use burn::tensor::Device;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::registered;
use crate::test_layer::ROLES;

/// The model into which recipe lines are inserted, unless they are attention settings.
const MODEL: &str = r#"
    vocabulary = 16
    length = 1024
    width = 64
    positions = { kind = "none" }

    [[blocks]]
    norm = { kind = "layer" }
    attention = { kind = "full", heads = 8 }
    feed_forward = { kind = "plain", hidden_width = 256 }
"#;

/// The path of the page.
pub fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/attention.md")
}

/// The text of the page.
pub fn text() -> String {
    std::fs::read_to_string(path()).expect("docs/attention.md is there")
}

#[test]
fn every_recipe_line_builds_and_every_kind_has_one() {
    // The page has a line with the kind of the example `own_attention`.
    registered::register();
    let page = text();
    let mut found = BTreeSet::new();
    for line in recipe_lines(&page) {
        let parsed: Table = toml::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        for (key, value) in parsed {
            if let Some(kind) = value.get("kind") {
                found.insert((key.clone(), kind.as_str().unwrap_or_default().to_owned()));
            }
            let built = match key.as_str() {
                "attention" => attention_builds(value),
                "positions" => model_builds(|model| model.insert(key, value)),
                "placement" | "norm" | "feed_forward" => {
                    model_builds(|model| block_of(model).insert(key, value))
                }
                _ => Err("it is of no part that this test knows".to_owned()),
            };
            built.unwrap_or_else(|problem| panic!("docs/attention.md: {line}\n{problem}"));
        }
    }
    let mut attentions = kinds::<AttentionConfig>();
    attentions.retain(|kind| !attention::registered().contains(kind));
    let all = [
        ("attention", attentions),
        ("positions", kinds::<PositionsConfig>()),
        ("feed_forward", kinds::<FeedForwardConfig>()),
    ];
    for (key, kinds) in all {
        for kind in kinds {
            let line = (key.to_owned(), kind);
            assert!(
                found.contains(&line),
                "docs/attention.md has no line `{} = {{ kind = \"{}\", … }}`",
                line.0,
                line.1
            );
        }
    }
}

/// The lines of all TOML blocks.
fn recipe_lines(page: &str) -> impl Iterator<Item = &str> {
    let blocks = page.split("```toml\n").skip(1);
    blocks
        .filter_map(|block| block.split("```").next())
        .flat_map(str::lines)
        .filter(|line| !line.trim().is_empty())
}

/// Whether a layer can be built in some role.
fn attention_builds(settings: Value) -> Result<(), String> {
    let config: AttentionConfig = settings.try_into().map_err(|it| format!("{it}"))?;
    let build = |role| {
        let spec = AttentionSpec::new(role, Widths::all(64), 1024);
        let initializer = &mut Initializer::new(1, &Device::flex());
        Attention::new(&config, &spec, initializer)
    };
    let refused: Vec<String> = ROLES
        .into_iter()
        .filter_map(|role| build(role).err())
        .map(|error| error.to_string())
        .collect();
    match refused.len() < ROLES.len() {
        true => Ok(()),
        false => Err(refused.join("\n")),
    }
}

/// Whether the model can be built after this change of its config.
fn model_builds(change: impl FnOnce(&mut Table) -> Option<Value>) -> Result<(), String> {
    let mut model: Table = toml::from_str(MODEL).unwrap();
    change(&mut model);
    let config: ModelConfig = model.try_into().map_err(|it| format!("{it}"))?;
    match Model::new(&config, 1, &Device::flex()) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn block_of(model: &mut Table) -> &mut Table {
    let blocks = model.get_mut("blocks").and_then(Value::as_array_mut);
    blocks.unwrap()[0].as_table_mut().unwrap()
}

/// All kinds of a part: serde lists them in the error for an unknown one.
fn kinds<Part: DeserializeOwned>() -> Vec<String> {
    let error = serde_json::from_str::<Part>(r#"{ "kind": "?" }"#).err();
    let message = error.expect("there is no such kind").to_string();
    let quoted: Vec<String> = message
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect();
    assert!(quoted.len() > 2 && quoted[0] == "?", "{message}");
    quoted[1..].to_vec()
}
