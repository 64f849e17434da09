//! A pass of a recurrent encoder-decoder, under the names that Hugging Face has for the like of transformers.

use super::super::{CheckpointError, TensorFile};
use super::tensors::Tensors;
use super::{Outputs, Wanted};
use crate::Recorder;
use crate::recurrent::{Recurrent, RecurrentExtras, Sequences};

/// The inputs that a recurrent encoder-decoder reads.
pub const RECURRENT_INPUTS: [&str; 4] = [
    "input_ids",
    "attention_mask",
    "decoder_input_ids",
    "decoder_attention_mask",
];

/// One pass over the inputs of a file whose names begin with `prefix`: the scores, what they are made from, what the encoder
/// gives and, if asked for, where the decoder looks. There are no layers of hidden states, and no keys and values, to give.
pub fn forward_recurrent(
    model: &Recurrent,
    file: &TensorFile,
    prefix: &str,
    wanted: Wanted,
) -> Result<Outputs, CheckpointError> {
    let tensors = Tensors { file, prefix };
    for (asked, name) in [
        (wanted.hidden_states, "hidden_states"),
        (wanted.past_key_values, "past_key_values"),
    ] {
        if asked {
            return tensors.wrong(format!(
                "{name} are asked for, and a recurrent encoder-decoder has none; leave them out"
            ));
        }
    }
    let config = model.config();
    let [ids, mask, decoder_ids, decoder_mask] = RECURRENT_INPUTS;
    let read = |ids: &str, mask: &str, vocabulary: usize| {
        let ids = tensors.ids(ids, vocabulary, config.length)?;
        let real = tensors.real(mask, ids.shape)?;
        let ids = ids.tensor(&model.device());
        Ok::<_, CheckpointError>(Sequences { ids, real })
    };
    let source = read(ids, mask, config.source_vocabulary)?;
    let target = read(decoder_ids, decoder_mask, config.target_vocabulary)?;
    let (seen, own) = (source.ids.dims()[0], target.ids.dims()[0]);
    if seen != own {
        return tensors.wrong(format!(
            "the decoder reads {own} rows and looks at {seen}; give as many of both"
        ));
    }
    let mut recorder = Recorder {
        keep_weights: wanted.attentions,
        ..Recorder::default()
    };
    let extras = RecurrentExtras {
        observer: Some(&mut recorder),
        randomness: None,
    };
    let encoded = model.encode(&source, RecurrentExtras::default());
    let first = encoded.first.clone();
    let decoded = model.decode(&target, &encoded, first, extras);
    let given = [
        (
            "encoder_last_hidden_state",
            Some(encoded.states.into_data()),
        ),
        ("last_hidden_state", Some(decoded.hidden.into_data())),
        ("logits", Some(decoded.words.into_data())),
        (
            "cross_attentions.0",
            decoded.weights.map(|it| it.into_data()),
        ),
    ];
    let given = given.into_iter();
    Ok(given
        .filter_map(|(name, data)| Some((name.to_owned(), data?)))
        .collect())
}
