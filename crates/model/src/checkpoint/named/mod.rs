//! A pass in Hugging Face's words: named tensors in, named tensors out, so that both can be compared.

mod inputs;
mod output_names;
mod recurrent;
mod tensors;

use std::collections::BTreeMap;

use burn::tensor::TensorData;

use super::{CheckpointError, Description, LastState, TensorFile};
use crate::{
    AttentionSite, Cache, ClassScores, Extras, LabelsUse, Memory, Model, Output, PooledFrom,
    Recorder, Role, Site,
};
use inputs::Inputs;
use tensors::Tensors;

pub use inputs::inputs_of;
pub use output_names::OutputNames;
pub use recurrent::{RECURRENT_INPUTS, forward_recurrent};

/// What to give besides the heads' outputs and the last hidden state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The states after the embedding and after each block.
    pub hidden_states: bool,
    /// The weights of every attention.
    pub attentions: bool,
    /// The keys and values that a cache would hold.
    pub past_key_values: bool,
}

/// The tensors of one pass, by their names.
pub type Outputs = BTreeMap<String, TensorData>;

/// One pass over the inputs of a file whose names begin with `prefix`.
pub fn forward(
    model: &Model,
    description: &Description,
    file: &TensorFile,
    prefix: &str,
    wanted: Wanted,
) -> Result<Outputs, CheckpointError> {
    let inputs = Inputs {
        tensors: Tensors { file, prefix },
        model,
    };
    if wanted.past_key_values && !model.config().cacheable() {
        return inputs.tensors.wrong(
            "past_key_values are asked for, and no cache can serve this model; leave them out"
                .to_owned(),
        );
    }
    let mut outputs = Outputs::new();
    let end = description.last_state;
    let memory = match &model.config().encoder {
        Some(_) => Some(encode(model, &inputs, end, wanted, &mut outputs)?),
        None => inputs.memory()?,
    };
    let mut input = match memory.is_some() && model.config().encoder.is_some() {
        true => inputs.decoder()?,
        false => inputs.own()?,
    };
    if let (Some(memory), crate::Source::Ids(ids)) = (&memory, &input.source) {
        let (seen, own) = (memory.keys.dims()[0], ids.dims()[0]);
        if seen != own {
            return inputs.tensors.wrong(format!(
                "the decoder reads {own} rows and looks at {seen}; give as many of both"
            ));
        }
    }
    input.memory = memory;
    let from = model.config().pooler.as_ref().map(|it| it.from);
    if let (Some(PooledFrom::End), crate::Source::Ids(ids)) = (from, &input.source)
        && ids.dims()[0] > 1
    {
        return inputs.tensors.wrong(format!(
            "there are {} rows, and config.json names no pad_token_id by which the last token of each is found; give one row, or add it",
            ids.dims()[0]
        ));
    }
    let mut recorder = recorder(wanted);
    let mut cache = wanted.past_key_values.then(Cache::new);
    let output = model.forward(
        input,
        Extras {
            cache: cache.as_mut(),
            observer: watched(wanted).then_some(&mut recorder),
            ..Extras::default()
        },
    );
    let own = match &model.config().encoder {
        Some(_) => "decoder_",
        None => "",
    };
    put_recorded(&mut outputs, own, recorder, model.config().layers(), end);
    put_heads(&mut outputs, model, &description.outputs, output);
    for (layer, held) in cache.iter().flat_map(Cache::held).enumerate() {
        for (name, tensor) in ["key", "value"].into_iter().zip(held) {
            let name = format!("past_key_values.{layer}.{name}");
            outputs.insert(name, tensor.into_data());
        }
    }
    if !wanted.hidden_states {
        outputs.retain(|name, _| !name.contains("hidden_states."));
    }
    Ok(outputs)
}

fn encode(
    model: &Model,
    inputs: &Inputs,
    end: LastState,
    wanted: Wanted,
    outputs: &mut Outputs,
) -> Result<Memory, CheckpointError> {
    let mut recorder = recorder(wanted);
    // The states before they are mapped to the decoder's width are seen by nobody but an observer.
    let extras = Extras {
        observer: Some(&mut recorder),
        ..Extras::default()
    };
    let memory = model.encode(inputs.encoder()?, extras);
    if let Some((_, last)) = recorder.hidden.last() {
        let last = last.to_data();
        outputs.insert("encoder_last_hidden_state".to_owned(), last);
    }
    let layers = model.config().encoder.as_ref().map_or(0, |it| it.layers());
    put_recorded(outputs, "encoder_", recorder, layers, end);
    Ok(memory)
}

fn watched(wanted: Wanted) -> bool {
    wanted.hidden_states || wanted.attentions
}

fn recorder(wanted: Wanted) -> Recorder {
    Recorder {
        keep_weights: wanted.attentions,
        ..Recorder::default()
    }
}

/// Puts what was seen of one stack under its names.
fn put_recorded(
    outputs: &mut Outputs,
    stack: &str,
    recorder: Recorder,
    layers: usize,
    end: LastState,
) {
    let skipped = match end {
        LastState::Normed => Site::Block {
            layer: layers.saturating_sub(1),
        },
        LastState::OfLastBlock => Site::Final,
    };
    let states = recorder.hidden.into_iter();
    for (i, (_, state)) in states.filter(|(site, _)| *site != skipped).enumerate() {
        outputs.insert(format!("{stack}hidden_states.{i}"), state.into_data());
    }
    for (AttentionSite { layer, role }, weights) in recorder.weights {
        let kind = match role {
            Role::Cross => "cross_",
            Role::Bidirectional | Role::Causal => stack,
        };
        outputs.insert(format!("{kind}attentions.{layer}"), weights.into_data());
    }
}

fn put_heads(outputs: &mut Outputs, model: &Model, names: &OutputNames, output: Output) {
    let config = model.config();
    let mut put = |name: &str, data: TensorData| outputs.insert(name.to_owned(), data);
    put("last_hidden_state", output.hidden.into_data());
    if let (Some(name), Some(pooled)) = (names.pooled, output.pooled) {
        put(name, pooled.into_data());
    }
    if let Some(scores) = output.words {
        put(names.words, scores.into_data());
    }
    if let Some(scores) = output.classes {
        if let ClassScores::WithTeacher { own, teacher } = &scores {
            put("cls_logits", own.to_data());
            put("distillation_logits", teacher.to_data());
        }
        put(names.classes, scores.mean().into_data());
    }
    let about = config.labels.as_ref().map(|labels| labels.about);
    match (output.labels, about) {
        (Some(scores), Some(LabelsUse::Answers)) => {
            let [batch, length, _] = scores.dims();
            for (i, name) in ["start_logits", "end_logits"].into_iter().enumerate() {
                let scores = scores.clone().narrow(2, i, 1).reshape([batch, length]);
                put(name, scores.into_data());
            }
        }
        (Some(scores), _) => {
            put("logits", scores.into_data());
        }
        (None, _) => {}
    }
}
