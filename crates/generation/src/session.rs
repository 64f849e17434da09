//! A model and the tokens it has read, with the cache that spares reading them again where one can serve.

use attentive_model::{Cache, Extras, Input, Model};
use burn::tensor::{Int, Tensor, TensorData};

/// One sequence in the making.
#[derive(Debug)]
pub struct Session<'m> {
    model: &'m Model,
    /// None where a layer can have no cache: then all is read again for each token.
    cache: Option<Cache>,
    ids: Vec<u32>,
    /// Where in `ids` the sequence begins that the model sees.
    start: usize,
}

impl<'m> Session<'m> {
    /// A session that has read nothing.
    pub fn new(model: &'m Model) -> Self {
        Self {
            model,
            cache: model.config().cacheable().then(Cache::new),
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
    /// model then sees a shorter past, as it did at the beginnings of its training windows.
    ///
    /// # Panics
    /// When given no tokens, or more at once than the model's length.
    pub fn read(&mut self, ids: &[u32]) -> Vec<f32> {
        let length = self.model.config().length;
        assert!(
            (1..=length).contains(&ids.len()),
            "session: cannot read {} tokens at once with length {length}",
            ids.len()
        );
        self.ids.extend_from_slice(ids);
        let mut unread = self.ids.len() - ids.len();
        if self.ids.len() - self.start > length {
            self.start = self.ids.len() - (length / 2).max(ids.len());
            self.cache = self.cache.take().map(|_| Cache::new());
            unread = self.start;
        }
        if self.cache.is_none() {
            unread = self.start;
        }
        let unread = &self.ids[unread..];
        let numbers: Vec<i64> = unread.iter().map(|id| i64::from(*id)).collect();
        let data = TensorData::new(numbers, [1, unread.len()]);
        let input = Input::new(Tensor::<2, Int>::from_data(data, &self.model.device()));
        let extras = Extras {
            cache: self.cache.as_mut(),
            ..Extras::default()
        };
        let hidden = self.model.hidden(input, extras).states;
        let last = hidden.narrow(1, unread.len() - 1, 1);
        let logits = self.model.words(last).into_data();
        logits.try_to_vec::<f32>().expect("logits are f32")
    }
}
