//! A forward pass in Hugging Face's names: named tensors in, named tensors out, for comparison with transformers.

mod input_tensors;
mod inputs;
mod output_names;
mod recurrent;

use std::collections::BTreeMap;

use burn::tensor::TensorData;

use super::{CheckpointError, Description, LastHiddenState, TensorFile};
use attentive_model::attention::{Memory, Role};
use attentive_model::head::{ClassLogits, PooledFrom, TokenTask};
use attentive_model::{AttentionSite, Cache, ForwardOptions, Model, Output, Recorder, Site};
use input_tensors::InputTensors;
use inputs::ModelInputs;

pub use inputs::input_names;
pub use output_names::OutputNames;
pub use recurrent::{RECURRENT_INPUTS, forward_recurrent};

/// The outputs to return besides those of the heads and the last hidden state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestedOutputs {
    /// The hidden states after the embedding and after each block.
    pub hidden_states: bool,
    /// The attention weights of every layer.
    pub attentions: bool,
    /// The keys and values in the cache.
    pub past_key_values: bool,
}

/// The tensors of a forward pass, by name.
pub type NamedOutputs = BTreeMap<String, TensorData>;

/// One forward pass over the inputs of a file whose names start with `prefix`.
pub fn forward(
    model: &Model,
    description: &Description,
    file: &TensorFile,
    prefix: &str,
    requested: RequestedOutputs,
) -> Result<NamedOutputs, CheckpointError> {
    let inputs = ModelInputs {
        tensors: InputTensors { file, prefix },
        model,
    };
    if requested.past_key_values && !model.config().stack.cacheable() {
        return inputs.tensors.error(
            "past_key_values are requested, and this model has no KV cache; leave them out"
                .to_owned(),
        );
    }
    let mut outputs = NamedOutputs::new();
    let last_hidden_state = description.last_hidden_state;
    let memory = match &model.config().encoder {
        Some(_) => Some(encode(
            model,
            &inputs,
            last_hidden_state,
            requested,
            &mut outputs,
        )?),
        None => inputs.memory()?,
    };
    let mut input = match memory.is_some() && model.config().encoder.is_some() {
        true => inputs.decoder()?,
        false => inputs.single_stack()?,
    };
    if let (Some(memory), attentive_model::InputData::Ids(ids)) = (&memory, &input.data) {
        let (encoder_batch, batch) = (memory.keys.dims()[0], ids.dims()[0]);
        if encoder_batch != batch {
            return inputs.tensors.error(format!(
                "the decoder has a batch of {batch} and the encoder of {encoder_batch}; they must be equal"
            ));
        }
    }
    input.memory = memory;
    let from = model.config().pooler.as_ref().map(|it| it.from);
    if let (Some(PooledFrom::End), attentive_model::InputData::Ids(ids)) = (from, &input.data)
        && ids.dims()[0] > 1
    {
        return inputs.tensors.error(format!(
            "there are {} rows, and config.json has no pad_token_id, which locates the last token of each; give one row, or add it",
            ids.dims()[0]
        ));
    }
    let mut recorder = recorder(requested);
    let mut cache = requested.past_key_values.then(Cache::new);
    let output = model.forward(
        input,
        ForwardOptions {
            cache: cache.as_mut(),
            observer: needs_recorder(requested).then_some(&mut recorder),
            ..ForwardOptions::default()
        },
    );
    let stack = match &model.config().encoder {
        Some(_) => "decoder_",
        None => "",
    };
    add_recorded(
        &mut outputs,
        stack,
        recorder,
        model.config().stack.layers(),
        last_hidden_state,
    );
    add_head_outputs(&mut outputs, model, &description.outputs, output);
    for (layer, pair) in cache.iter().flat_map(Cache::cached_key_values).enumerate() {
        for (name, tensor) in ["key", "value"].into_iter().zip(pair) {
            let name = format!("past_key_values.{layer}.{name}");
            outputs.insert(name, tensor.into_data());
        }
    }
    if !requested.hidden_states {
        outputs.retain(|name, _| !name.contains("hidden_states."));
    }
    Ok(outputs)
}

fn encode(
    model: &Model,
    inputs: &ModelInputs,
    last_hidden_state: LastHiddenState,
    requested: RequestedOutputs,
    outputs: &mut NamedOutputs,
) -> Result<Memory, CheckpointError> {
    let mut recorder = recorder(requested);
    // Only an observer sees the hidden states before they are projected to the decoder's width.
    let options = ForwardOptions {
        observer: Some(&mut recorder),
        ..ForwardOptions::default()
    };
    let memory = model.encode(inputs.encoder()?, options);
    if let Some((_, last)) = recorder.hidden.last() {
        let last = last.to_data();
        outputs.insert("encoder_last_hidden_state".to_owned(), last);
    }
    let layers = model.config().encoder.as_ref().map_or(0, |it| it.layers());
    add_recorded(outputs, "encoder_", recorder, layers, last_hidden_state);
    Ok(memory)
}

fn needs_recorder(requested: RequestedOutputs) -> bool {
    requested.hidden_states || requested.attentions
}

fn recorder(requested: RequestedOutputs) -> Recorder {
    Recorder {
        record_weights: requested.attentions,
        ..Recorder::default()
    }
}

/// Adds what was recorded of one stack under its names.
fn add_recorded(
    outputs: &mut NamedOutputs,
    stack: &str,
    recorder: Recorder,
    layers: usize,
    last_hidden_state: LastHiddenState,
) {
    let skipped = match last_hidden_state {
        LastHiddenState::AfterFinalNorm => Site::Block {
            layer: layers.saturating_sub(1),
        },
        LastHiddenState::BeforeFinalNorm => Site::Final,
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

fn add_head_outputs(
    outputs: &mut NamedOutputs,
    model: &Model,
    names: &OutputNames,
    output: Output,
) {
    let config = model.config();
    let mut add = |name: &str, data: TensorData| outputs.insert(name.to_owned(), data);
    add("last_hidden_state", output.hidden.into_data());
    if let (Some(name), Some(pooled)) = (names.pooler_output, output.pooled) {
        add(name, pooled.into_data());
    }
    if let Some(logits) = output.logits {
        add(names.logits, logits.into_data());
    }
    if let Some(logits) = output.class_logits {
        if let ClassLogits::Distilled {
            class,
            distillation,
        } = &logits
        {
            add("cls_logits", class.to_data());
            add("distillation_logits", distillation.to_data());
        }
        add(names.class_logits, logits.mean().into_data());
    }
    let task = config.token_classifier.as_ref().map(|labels| labels.task);
    match (output.token_logits, task) {
        (Some(logits), Some(TokenTask::Span)) => {
            let [batch, length, _] = logits.dims();
            for (i, name) in ["start_logits", "end_logits"].into_iter().enumerate() {
                let logits = logits.clone().narrow(2, i, 1).reshape([batch, length]);
                add(name, logits.into_data());
            }
        }
        (Some(logits), _) => {
            add("logits", logits.into_data());
        }
        (None, _) => {}
    }
}
