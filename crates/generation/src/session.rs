//! A model and the tokens it has read: one sequence in the making.

use attentive_model::{Extras, Input, Memory, Model};

use crate::sequences::{Sequences, ids};

/// One sequence in the making.
#[derive(Debug)]
pub struct Session<'m> {
    sequences: Sequences<'m>,
    ids: Vec<u32>,
    /// Where in `ids` the sequence begins that the model sees.
    start: usize,
}

impl<'m> Session<'m> {
    /// A session that has read nothing.
    pub fn new(model: &'m Model) -> Self {
        Self::of(Sequences::new(model, None))
    }

    /// A session of a decoder that looks at `memory`: what [`encode`] made of a source, or states from elsewhere.
    pub fn over(model: &'m Model, memory: Memory) -> Self {
        Self::of(Sequences::new(model, Some(memory)))
    }

    fn of(sequences: Sequences<'m>) -> Self {
        Self {
            sequences,
            ids: Vec::new(),
            start: 0,
        }
    }

    /// All tokens read.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Reads more tokens and gives the scores of the one after them.
    ///
    /// When the model's length is reached, the session goes on with the newer half of the sequence read afresh: the
    /// model then sees a shorter past, as it did at the beginnings of its training windows. A decoder that looks at a memory
    /// never saw such a thing, and ends there.
    ///
    /// # Panics
    /// When given no tokens, or more at once than the model's length, or in all where it looks at a memory.
    pub fn read(&mut self, ids: &[u32]) -> Vec<f32> {
        let length = self.sequences.model().config().length;
        assert!(
            (1..=length).contains(&ids.len()),
            "session: cannot read {} tokens at once with length {length}",
            ids.len()
        );
        self.ids.extend_from_slice(ids);
        if self.ids.len() - self.start <= length {
            return self.sequences.read(&[ids.to_vec()]);
        }
        assert!(
            !self.sequences.has_memory(),
            "session: {} tokens are more than length {length}, and the decoder looks at a memory",
            self.ids.len()
        );
        self.start = self.ids.len() - (length / 2).max(ids.len());
        self.sequences.restart();
        self.sequences.read(&[self.ids[self.start..].to_vec()])
    }
}

/// What the model's encoder makes of sources, side by side. Shorter ones are filled up with `padding` (an id of the encoder's
/// vocabulary), which nobody then sees.
///
/// # Panics
/// When the model has no encoder, or there are no sources.
pub fn encode(model: &Model, sources: &[Vec<u32>], padding: u32) -> Memory {
    let longest = sources.iter().map(Vec::len).max();
    let longest = longest.expect("encode: there are no sources");
    let filled = |source: &Vec<u32>| {
        let mut row = source.clone();
        row.resize(longest, padding);
        row
    };
    let rows: Vec<Vec<u32>> = sources.iter().map(filled).collect();
    let even = sources.iter().all(|source| source.len() == longest);
    let input = Input {
        keys: (!even).then(|| sources.iter().map(|source| 0..source.len()).collect()),
        ..Input::new(ids(&rows, model))
    };
    model.encode(input, Extras::default())
}
