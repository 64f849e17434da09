//! `attentive info` of a recurrent encoder-decoder.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Result, bail};
use attentive::checkpoint;
use attentive::model::parameters;
use attentive::recurrent::Recurrent;
use attentive::recurrent::{CellKind, Directions, RecurrentConfig};
use serde_json::json;

use super::{bytes, grouped};

/// Describes the model. The weights are not read.
pub fn describe(folder: &Path, as_json: bool, out: &mut impl Write) -> Result<()> {
    let (config, _) = checkpoint::describe_recurrent(folder)?;
    let device = attentive::tensor::device("cpu")?;
    let model = Recurrent::new(&config, 0, &device)?;
    let mut parts: BTreeMap<String, u64> = BTreeMap::new();
    for parameter in parameters(&model) {
        let part = parameter.name.split('.').next().unwrap_or_default();
        let sizes = parameter.shape.iter().map(|size| *size as u64);
        let count = sizes.fold(1, u64::saturating_mul);
        let sum = parts.entry(part.to_owned()).or_default();
        *sum = sum.saturating_add(count);
    }
    let total = parts.values().copied().fold(0, u64::saturating_add);
    if total > u64::MAX / 16 {
        let path = folder.join("config.json");
        let path = path.display();
        bail!("{path} describes a model too large for any machine");
    }
    if as_json {
        let json = json!({
            "model_type": checkpoint::RECURRENT_TYPE,
            "config": config,
            "layers": config.layers,
            "parameters": { "total": total, "parts": parts },
            "memory": { "weights_bytes": 4 * total },
        });
        writeln!(out, "{json}")?;
        return Ok(());
    }
    writeln!(out, "architecture   {}", checkpoint::RECURRENT_TYPE)?;
    writeln!(out, "               {}", shape(&config))?;
    writeln!(out, "parameters     {}", grouped(total))?;
    for (name, count) in &parts {
        let share = 100.0 * *count as f64 / total as f64;
        writeln!(out, "  {name:14} {:>14}  {share:5.1} %", grouped(*count))?;
    }
    writeln!(out, "memory         {} of weights (f32)", bytes(4 * total))?;
    Ok(())
}

fn shape(config: &RecurrentConfig) -> String {
    let cell = match config.cell {
        CellKind::Gru => "GRU",
        CellKind::Lstm => "LSTM",
    };
    let directions = match config.directions {
        Directions::Forward => "unidirectional",
        Directions::Both => "bidirectional",
    };
    format!(
        "{} {cell} layers, width {}, hidden width {}, {directions}, additive attention of width {}, vocabularies {} and {}, length {}",
        config.layers,
        config.width,
        config.hidden_width,
        config.attention_width,
        config.source_vocabulary,
        config.target_vocabulary,
        config.length,
    )
}
