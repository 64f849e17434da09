//! `attentive forward MODEL --inputs IN --save OUT`, with Hugging Face's tensor names.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use attentive::checkpoint::{self, NamedOutputs, RequestedOutputs, TensorFile, write_tensors};
use attentive::hub::FileSet;
use serde_json::{Map, Value, json};

use crate::arguments::Forward;
use crate::failure::Usage;
use crate::model_folder;

/// Runs one forward pass.
pub fn run(arguments: Forward) -> Result<ExitCode> {
    let folder = model_folder::find(&arguments.model.model, FileSet::Model)?;
    check_save_path(&arguments, &folder)?;
    let requested = RequestedOutputs {
        hidden_states: arguments.hidden_states,
        attentions: arguments.attentions,
        past_key_values: arguments.past_key_values,
    };
    let open = || TensorFile::open(&arguments.inputs);
    let tensors = if checkpoint::is_recurrent(&folder) {
        check_requested(requested)?;
        let device = attentive::tensor::device(&arguments.model.device.device)?;
        let (model, _) = checkpoint::load_recurrent(&folder, &device)?;
        let inputs = open()?;
        check_names(&inputs, &checkpoint::RECURRENT_INPUTS)?;
        checkpoint::forward_recurrent(&model, &inputs, "", requested)?
    } else {
        let model = model_folder::load(&arguments.model)?;
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

/// Refuses outputs that a recurrent encoder-decoder does not have.
fn check_requested(requested: RequestedOutputs) -> Result<(), Usage> {
    let options = [
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

/// Refuses to overwrite the inputs or a file of the model.
fn check_save_path(arguments: &Forward, model: &Path) -> Result<(), Usage> {
    let canonical = |path: &Path| path.canonicalize().ok();
    let Some(save) = canonical(&arguments.save) else {
        return Ok(());
    };
    // Files of the hub cache are symlinks: both the link and its target count.
    let parent = std::path::absolute(&arguments.save).ok();
    let parent = parent.and_then(|path| canonical(path.parent()?));
    let is_in = |model: &Path| {
        save.starts_with(model) || parent.as_ref().is_some_and(|it| it.starts_with(model))
    };
    let what = if canonical(&arguments.inputs).is_some_and(|inputs| inputs == save) {
        "holds the inputs"
    } else if canonical(model).is_some_and(|model| is_in(&model)) {
        "is a file of the model"
    } else {
        return Ok(());
    };
    let path = arguments.save.display();
    Err(Usage(format!("--save: {path} {what}; name another file")))
}
