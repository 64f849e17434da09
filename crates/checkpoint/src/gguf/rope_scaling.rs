//! RoPE scaling in GGUF files: keys for linear scaling, a tensor of factors for Llama 3.1's.

use serde_json::{Value, json};

use super::Keys;
use super::llama::FREQUENCIES;
use crate::TensorFile;
use attentive_model::positions::{Llama3Scaling, RotaryConfig, RotaryScaling};

/// The largest relative error of a factor; factors are f32.
const TOLERANCE: f64 = 1e-4;

/// The scaling as Hugging Face's `rope_parameters`.
pub(super) fn scaling(keys: &Keys, tensors: &TensorFile) -> Result<Value, String> {
    let from_keys = linear(keys)?;
    let from_tensor = match tensors.shape(FREQUENCIES) {
        None => None,
        Some(_) => llama3(keys, tensors)?,
    };
    match (from_keys, from_tensor) {
        (Some(_), Some(_)) => Err(format!(
            "{} and the tensor {FREQUENCIES} both scale the positions; only one of them is supported",
            keys.name("rope.scaling.factor")
        )),
        (one, other) => Ok(one.or(other).unwrap_or(Value::Null)),
    }
}

/// Linear scaling. As in llama.cpp, a factor without a type is linear.
fn linear(keys: &Keys) -> Result<Option<Value>, String> {
    let key = "rope.scaling.type";
    let kind = keys.string(key)?;
    match kind.as_deref() {
        Some("none") => return Ok(None),
        None | Some("linear") => {}
        Some(other) => {
            return Err(format!(
                "{} {other:?} is not supported; supported are none, linear",
                keys.name(key)
            ));
        }
    }
    let older = keys.float("rope.scale_linear")?;
    let factor = keys.float("rope.scaling.factor")?.or(older);
    // Zero stands for a missing factor.
    let factor = factor.filter(|it| *it != 0.0 && *it != 1.0);
    Ok(factor.map(|it| json!({ "rope_type": "linear", "factor": it })))
}

/// Llama 3.1's scaling. The file has only the resulting factor of each frequency; the factors must be those of Llama 3.1's
/// settings.
fn llama3(keys: &Keys, tensors: &TensorFile) -> Result<Option<Value>, String> {
    let factors = tensors.floats(FREQUENCIES).unwrap_or_default();
    let factors: Vec<f64> = factors.into_iter().map(f64::from).collect();
    if !factors.is_empty() && factors.iter().all(|it| *it == 1.0) {
        return Ok(None);
    }
    let scaling = Llama3Scaling {
        factor: factors.iter().copied().fold(0.0, f64::max),
        original_length: 8192,
        low_frequency_factor: 1.0,
        high_frequency_factor: 4.0,
    };
    let parameters = json!({
        "rope_type": "llama3",
        "factor": scaling.factor,
        "original_max_position_embeddings": scaling.original_length,
        "low_freq_factor": scaling.low_frequency_factor,
        "high_freq_factor": scaling.high_frequency_factor,
    });
    let plain = RotaryConfig {
        theta: keys.float("rope.freq_base")?.unwrap_or(10_000.0),
        scaling: None,
    };
    let scaled = RotaryConfig {
        scaling: Some(RotaryScaling::Llama3(scaling)),
        ..plain.clone()
    };
    let frequencies = |config: &RotaryConfig| config.frequencies(2 * factors.len(), 0).frequencies;
    let expected = frequencies(&plain).into_iter().zip(frequencies(&scaled));
    let same = expected
        .map(|(plain, scaled)| plain / scaled)
        .zip(&factors)
        .all(|(expected, factor)| (factor / expected - 1.0).abs() < TOLERANCE);
    match same && !factors.is_empty() {
        true => Ok(Some(parameters)),
        false => Err(format!(
            "the RoPE scaling in the tensor {FREQUENCIES} is not supported; supported is Llama 3.1's with an original length of 8192"
        )),
    }
}
