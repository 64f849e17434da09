//! `attentive embed MODEL TEXT…`

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use super::reading::Reader;
use crate::arguments::Embed;
use crate::vectors::VectorFile;
use crate::{model_folder, save_path};

/// Embeds texts.
pub fn run(arguments: Embed) -> Result<ExitCode> {
    let mut file = (arguments.output.as_deref())
        .map(VectorFile::create)
        .transpose()?;
    let model = model_folder::load_without_heads(&arguments.model, &arguments.tokenizer)?;
    if let Some(path) = &arguments.output {
        save_path::check("--output", path, model.path())?;
    }
    let mut reader = Reader::of(&arguments.input)?;
    let mut out = std::io::stdout().lock();
    let mut all = Vec::new();
    while let Some((texts, batch)) = reader.next_chunk() {
        let mut request = model.embed(texts).batch(batch);
        if let Some(pooling) = arguments.pooling {
            request = request.pooling(pooling.into());
        }
        if arguments.no_normalize {
            request = request.normalize(false);
        }
        let vectors = request.run()?;
        if arguments.similarity {
            all.extend(vectors);
            continue;
        }
        for (text, vector) in texts.iter().zip(vectors) {
            if let Some(file) = &mut file {
                file.push(text, &vector);
            } else if arguments.input.json {
                writeln!(out, "{}", json!({ "text": text, "vector": vector }))?;
            } else {
                let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
                writeln!(out, "{}", numbers.join(" "))?;
            }
        }
    }
    if arguments.similarity {
        show_similarities(&mut out, reader.texts(), &all, arguments.input.json)?;
    }
    if let Some(file) = file {
        let saved = file.finish()?;
        writeln!(out, "{saved}")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show_similarities(
    out: &mut impl Write,
    texts: &[String],
    vectors: &[Vec<f32>],
    as_json: bool,
) -> Result<()> {
    for (text, vector) in texts.iter().zip(vectors) {
        let cosines: Vec<f64> = vectors.iter().map(|other| cosine(vector, other)).collect();
        if as_json {
            writeln!(out, "{}", json!({ "text": text, "similarities": cosines }))?;
            continue;
        }
        let numbers: Vec<String> = cosines.iter().map(|it| format!("{it:>7.4}")).collect();
        writeln!(out, "{}  {text}", numbers.join(" "))?;
    }
    Ok(())
}

/// Cosine similarity; zero if a vector is zero.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let pairs = a.iter().zip(b);
        pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    match lengths > 0.0 {
        true => dot(a, b) / lengths,
        false => 0.0,
    }
}
