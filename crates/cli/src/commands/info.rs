//! `attentive info MODEL`

mod recurrent;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use attentive::checkpoint::{self, Description, LoadOptions};
use attentive::hub::FileSet;
use attentive::model::attention::Role;
use attentive::model::head::HeadConfig;
use attentive::model::{Flops, Model, ModelConfig, StackConfig, parameters};
use serde_json::{Value, json};

use crate::arguments::Info;
use crate::model_folder;

/// Describes a model. The weights are not read.
pub fn run(arguments: Info) -> Result<ExitCode> {
    let folder = model_folder::find(&arguments.model, FileSet::Config)?;
    if checkpoint::is_recurrent(&folder) {
        recurrent::describe(&folder, arguments.json, &mut std::io::stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = LoadOptions {
        model_type: arguments.model_type,
        config: arguments.config,
        ..LoadOptions::default()
    };
    let description = checkpoint::describe_with(&folder, &options)?;
    let config = &description.config;
    let device = attentive::tensor::device("cpu")?;
    let model = Model::new(config, 0, &device)?;
    let mut exact: BTreeMap<&str, u128> = BTreeMap::new();
    for parameter in parameters(&model) {
        let count: u128 = parameter.shape.iter().map(|size| *size as u128).product();
        *exact.entry(part(&parameter.name)).or_default() += count;
    }
    let parts = countable(config, &exact).with_context(|| {
        let path = match folder.is_dir() {
            true => folder.join("config.json"),
            false => folder.clone(),
        };
        let path = path.display();
        format!("{path} describes a model too large for any machine")
    })?;
    let statistics = Statistics {
        total: parts.values().sum(),
        parts,
        flops: config.flops(),
        cache: match config.stack.role {
            Role::Causal if config.stack.cacheable() => CacheUse::Bytes(Cache {
                per_token: config.stack.cache_values_per_token().saturating_mul(4),
                constant: config.stack.fixed_cache_values().saturating_mul(4),
            }),
            Role::Causal => CacheUse::Impossible,
            _ => CacheUse::NotADecoder,
        },
    };
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", to_json(&description, &statistics))?;
    } else {
        print(&mut out, &description, &statistics)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Bytes of the KV cache.
struct Cache {
    /// Per token.
    per_token: u64,
    /// Upper bound over the layers whose cache has a constant size.
    constant: u64,
}

/// How a model decodes.
enum CacheUse {
    /// With a KV cache.
    Bytes(Cache),
    /// Without: some layer cannot have one.
    Impossible,
    /// Not at all.
    NotADecoder,
}

impl CacheUse {
    fn bytes(&self) -> Option<&Cache> {
        match self {
            Self::Bytes(cache) => Some(cache),
            Self::Impossible | Self::NotADecoder => None,
        }
    }
}

/// Sizes and costs of a model.
struct Statistics {
    parts: BTreeMap<&'static str, u64>,
    total: u64,
    flops: Flops,
    cache: CacheUse,
}

/// The counts, if they and their FLOPs fit into 64 bits.
fn countable(
    config: &ModelConfig,
    exact: &BTreeMap<&'static str, u128>,
) -> Option<BTreeMap<&'static str, u64>> {
    // A weight takes four bytes and two FLOPs; sums of FLOPs saturate.
    let max = u128::from(u64::MAX) / 16;
    let flops = config.flops();
    let fits = exact.values().sum::<u128>() <= max
        && flops.weights < u64::MAX
        && flops.attention < u64::MAX;
    fits.then(|| {
        let counts = exact.iter();
        counts.map(|(name, count)| (*name, *count as u64)).collect()
    })
}

fn to_json(description: &Description, statistics: &Statistics) -> Value {
    let Statistics {
        parts,
        total,
        flops,
        cache,
    } = statistics;
    json!({
        "model_type": description.model_type,
        "config": description.config,
        "layers": description.config.stack.layers(),
        "parameters": { "total": total, "parts": parts },
        "memory": {
            "weights_bytes": 4 * total,
            "cache_bytes_per_token": cache.bytes().map(|it| it.per_token),
            "constant_cache_bytes": cache.bytes().map(|it| it.constant),
        },
        "flops_per_token": { "weights": flops.weights, "attention": flops.attention },
    })
}

fn print(out: &mut impl Write, description: &Description, statistics: &Statistics) -> Result<()> {
    let config = &description.config;
    writeln!(out, "architecture   {}", description.model_type)?;
    let (sizes, heads) = (shape(&config.stack), heads(config));
    writeln!(out, "               {sizes}, {heads}")?;
    if let Some(encoder) = &config.encoder {
        writeln!(out, "               encoder: {}", shape(encoder))?;
    }
    for (index, block) in config.stack.blocks.iter().enumerate() {
        let title = if index == 0 { "blocks" } else { "" };
        writeln!(
            out,
            "{title:14} {} × ({}; {}; {} norm {})",
            block.repeat,
            block.attention.describe(config.stack.width),
            block.feed_forward.describe(),
            word(&json!(block.norm)["kind"]),
            word(&json!(block.placement)),
        )?;
    }
    let total = statistics.total;
    writeln!(out, "parameters     {}", grouped(total))?;
    for (name, count) in &statistics.parts {
        let share = 100.0 * *count as f64 / total as f64;
        writeln!(out, "  {name:14} {:>14}  {share:5.1} %", grouped(*count))?;
    }
    writeln!(out, "memory         {} of weights (f32)", bytes(4 * total))?;
    match &statistics.cache {
        CacheUse::Bytes(Cache {
            per_token,
            constant,
        }) => {
            if *per_token > 0 {
                writeln!(
                    out,
                    "               {} of KV cache per token",
                    bytes(*per_token)
                )?;
            }
            if *constant > 0 {
                let constant = bytes(*constant);
                writeln!(
                    out,
                    "               at most {constant} of KV cache of constant size"
                )?;
            }
        }
        CacheUse::NotADecoder => {}
        CacheUse::Impossible => writeln!(
            out,
            "               no KV cache: each token needs a pass over the whole sequence"
        )?,
    }
    let flops = &statistics.flops;
    writeln!(
        out,
        "FLOPs          {} per token in weights",
        grouped(flops.weights)
    )?;
    writeln!(
        out,
        "               {} per token in attention, at length {}",
        grouped(flops.attention),
        config.stack.length
    )?;
    Ok(())
}

/// Which part of a model a parameter belongs to. All but the stacks and the bridge between them are heads.
fn part(name: &str) -> &'static str {
    let mut path = name.split('.');
    let root = path.next().unwrap_or_default();
    if name.contains("norm") {
        return "norms";
    }
    match root {
        "stack" | "encoder" => path
            .find_map(|field| match field {
                "attention" | "cross" => Some("attention"),
                "feed_forward" => Some("feed-forward"),
                _ => None,
            })
            .unwrap_or("embeddings"),
        // The projection of the encoder's output, which cross-attention reads.
        "bridge" => "attention",
        _ => "head",
    }
}

/// Describes the sizes of a stack.
fn shape(stack: &StackConfig) -> String {
    let reads = match &stack.patches {
        Some(patches) => format!(
            "images of {} x {} in patches of {}",
            patches.height, patches.width, patches.size
        ),
        None => format!("vocabulary {}", stack.vocabulary),
    };
    format!(
        "{} layers, width {}, {reads}, length {}, {} positions",
        stack.layers(),
        stack.width,
        stack.length,
        word(&json!(stack.positions)["kind"]),
    )
}

/// Describes the heads.
fn heads(config: &ModelConfig) -> String {
    // Every field is named, so that a new head cannot be forgotten here.
    let ModelConfig {
        stack: _,
        head,
        pooler,
        sequence_classifier,
        token_classifier,
        encoder: _,
    } = config;
    let lm_head = match head {
        HeadConfig::Tied | HeadConfig::Separate | HeadConfig::LmHead(_) => {
            head.lm_head().map(|it| match it.tied {
                true => "tied head".to_owned(),
                false => "separate head".to_owned(),
            })
        }
        HeadConfig::Adaptive(_) => Some("adaptive head".to_owned()),
        HeadConfig::None => None,
    };
    let classes = (sequence_classifier.as_ref()).map(|it| format!("{} classes", it.classes));
    let labels = (token_classifier.as_ref()).map(|it| format!("{} labels", it.labels));
    let pooler = (pooler.as_ref().filter(|_| sequence_classifier.is_none()))
        .map(|_| "pooled vectors".to_owned());
    let all: Vec<String> = [lm_head, pooler, classes, labels]
        .into_iter()
        .flatten()
        .collect();
    match all.as_slice() {
        [] => "no head".to_owned(),
        all => all.join(", "),
    }
}

/// The name of a setting in a recipe.
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
