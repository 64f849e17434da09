//! `attentive forward MODEL --inputs IN --save OUT`, in Hugging Face's words, so that both can be compared.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use attentive::hub::Wanted;
use attentive::model::checkpoint::{self, TensorFile, write_tensors};
use attentive::model::{Extras, Input, ModelConfig, Recorder};
use attentive::tensor::{Device, Int, Tensor, TensorData};

use crate::arguments::Forward;
use crate::failure::Usage;
use crate::model_folder;

const INPUTS: [&str; 3] = ["input_ids", "attention_mask", "position_ids"];

/// One pass from tensors to tensors.
pub fn run(arguments: Forward) -> Result<ExitCode> {
    let device = attentive::tensor::device(&arguments.device.device)?;
    let folder = model_folder::find(&arguments.model, Wanted::Model)?;
    check_place(&arguments, &folder)?;
    let (model, _) = checkpoint::load(&folder, &device)?;
    let input = read(&arguments.inputs, model.config(), &device)?;
    let mut recorder = Recorder {
        keep_weights: arguments.attentions,
        ..Recorder::default()
    };
    let watched = arguments.hidden_states || arguments.attentions;
    let extras = Extras {
        observer: if watched { Some(&mut recorder) } else { None },
        ..Extras::default()
    };
    let output = model.forward(input, extras);
    let mut tensors = BTreeMap::new();
    tensors.insert("logits".to_owned(), output.logits.into_data());
    tensors.insert("last_hidden_state".to_owned(), output.hidden.into_data());
    if arguments.hidden_states {
        // Hugging Face's last hidden state stands after the final norm, in the place of the last block's output.
        recorder.hidden.remove(model.config().layers());
        for (i, (_, hidden)) in recorder.hidden.into_iter().enumerate() {
            tensors.insert(format!("hidden_states.{i}"), hidden.into_data());
        }
    }
    for (i, weights) in recorder.weights.into_iter().enumerate() {
        tensors.insert(format!("attentions.{i}"), weights.into_data());
    }
    write_tensors(&arguments.save, tensors, HashMap::new())?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses to save over what the pass reads.
fn check_place(arguments: &Forward, model: &Path) -> Result<(), Usage> {
    let real = |path: &Path| path.canonicalize().ok();
    let Some(save) = real(&arguments.save) else {
        return Ok(());
    };
    // The files of a model of the hub are links: where one stands counts as well as where it leads.
    let stands = std::path::absolute(&arguments.save).ok();
    let stands = stands.and_then(|path| real(path.parent()?));
    let is_in = |model: &Path| {
        save.starts_with(model) || stands.as_ref().is_some_and(|it| it.starts_with(model))
    };
    let what = if real(&arguments.inputs).is_some_and(|inputs| inputs == save) {
        "holds the inputs"
    } else if real(model).is_some_and(|model| is_in(&model)) {
        "is a file of the model"
    } else {
        return Ok(());
    };
    let place = arguments.save.display();
    Err(Usage(format!("--save: {place} {what}; name another file")))
}

fn read(path: &Path, config: &ModelConfig, device: &Device) -> Result<Input> {
    let file = TensorFile::open(path)?;
    let place = path.display();
    let names = file.names();
    if let Some(name) = names.iter().find(|name| !INPUTS.contains(&name.as_str())) {
        let (name, inputs) = (name.escape_debug(), INPUTS.join(", "));
        bail!("{place}: there is no input `{name}`; the inputs are {inputs}");
    }
    let ids = read_ids(&file, path, config)?;
    let positions = read_positions(&file, path, config, ids.shape)?;
    let keys = match matrix(&file, path, "attention_mask")? {
        Some(mask) if mask.shape != ids.shape => {
            bail!(
                "{place}: attention_mask is {:?} and must be {:?}",
                mask.shape,
                ids.shape
            )
        }
        Some(mask) => Some(ranges(&mask, path)?),
        None => None,
    };
    Ok(Input {
        ids: ids.into_tensor(device),
        positions: positions.map(|positions| positions.into_tensor(device)),
        keys,
    })
}

fn read_ids(file: &TensorFile, path: &Path, config: &ModelConfig) -> Result<Matrix> {
    let place = path.display();
    let Some(ids) = matrix(file, path, "input_ids")? else {
        bail!("{place}: input_ids is missing; it must be whole numbers [batch, length]");
    };
    if let Some(id) = ids
        .numbers
        .iter()
        .find(|id| !(0..config.vocabulary as i64).contains(id))
    {
        bail!(
            "{place}: input_ids holds {id}, which is outside the vocabulary of {}",
            config.vocabulary
        );
    }
    let [_, length] = ids.shape;
    if length > config.length {
        bail!(
            "{place}: input_ids has length {length} and the model reads at most {}",
            config.length
        );
    }
    Ok(ids)
}

fn read_positions(
    file: &TensorFile,
    path: &Path,
    config: &ModelConfig,
    [batch, length]: [usize; 2],
) -> Result<Option<Matrix>> {
    let place = path.display();
    let positions = matrix(file, path, "position_ids")?;
    if let Some(positions) = &positions {
        let [rows, columns] = positions.shape;
        if columns != length || (rows != batch && rows != 1) {
            bail!(
                "{place}: position_ids is {:?} and must be [{batch}, {length}]",
                positions.shape
            );
        }
        let Some(most) = config.positions.countable(config.length) else {
            bail!(
                "{place}: position_ids are given, and this model goes by distances; leave them out"
            );
        };
        let most = most as i64;
        if let Some(position) = positions.numbers.iter().find(|it| !(0..most).contains(it)) {
            bail!(
                "{place}: position_ids holds {position}; positions are 0 to {}",
                most - 1
            );
        }
    }
    Ok(positions)
}

/// Whole numbers in rows and columns.
struct Matrix {
    numbers: Vec<i64>,
    shape: [usize; 2],
}

impl Matrix {
    fn into_tensor(self, device: &Device) -> Tensor<2, Int> {
        Tensor::from_data(TensorData::new(self.numbers, self.shape), device)
    }
}

fn matrix(file: &TensorFile, path: &Path, name: &str) -> Result<Option<Matrix>> {
    let Some(shape) = file.shape(name) else {
        return Ok(None);
    };
    let Ok(shape) = <[usize; 2]>::try_from(shape) else {
        bail!(
            "{}: {name} is {shape:?} and must be [batch, length]",
            path.display()
        );
    };
    if shape.contains(&0) {
        bail!(
            "{}: {name} is {shape:?}, which holds nothing",
            path.display()
        );
    }
    Ok(Some(Matrix {
        numbers: file.integers(name)?,
        shape,
    }))
}

/// The real positions of each row, which must stand together.
fn ranges(mask: &Matrix, path: &Path) -> Result<Vec<Range<usize>>> {
    let mut ranges = Vec::new();
    for (row, flags) in mask.numbers.chunks(mask.shape[1]).enumerate() {
        let start = flags.iter().position(|flag| *flag != 0).unwrap_or(0);
        let count = flags.iter().filter(|flag| **flag != 0).count();
        if flags[start..start + count].contains(&0) {
            bail!(
                "{}: attention_mask row {row} has gaps; its ones must stand together",
                path.display()
            );
        }
        ranges.push(start..start + count);
    }
    Ok(ranges)
}
