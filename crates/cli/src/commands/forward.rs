//! `attentive forward MODEL --inputs IN --save OUT`, with Hugging Face's tensor names.

use std::collections::HashMap;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, bail};
use attentive::checkpoint::{self, NamedOutputs, RequestedOutputs, TensorFile, write_tensors};
use attentive::hub::FileSet;
use serde_json::{Map, Value, json};

use crate::arguments::Forward;
use crate::failure::Usage;
use crate::{model_folder, save_path};

/// Runs one forward pass.
pub fn run(arguments: Forward) -> Result<ExitCode> {
    let folder = model_folder::find(&arguments.model.model, FileSet::Model)?;
    save_path::check("--save", &arguments.save, &folder)?;
    save_path::check_not_input("--save", &arguments.save, &arguments.inputs)?;
    let requested = RequestedOutputs {
        hidden_states: arguments.hidden_states,
        attentions: arguments.attentions,
        past_key_values: arguments.past_key_values,
    };
    let open = || TensorFile::open(&arguments.inputs);
    let tensors = if checkpoint::is_recurrent(&folder) {
        check_requested(&arguments, requested)?;
        let device = attentive::tensor::device(&arguments.model.device.device)?;
        let (model, _) = checkpoint::load_recurrent(&folder, &device)?;
        let inputs = open()?;
        check_names(&inputs, &checkpoint::RECURRENT_INPUTS)?;
        checkpoint::forward_recurrent(&model, &inputs, "", requested)?
    } else {
        let model = model_folder::load(&arguments.model, None)?;
        model.forward(&open()?).requested(requested).run()?
    };
    let shapes = shapes(&tensors);
    write_tensors(&arguments.save, tensors, HashMap::new())?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let json = json!({ "save": arguments.save, "tensors": Value::Object(shapes) });
        writeln!(out, "{json}")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "saved {}", arguments.save.display())?;
    for (name, shape) in shapes {
        writeln!(out, "  {name}  {shape}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The shape of each output.
fn shapes(tensors: &NamedOutputs) -> Map<String, Value> {
    let shapes = tensors.iter();
    shapes
        .map(|(name, tensor)| (name.clone(), json!(tensor.shape().to_vec())))
        .collect()
}

/// Refuses options and outputs that a recurrent encoder-decoder does not have.
fn check_requested(arguments: &Forward, requested: RequestedOutputs) -> Result<(), Usage> {
    let options = [
        ("--model-type", arguments.model.model_type.is_some()),
        ("--config", arguments.model.config.is_some()),
        ("--hidden-states", requested.hidden_states),
        ("--past-key-values", requested.past_key_values),
    ];
    match options.into_iter().find(|(_, asked)| *asked) {
        Some((option, _)) => Err(Usage(format!(
            "{option}: a recurrent encoder-decoder has none; leave it out"
        ))),
        None => Ok(()),
    }
}

/// Refuses inputs that a recurrent encoder-decoder does not read.
fn check_names(inputs: &TensorFile, known: &[&str]) -> Result<()> {
    let unknown = |name: &String| !known.contains(&name.as_str());
    if let Some(name) = inputs.names().into_iter().find(unknown) {
        let (path, name) = (inputs.path().display(), name.escape_debug());
        let known = known.join(", ");
        bail!("{path}: the model has no input `{name}`; its inputs are {known}");
    }
    Ok(())
}
