//! `attentive embed MODEL TEXT…`

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use attentive::hub::Wanted;
use attentive::tasks::{EmbedConfig, Pooling, SentenceFolder, Text, embed};
use serde_json::json;

use super::reading::{Reader, texts};
use crate::arguments::{Embed, PoolingArgument};
use crate::model_folder;

/// Makes vectors of texts.
pub fn run(arguments: Embed) -> Result<ExitCode> {
    let place = model_folder::find(&arguments.model, Wanted::Model)?;
    let folder = SentenceFolder::of(&place)?;
    let reader = Reader::load(&place, &arguments.input)?;
    let texts = texts(&arguments.input)?;
    let said = arguments.pooling.map(|pooling| match pooling {
        PoolingArgument::Mean => Pooling::Mean,
        PoolingArgument::Cls => Pooling::First,
        PoolingArgument::Last => Pooling::Last,
        PoolingArgument::Max => Pooling::Largest,
    });
    let config = EmbedConfig {
        pooling: said.unwrap_or(folder.map_or(Pooling::Mean, |folder| folder.pooling)),
        normalize: !arguments.no_normalize && folder.is_none_or(|folder| folder.normalize),
    };
    // Such folders are made for texts that are cut where they say.
    let longest = folder.and_then(|folder| folder.longest);
    let mut out = std::io::stdout().lock();
    let mut all = Vec::new();
    for (chunk, texts) in texts.chunks(reader.chunk()).enumerate() {
        let inputs: Vec<Text> = texts.iter().map(|it| it.as_str().into()).collect();
        let vectors = embed(reader.batches(chunk, longest), config, &inputs)?;
        if arguments.similarity {
            all.extend(vectors);
            continue;
        }
        for (text, vector) in texts.iter().zip(vectors) {
            if arguments.input.json {
                writeln!(out, "{}", json!({ "text": text, "vector": vector }))?;
                continue;
            }
            let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
            writeln!(out, "{}", numbers.join(" "))?;
        }
    }
    if arguments.similarity {
        show_similarities(&mut out, &texts, &all, arguments.input.json)?;
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

/// The cosine of the angle between two vectors; zero where one has no length.
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
