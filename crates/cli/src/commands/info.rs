//! `attentive info MODEL`

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use attentive::model::{AttentionConfig, LanguageModel, ModelConfig, checkpoint, parameters};
use serde_json::json;

use crate::arguments::Info;

/// Describes a model. The weights are not read.
pub fn run(arguments: Info) -> Result<ExitCode> {
    let description = checkpoint::describe(&arguments.model)?;
    let config = &description.config;
    let device = attentive::tensor::device("cpu")?;
    let model = LanguageModel::new(config, 0, &device)?;
    let mut parts: BTreeMap<&str, usize> = BTreeMap::new();
    for parameter in parameters(&model) {
        let count: usize = parameter.shape.iter().product();
        *parts.entry(part(&parameter.name)).or_default() += count;
    }
    let total: usize = parts.values().sum();
    let operations = config.operations();
    let cache = cache_bytes(config);
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let words = json!({
            "model_type": description.model_type,
            "config": config,
            "layers": config.layers(),
            "parameters": { "total": total, "parts": parts },
            "memory": { "weights_bytes": 4 * total, "cache_bytes_per_token": cache },
            "operations_per_token": { "weights": operations.weights, "attention": operations.attention },
        });
        writeln!(out, "{words}")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "architecture   {}", description.model_type)?;
    writeln!(out, "               {}", shape(config))?;
    for (index, block) in config.blocks.iter().enumerate() {
        let title = if index == 0 { "blocks" } else { "" };
        let AttentionConfig::Full(attention) = &block.attention;
        writeln!(
            out,
            "{title:14} {} × (full attention, {} heads of width {}, {} key-value heads; {}; {} norm {})",
            block.repeat,
            attention.heads,
            attention.head_width(config.width),
            attention.key_value_heads(),
            feed_forward(&block.feed_forward),
            word(&json!(block.norm)["kind"]),
            word(&json!(block.placement)),
        )?;
    }
    writeln!(out, "parameters     {}", grouped(total as u64))?;
    for (name, count) in &parts {
        let share = 100.0 * *count as f64 / total as f64;
        writeln!(
            out,
            "  {name:14} {:>14}  {share:5.1} %",
            grouped(*count as u64)
        )?;
    }
    writeln!(
        out,
        "memory         {} of weights (f32)",
        bytes(4 * total as u64)
    )?;
    writeln!(out, "               {} of cache per token", bytes(cache))?;
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
    Ok(ExitCode::SUCCESS)
}

/// Which part of a model a parameter belongs to.
fn part(name: &str) -> &'static str {
    let has = |word: &str| name.split('.').any(|it| it == word);
    if name.contains("norm") {
        "norms"
    } else if has("attention") {
        "attention"
    } else if has("feed_forward") {
        "feed-forward"
    } else if has("head") {
        "head"
    } else {
        "embeddings"
    }
}

fn shape(config: &ModelConfig) -> String {
    format!(
        "{} layers, width {}, vocabulary {}, length {}, {} positions, {} head",
        config.layers(),
        config.width,
        config.vocabulary,
        config.length,
        word(&json!(config.positions)["kind"]),
        word(&json!(config.head)),
    )
}

fn feed_forward(config: &attentive::model::FeedForwardConfig) -> String {
    let words = json!(config);
    format!(
        "{} feed-forward of width {}, {}",
        word(&words["kind"]),
        config.hidden_width(),
        word(&words["activation"])
    )
}

/// The name that a setting has in a recipe.
fn word(value: &serde_json::Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Bytes of keys and values that one more token costs.
fn cache_bytes(config: &ModelConfig) -> u64 {
    let layer = |block: &attentive::model::BlockConfig| {
        let AttentionConfig::Full(attention) = &block.attention;
        2 * 4 * attention.key_value_heads() * attention.head_width(config.width)
    };
    config.layer_blocks().map(layer).sum::<usize>() as u64
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
