//! What a run would do, without starting it.

use attentive_model::{Model, parameters};
use burn::tensor::Device;

use crate::trainer::{fit_to_tokenizer, prepare_data, saved_state};
use crate::{Recipe, RunFolder, Start, TrainingError};

/// What a run would do.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The recipe, with the tokenizer's vocabulary filled in.
    pub recipe: Recipe,
    /// The step after which it would begin.
    pub first_step: u64,
    /// Parameters of the model.
    pub parameters: usize,
    /// Tokens to train on.
    pub training_tokens: usize,
    /// Tokens held out for evaluation.
    pub held_out_tokens: usize,
    /// Tokens of one optimizer step.
    pub tokens_per_step: usize,
}

impl Plan {
    /// Makes every check that precedes a run: the folder, the recipe, the data, the model. Nothing is written.
    pub fn new(
        mut recipe: Recipe,
        folder: &RunFolder,
        start: Start,
        device: &Device,
    ) -> Result<Self, TrainingError> {
        folder.check(start)?;
        let saved = match start {
            Start::Resume => saved_state(folder, &recipe)?,
            Start::New | Start::Overwrite => None,
        };
        let data = prepare_data(&recipe, folder, saved.as_ref())?;
        fit_to_tokenizer(&mut recipe, &data)?;
        let model = Model::new(&recipe.model, recipe.seed, device)?;
        let sizes = parameters(&model).into_iter();
        let training = &recipe.training;
        Ok(Self {
            first_step: saved.map_or(0, |saved| saved.state.step),
            parameters: sizes.map(|it| it.shape.iter().product::<usize>()).sum(),
            training_tokens: data.tokens.training.len(),
            held_out_tokens: data.tokens.held_out.len(),
            tokens_per_step: training.batch_size
                * training.gradient_accumulation_steps
                * recipe.model.stack.length,
            recipe,
        })
    }
}
