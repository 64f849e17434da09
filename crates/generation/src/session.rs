//! A model and the tokens it has read, with the cache that spares reading them again.

use attentive_model::{Cache, Extras, Input, LanguageModel};
use burn::tensor::{Int, Tensor, TensorData};

/// One sequence in the making.
#[derive(Debug)]
pub struct Session<'m> {
    model: &'m LanguageModel,
    cache: Cache,
    ids: Vec<u32>,
}

impl<'m> Session<'m> {
    /// A session that has read nothing.
    pub fn new(model: &'m LanguageModel) -> Self {
        Self {
            model,
            cache: Cache::new(),
            ids: Vec::new(),
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
        let unread = if self.cache.length() + ids.len() > length {
            self.cache = Cache::new();
            let kept = (length / 2).max(ids.len());
            &self.ids[self.ids.len() - kept..]
        } else {
            ids
        };
        let numbers: Vec<i64> = unread.iter().map(|id| i64::from(*id)).collect();
        let data = TensorData::new(numbers, [1, unread.len()]);
        let input = Input::new(Tensor::<2, Int>::from_data(data, &self.model.device()));
        let extras = Extras {
            cache: Some(&mut self.cache),
            ..Extras::default()
        };
        let hidden = self.model.hidden(input, extras).states;
        let last = hidden.narrow(1, unread.len() - 1, 1);
        let logits = self.model.logits(last).into_data();
        logits.try_to_vec::<f32>().expect("logits are f32")
    }
}
