//! `attentive recipes [NAME]`

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use attentive::training::recipes::{BUILT_IN, find};
use serde_json::json;

use crate::arguments::Recipes;
use crate::failure::Usage;

/// Lists the built-in recipes, or prints one.
pub fn run(arguments: Recipes) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    match arguments.name {
        Some(name) => {
            let recipe = find(&name).ok_or_else(|| Usage(no_such_recipe(&name)))?;
            if arguments.json {
                writeln!(out, "{}", serde_json::to_string(&recipe.parse(&[])?)?)?;
            } else {
                write!(out, "{}", recipe.text)?;
            }
        }
        None if arguments.json => {
            let list: Vec<_> = BUILT_IN
                .iter()
                .map(|recipe| json!({ "name": recipe.name, "description": recipe.description() }))
                .collect();
            writeln!(out, "{}", json!(list))?;
        }
        None => {
            for recipe in BUILT_IN {
                writeln!(out, "{:18} {}", recipe.name, recipe.description())?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The error message for an unknown recipe.
pub fn no_such_recipe(name: &str) -> String {
    let names: Vec<&str> = BUILT_IN.iter().map(|recipe| recipe.name).collect();
    format!(
        "there is no recipe `{name}`; the built-in ones are {}; or give a TOML file",
        names.join(", ")
    )
}
