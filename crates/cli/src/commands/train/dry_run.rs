//! `attentive train --dry-run`

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use attentive::training::Plan;
use serde_json::json;

/// Bytes per parameter while training: the weight, its gradient and the two moments of AdamW, in f32.
const BYTES_PER_PARAMETER: usize = 16;

/// Prints what a run would do.
pub fn describe(plan: &Plan, folder: &Path, as_json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let steps = plan.recipe.training.steps;
    let left = steps.saturating_sub(plan.first_step);
    let tokens = left as u128 * plan.tokens_per_step as u128;
    let epochs = tokens as f64 / plan.training_tokens.max(1) as f64;
    let bytes = BYTES_PER_PARAMETER * plan.parameters;
    if as_json {
        let json = json!({
            "folder": folder,
            "parameters": plan.parameters,
            "training_tokens": plan.training_tokens,
            "held_out_tokens": plan.held_out_tokens,
            "first_step": plan.first_step,
            "steps": steps,
            "tokens_per_step": plan.tokens_per_step,
            "epochs": epochs,
            "parameter_bytes": bytes,
        });
        writeln!(out, "{json}")?;
        return Ok(());
    }
    writeln!(out, "folder         {}", folder.display())?;
    writeln!(
        out,
        "data           {} training and {} held-out tokens",
        plan.training_tokens, plan.held_out_tokens
    )?;
    writeln!(out, "parameters     {}", plan.parameters)?;
    writeln!(
        out,
        "memory         {:.1} MiB for weights, gradients and moments; activations come on top",
        bytes as f64 / f64::from(1 << 20)
    )?;
    if plan.first_step > 0 {
        writeln!(out, "resumes        after step {}", plan.first_step)?;
    }
    writeln!(
        out,
        "steps          {left} of {} tokens, {epochs:.1} passes over the data",
        plan.tokens_per_step
    )?;
    writeln!(out, "nothing was trained (--dry-run)")?;
    Ok(())
}
