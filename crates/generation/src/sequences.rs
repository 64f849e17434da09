//! Sequences of one length in the making, read side by side, with the cache that spares reading them again where one can
//! serve.

use attentive_model::{Cache, Extras, Input, Memory, Model};
use burn::tensor::{Int, Tensor, TensorData};

/// Rows of a batch.
#[derive(Debug)]
pub(crate) struct Sequences<'m> {
    model: &'m Model,
    /// What the rows look at, where they look at something.
    memory: Option<Memory>,
    /// Whose memory at first each row looks at; empty until rows are chosen anew.
    sources: Vec<usize>,
    /// None where a layer can have no cache: then all is read again for each token.
    cache: Option<Cache>,
    rows: Vec<Vec<u32>>,
}

impl<'m> Sequences<'m> {
    /// Rows that have read nothing, as many as there are sequences in the memory, or as are first read.
    pub fn new(model: &'m Model, memory: Option<Memory>) -> Self {
        Self {
            model,
            memory,
            sources: Vec::new(),
            cache: model.config().cacheable().then(Cache::new),
            rows: Vec::new(),
        }
    }

    /// Forgets all tokens.
    pub fn restart(&mut self) {
        self.cache = self.cache.take().map(|_| Cache::new());
        self.rows.clear();
    }

    /// The model.
    pub fn model(&self) -> &'m Model {
        self.model
    }

    /// Whether the rows look at something.
    pub fn has_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// The tokens of each row.
    pub fn rows(&self) -> &[Vec<u32>] {
        &self.rows
    }

    /// Reads more tokens, as many in each row, and gives the scores of those after them, row after row.
    pub fn read(&mut self, new: &[Vec<u32>]) -> Vec<f32> {
        if self.rows.is_empty() {
            self.rows.resize_with(new.len(), Vec::new);
        }
        for (row, new) in self.rows.iter_mut().zip(new) {
            row.extend_from_slice(new);
        }
        let unread = match &self.cache {
            Some(_) => new,
            None => self.rows.as_slice(),
        };
        let length = unread[0].len();
        let input = Input {
            memory: self.memory.clone(),
            ..Input::new(ids(unread, self.model))
        };
        let extras = Extras {
            cache: self.cache.as_mut(),
            ..Extras::default()
        };
        let hidden = self.model.hidden(input, extras).states;
        let last = hidden.narrow(1, length - 1, 1);
        let logits = self.model.words(last).into_data();
        logits.try_to_vec::<f32>().expect("logits are f32")
    }

    /// Makes row `i` what row `rows[i]` was.
    pub fn select(&mut self, rows: &[usize]) {
        if let Some(cache) = &mut self.cache {
            cache.select(rows);
        }
        self.rows = rows.iter().map(|row| self.rows[*row].clone()).collect();
        let source = |row: &usize| self.sources.get(*row).copied().unwrap_or(*row);
        let sources: Vec<usize> = rows.iter().map(source).collect();
        if let Some(memory) = self.memory.take_if(|_| sources != self.sources) {
            self.memory = Some(selected(memory, rows));
        }
        self.sources = sources;
    }
}

/// Token ids as the model reads them; all rows have one length.
pub(crate) fn ids(rows: &[Vec<u32>], model: &Model) -> Tensor<2, Int> {
    let numbers: Vec<i64> = rows.iter().flatten().map(|id| i64::from(*id)).collect();
    let data = TensorData::new(numbers, [rows.len(), rows[0].len()]);
    Tensor::from_data(data, &model.device())
}

fn selected(memory: Memory, rows: &[usize]) -> Memory {
    let numbers: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
    let places = Tensor::<1, Int>::from_data(numbers.as_slice(), &memory.keys.device());
    Memory {
        keys: memory.keys.select(0, places.clone()),
        values: memory.values.select(0, places),
        real: (memory.real).map(|real| rows.iter().map(|row| real[*row].clone()).collect()),
    }
}
