//! `attentive embed MODEL TEXT…`

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use attentive::hub::FileSet;
use attentive::tasks::{EmbedConfig, Pooling, SentenceTransformersConfig, Text, embed};
use serde_json::json;

use super::reading::{Reader, texts};
use crate::arguments::{Embed, PoolingArgument};
use crate::model_folder;

/// Embeds texts.
pub fn run(arguments: Embed) -> Result<ExitCode> {
    let folder_path = model_folder::find(&arguments.model, FileSet::Model)?;
    let folder = SentenceTransformersConfig::from_folder(&folder_path)?;
    let reader = Reader::load(&folder_path, &arguments.input)?;
    let texts = texts(&arguments.input)?;
    let requested = arguments.pooling.map(|pooling| match pooling {
        PoolingArgument::Mean => Pooling::Mean,
        PoolingArgument::Cls => Pooling::Cls,
        PoolingArgument::Last => Pooling::LastToken,
        PoolingArgument::Max => Pooling::Max,
    });
    let config = EmbedConfig {
        pooling: requested.unwrap_or(folder.map_or(Pooling::Mean, |folder| folder.pooling)),
        normalize: !arguments.no_normalize && folder.is_none_or(|folder| folder.normalize),
    };
    // sentence-transformers truncates texts to the `max_seq_length` of the folder.
    let max_length = folder.and_then(|folder| folder.max_length);
    let mut out = std::io::stdout().lock();
    let mut all = Vec::new();
    for (chunk, texts) in texts.chunks(reader.chunk()).enumerate() {
        let inputs: Vec<Text> = texts.iter().map(|it| it.as_str().into()).collect();
        let vectors = embed(reader.batches(chunk, max_length), config, &inputs)?;
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
