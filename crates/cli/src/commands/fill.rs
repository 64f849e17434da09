//! `attentive fill MODEL TEXT…`

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use attentive::tasks::MaskedToken;
use serde_json::{Value, json};

use super::reading::Reader;
use crate::arguments::Fill;
use crate::model_folder;

/// Predicts masked tokens.
pub fn run(arguments: Fill) -> Result<ExitCode> {
    let model = model_folder::load(&arguments.model, Some(&arguments.tokenizer))?;
    let mut reader = Reader::of(&arguments.input)?;
    let mut out = std::io::stdout().lock();
    while let Some((texts, batch)) = reader.next_chunk() {
        let found = model
            .fill(texts)
            .top(arguments.top as usize)
            .batch(batch)
            .run()?;
        for (text, masks) in texts.iter().zip(found) {
            match arguments.input.json {
                true => writeln!(out, "{}", to_json(text, &masks))?,
                false => show(&mut out, text, &masks)?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn to_json(text: &str, masks: &[MaskedToken]) -> Value {
    let mask = |mask: &MaskedToken| {
        let candidates: Vec<Value> = mask
            .candidates
            .iter()
            .map(|it| json!({ "token": it.token, "id": it.id, "probability": it.probability, "text": it.text }))
            .collect();
        json!({ "position": mask.position, "candidates": candidates })
    };
    json!({ "text": text, "masks": masks.iter().map(mask).collect::<Vec<_>>() })
}

fn show(out: &mut impl Write, text: &str, masks: &[MaskedToken]) -> Result<()> {
    for mask in masks {
        writeln!(out, "{text}  (token {})", mask.position)?;
        for candidate in &mask.candidates {
            writeln!(
                out,
                "  {:>6.2} %  {:<16} {}",
                100.0 * candidate.probability,
                candidate.token.escape_debug().to_string(),
                candidate.text
            )?;
        }
    }
    Ok(())
}
