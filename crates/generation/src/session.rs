//! A session: one sequence and the KV cache of its tokens.

use attentive_model::attention::Memory;
use attentive_model::{ForwardOptions, Input, Model, ids_tensor};

use crate::sequences::Sequences;

/// One sequence that a model continues.
#[derive(Debug)]
pub struct Session<'m> {
    sequences: Sequences<'m>,
    ids: Vec<u32>,
    /// Start of the context window in `ids`.
    start: usize,
}

impl<'m> Session<'m> {
    /// An empty session.
    pub fn new(model: &'m Model) -> Self {
        Self::from_sequences(Sequences::new(model, None))
    }

    /// A session of a decoder with cross-attention to `memory`: the output of [`encode`], or other hidden states.
    pub fn with_memory(model: &'m Model, memory: Memory) -> Self {
        Self::from_sequences(Sequences::new(model, Some(memory)))
    }

    fn from_sequences(sequences: Sequences<'m>) -> Self {
        Self {
            sequences,
            ids: Vec::new(),
            start: 0,
        }
    }

    /// All tokens so far.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Appends several tokens and returns the logits of the next one.
    ///
    /// When the model's length is reached, the cache is dropped and the newer half of the sequence is prefilled again: the
    /// model then has a shorter context, as at the start of its training windows. A decoder with cross-attention was never
    /// trained that way, so its sequences end at the model's length.
    ///
    /// # Panics
    /// When there are no tokens, or more than the model's length in one call, or in total with cross-attention.
    pub fn prefill(&mut self, ids: &[u32]) -> Vec<f32> {
        let length = self.sequences.model().config().stack.length;
        assert!(
            (1..=length).contains(&ids.len()),
            "session: cannot prefill {} tokens at once with length {length}",
            ids.len()
        );
        self.ids.extend_from_slice(ids);
        if self.ids.len() - self.start <= length {
            return self.sequences.forward(&[ids.to_vec()]);
        }
        assert!(
            !self.sequences.has_memory(),
            "session: {} tokens exceed length {length} of a decoder with cross-attention",
            self.ids.len()
        );
        self.start = self.ids.len() - (length / 2).max(ids.len());
        self.sequences.reset();
        self.sequences.forward(&[self.ids[self.start..].to_vec()])
    }

    /// Appends one token and returns the logits of the next one; see [`Session::prefill`].
    pub fn step(&mut self, id: u32) -> Vec<f32> {
        self.prefill(&[id])
    }
}

/// Encodes a batch of sources. Shorter ones are padded with `pad`, an id of the encoder's vocabulary, and masked.
///
/// # Panics
/// When the model has no encoder, or there are no sources.
pub fn encode(model: &Model, sources: &[Vec<u32>], pad: u32) -> Memory {
    let longest = sources.iter().map(Vec::len).max();
    let longest = longest.expect("encode: there are no sources");
    let padded = |source: &Vec<u32>| {
        let mut row = source.clone();
        row.resize(longest, pad);
        row
    };
    let rows: Vec<Vec<u32>> = sources.iter().map(padded).collect();
    let equal = sources.iter().all(|source| source.len() == longest);
    let input = Input {
        non_padding: (!equal).then(|| sources.iter().map(|source| 0..source.len()).collect()),
        ..Input::new(ids_tensor(&rows, &model.device()))
    };
    model.encode(input, ForwardOptions::default())
}
