//! A batch of sequences of equal length, decoded with a KV cache where all layers support one.

use attentive_model::attention::Memory;
use attentive_model::{Cache, ForwardOptions, Input, Model, ids_tensor};

/// A batch of sequences.
#[derive(Debug)]
pub(crate) struct Sequences<'m> {
    model: &'m Model,
    /// The encoder's output, for cross-attention.
    memory: Option<Memory>,
    /// The source whose memory each row attends to; empty until rows are selected.
    sources: Vec<usize>,
    /// None where a layer does not support one: each step then recomputes the whole sequence.
    cache: Option<Cache>,
    rows: Vec<Vec<u32>>,
}

impl<'m> Sequences<'m> {
    /// An empty batch. Its size is that of the memory, or of the first forward pass.
    pub fn new(model: &'m Model, memory: Option<Memory>) -> Self {
        Self {
            model,
            memory,
            sources: Vec::new(),
            cache: model.config().stack.cacheable().then(Cache::new),
            rows: Vec::new(),
        }
    }

    /// Removes all tokens.
    pub fn reset(&mut self) {
        self.cache = self.cache.take().map(|_| Cache::new());
        self.rows.clear();
    }

    /// The model.
    pub fn model(&self) -> &'m Model {
        self.model
    }

    /// Whether the decoder has cross-attention.
    pub fn has_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// The tokens of each row.
    pub fn rows(&self) -> &[Vec<u32>] {
        &self.rows
    }

    /// Appends the same number of tokens to each row and returns the logits of the next tokens, row by row.
    pub fn forward(&mut self, new: &[Vec<u32>]) -> Vec<f32> {
        if self.rows.is_empty() {
            self.rows.resize_with(new.len(), Vec::new);
        }
        for (row, new) in self.rows.iter_mut().zip(new) {
            row.extend_from_slice(new);
        }
        let inputs = match &self.cache {
            Some(_) => new,
            None => self.rows.as_slice(),
        };
        let length = inputs[0].len();
        let input = Input {
            memory: self.memory.clone(),
            ..Input::new(ids_tensor(inputs, &self.model.device()))
        };
        let options = ForwardOptions {
            cache: self.cache.as_mut(),
            ..ForwardOptions::default()
        };
        let hidden = self.model.hidden_states(input, options).states;
        let last = hidden.narrow(1, length - 1, 1);
        let logits = self.model.logits(last).into_data();
        logits.try_to_vec::<f32>().expect("logits are f32")
    }

    /// Replaces row `i` by row `rows[i]`, in the cache and the memory as well.
    pub fn select(&mut self, rows: &[usize]) {
        if let Some(cache) = &mut self.cache {
            cache.select(rows);
        }
        self.rows = rows.iter().map(|row| self.rows[*row].clone()).collect();
        let source = |row: &usize| self.sources.get(*row).copied().unwrap_or(*row);
        let sources: Vec<usize> = rows.iter().map(source).collect();
        if let Some(memory) = self.memory.take_if(|_| sources != self.sources) {
            self.memory = Some(memory.select(rows));
        }
        self.sources = sources;
    }
}
