//! A forward pass of a recurrent encoder-decoder, in Hugging Face's names for transformers.

use super::super::{CheckpointError, TensorFile};
use super::input_tensors::InputTensors;
use super::{NamedOutputs, RequestedOutputs};
use attentive_model::Recorder;
use attentive_recurrent::{Recurrent, RecurrentOptions, Sequences};

/// The inputs of a recurrent encoder-decoder.
pub const RECURRENT_INPUTS: [&str; 4] = [
    "input_ids",
    "attention_mask",
    "decoder_input_ids",
    "decoder_attention_mask",
];

/// One forward pass over the inputs of a file whose names start with `prefix`: the logits, the last hidden states of
/// encoder and decoder and, if requested, the attention weights. There are no other hidden states and no KV cache.
pub fn forward_recurrent(
    model: &Recurrent,
    file: &TensorFile,
    prefix: &str,
    requested: RequestedOutputs,
) -> Result<NamedOutputs, CheckpointError> {
    let tensors = InputTensors { file, prefix };
    for (is_requested, name) in [
        (requested.hidden_states, "hidden_states"),
        (requested.past_key_values, "past_key_values"),
    ] {
        if is_requested {
            return tensors.error(format!(
                "{name} are requested, and a recurrent encoder-decoder has none; leave them out"
            ));
        }
    }
    let config = model.config();
    let [ids, mask, decoder_ids, decoder_mask] = RECURRENT_INPUTS;
    let read = |ids: &str, mask: &str, vocabulary: usize| {
        let ids = tensors.ids(ids, vocabulary, config.length)?;
        let non_padding = tensors.mask_ranges(mask, ids.shape)?;
        let ids = ids.tensor(&model.device());
        Ok::<_, CheckpointError>(Sequences { ids, non_padding })
    };
    let source = read(ids, mask, config.source_vocabulary)?;
    let target = read(decoder_ids, decoder_mask, config.target_vocabulary)?;
    let (encoder_batch, batch) = (source.ids.dims()[0], target.ids.dims()[0]);
    if encoder_batch != batch {
        return tensors.error(format!(
            "the decoder has a batch of {batch} and the encoder of {encoder_batch}; they must be equal"
        ));
    }
    let mut recorder = Recorder {
        record_weights: requested.attentions,
        ..Recorder::default()
    };
    let options = RecurrentOptions {
        observer: Some(&mut recorder),
        randomness: None,
    };
    let encoded = model.encode(&source, RecurrentOptions::default());
    let first = encoded.initial_state.clone();
    let decoded = model.decode(&target, &encoded, first, options);
    let outputs = [
        (
            "encoder_last_hidden_state",
            Some(encoded.states.into_data()),
        ),
        ("last_hidden_state", Some(decoded.hidden.into_data())),
        ("logits", Some(decoded.logits.into_data())),
        (
            "cross_attentions.0",
            decoded.weights.map(|it| it.into_data()),
        ),
    ];
    let outputs = outputs.into_iter();
    Ok(outputs
        .filter_map(|(name, data)| Some((name.to_owned(), data?)))
        .collect())
}
