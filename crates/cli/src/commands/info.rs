//! `attentive info MODEL`

mod recurrent;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use attentive::hub::Wanted;
use attentive::model::checkpoint::{self, Description};
use attentive::model::{Model, ModelConfig, Operations, parameters};
use serde_json::{Value, json};

use crate::arguments::Info;
use crate::model_folder;

/// Describes a model. The weights are not read.
pub fn run(arguments: Info) -> Result<ExitCode> {
    let folder = model_folder::find(&arguments.model, Wanted::Description)?;
    if checkpoint::is_recurrent(&folder) {
        recurrent::describe(&folder, arguments.json, &mut std::io::stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    let description = checkpoint::describe(&folder)?;
    let config = &description.config;
    let device = attentive::tensor::device("cpu")?;
    let model = Model::new(config, 0, &device)?;
    let mut exact: BTreeMap<&str, u128> = BTreeMap::new();
    for parameter in parameters(&model) {
        let count: u128 = parameter.shape.iter().map(|size| *size as u128).product();
        *exact.entry(part(&parameter.name)).or_default() += count;
    }
    let parts = countable(config, &exact).with_context(|| {
        let place = match folder.is_dir() {
            true => folder.join("config.json"),
            false => folder.clone(),
        };
        let place = place.display();
        format!("{place} describes a model that no machine can hold")
    })?;
    let numbers = Numbers {
        total: parts.values().sum(),
        parts,
        operations: config.operations(),
        cache: config.cacheable().then(|| Cache {
            per_token: config.cache_numbers().saturating_mul(4),
            constant: config.constant_cache_numbers().saturating_mul(4),
        }),
    };
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", words(&description, &numbers))?;
    } else {
        print(&mut out, &description, &numbers)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Bytes of a cache.
struct Cache {
    /// For each token.
    per_token: u64,
    /// At most, of the layers in which it stops growing.
    constant: u64,
}

/// What is counted of a model.
struct Numbers {
    parts: BTreeMap<&'static str, u64>,
    total: u64,
    operations: Operations,
    /// None where a layer can have no cache.
    cache: Option<Cache>,
}

/// The counts, if they and the operations that follow from them fit into 64 bits.
fn countable(
    config: &ModelConfig,
    exact: &BTreeMap<&'static str, u128>,
) -> Option<BTreeMap<&'static str, u64>> {
    // A weight takes four bytes and two operations. Sums of operations stop at the largest number.
    let most = u128::from(u64::MAX) / 16;
    let operations = config.operations();
    let fits = exact.values().sum::<u128>() <= most
        && operations.weights < u64::MAX
        && operations.attention < u64::MAX;
    fits.then(|| {
        let counts = exact.iter();
        counts.map(|(name, count)| (*name, *count as u64)).collect()
    })
}

fn words(description: &Description, numbers: &Numbers) -> Value {
    let Numbers {
        parts,
        total,
        operations,
        cache,
    } = numbers;
    json!({
        "model_type": description.model_type,
        "config": description.config,
        "layers": description.config.layers(),
        "parameters": { "total": total, "parts": parts },
        "memory": {
            "weights_bytes": 4 * total,
            "cache_bytes_per_token": cache.as_ref().map(|it| it.per_token),
            "constant_cache_bytes": cache.as_ref().map(|it| it.constant),
        },
        "operations_per_token": { "weights": operations.weights, "attention": operations.attention },
    })
}

fn print(out: &mut impl Write, description: &Description, numbers: &Numbers) -> Result<()> {
    let config = &description.config;
    writeln!(out, "architecture   {}", description.model_type)?;
    writeln!(out, "               {}", shape(config))?;
    for (index, block) in config.blocks.iter().enumerate() {
        let title = if index == 0 { "blocks" } else { "" };
        writeln!(
            out,
            "{title:14} {} × ({}; {}; {} norm {})",
            block.repeat,
            block.attention.describe(config.width),
            block.feed_forward.describe(),
            word(&json!(block.norm)["kind"]),
            word(&json!(block.placement)),
        )?;
    }
    let total = numbers.total;
    writeln!(out, "parameters     {}", grouped(total))?;
    for (name, count) in &numbers.parts {
        let share = 100.0 * *count as f64 / total as f64;
        writeln!(out, "  {name:14} {:>14}  {share:5.1} %", grouped(*count))?;
    }
    writeln!(out, "memory         {} of weights (f32)", bytes(4 * total))?;
    match &numbers.cache {
        Some(Cache {
            per_token,
            constant,
        }) => {
            if *per_token > 0 {
                writeln!(
                    out,
                    "               {} of cache per token",
                    bytes(*per_token)
                )?;
            }
            if *constant > 0 {
                let constant = bytes(*constant);
                writeln!(
                    out,
                    "               at most {constant} of cache however many tokens"
                )?;
            }
        }
        None => writeln!(
            out,
            "               no cache: the whole sequence is read again for each token"
        )?,
    }
    let operations = &numbers.operations;
    writeln!(
        out,
        "operations     {} per token with the weights",
        grouped(operations.weights)
    )?;
    writeln!(
        out,
        "               {} per token in attention, at length {}",
        grouped(operations.attention),
        config.length
    )?;
    Ok(())
}

/// Which part of a model a parameter belongs to.
fn part(name: &str) -> &'static str {
    let has = |word: &str| name.split('.').any(|it| it == word);
    if name.contains("norm") {
        "norms"
    } else if has("attention") || has("cross") {
        "attention"
    } else if has("feed_forward") {
        "feed-forward"
    } else if ["words", "pooler", "classes", "labels"]
        .into_iter()
        .any(has)
    {
        "head"
    } else {
        "embeddings"
    }
}

fn shape(config: &ModelConfig) -> String {
    let reads = match &config.patches {
        Some(patches) => format!(
            "pictures of {} x {} in patches of {}",
            patches.height, patches.width, patches.size
        ),
        None => format!("vocabulary {}", config.vocabulary),
    };
    let own = format!(
        "{} layers, width {}, {reads}, length {}, {} positions, {}",
        config.layers(),
        config.width,
        config.length,
        word(&json!(config.positions)["kind"]),
        heads(config),
    );
    match &config.encoder {
        Some(encoder) => format!("{own}; encoder: {}", shape(encoder)),
        None => own,
    }
}

/// What reads the hidden states.
fn heads(config: &ModelConfig) -> String {
    let words = config.head.words().map(|words| match words.tied {
        true => "tied head".to_owned(),
        false => "separate head".to_owned(),
    });
    let classes = (config.classes.as_ref()).map(|it| format!("{} classes", it.classes));
    let labels = (config.labels.as_ref()).map(|it| format!("{} labels", it.labels));
    let all: Vec<String> = [words, classes, labels].into_iter().flatten().collect();
    match all.as_slice() {
        [] => "no head".to_owned(),
        all => all.join(", "),
    }
}

/// The name that a setting has in a recipe.
fn word(value: &serde_json::Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn bytes(count: u64) -> String {
    match count {
        0..1024 => format!("{count} bytes"),
        1024..1_048_576 => format!("{:.1} KiB", count as f64 / 1024.0),
        _ => format!("{:.1} MiB", count as f64 / 1_048_576.0),
    }
}
