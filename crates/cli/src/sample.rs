//! The sample at the end of a training run. A sample that fails never fails the run.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use attentive::generation::{GenerationConfig, LogitsProcessors, Sampling, TextChunk, generate};
use attentive::training::Trainer;

/// A sample of the trained model.
pub struct Sample {
    /// The prompt and its continuation; empty if there is none.
    pub text: String,
    /// A note about it.
    pub note: Option<String>,
    /// A prompt to try next: that of the recipe, if the tokenizer has tokens for it.
    pub prompt: Option<String>,
}

/// The prompt of a sample.
struct Prompt {
    text: String,
    ids: Vec<u32>,
    note: Option<String>,
}

impl Sample {
    /// Generates until `stop` is set.
    pub fn write(trainer: &Trainer, stop: &AtomicBool) -> Self {
        let written = prompt(trainer).and_then(|prompt| {
            let text = prompt.text + &continuation(trainer, &prompt.ids, stop)?;
            Ok((text, prompt.note))
        });
        let (text, note) = written
            .unwrap_or_else(|error| (String::new(), Some(format!("there is no sample: {error}"))));
        let wanted = &trainer.recipe().sample.prompt;
        let prompt = (note.is_none() && !wanted.trim().is_empty()).then(|| wanted.clone());
        Self { text, note, prompt }
    }
}

fn prompt(trainer: &Trainer) -> Result<Prompt> {
    let prompt = &trainer.recipe().sample.prompt;
    let tokenizer = &trainer.data().tokenizer;
    let first = trainer.data().tokens.held_out.first().copied();
    let first = first.context("the held-out text is empty");
    match tokenizer.encode(prompt) {
        Ok(ids) if !ids.is_empty() => Ok(Prompt {
            text: prompt.clone(),
            ids,
            note: None,
        }),
        // Without an end-of-text token to start from, the sample continues the first token of the held-out text.
        Ok(_) => Ok(Prompt {
            text: String::new(),
            ids: vec![tokenizer.end_of_text().map_or_else(|| first, Ok)?],
            note: None,
        }),
        Err(_) => {
            let first = first?;
            Ok(Prompt {
                text: tokenizer.decode(&[first])?,
                ids: vec![first],
                note: Some(format!(
                    "the tokenizer has no tokens for sample.prompt {prompt:?}, so the sample starts with the \
                     held-out text's first token"
                )),
            })
        }
    }
}

fn continuation(trainer: &Trainer, prompt: &[u32], stop: &AtomicBool) -> Result<String> {
    let tokenizer = &trainer.data().tokenizer;
    let config = GenerationConfig {
        max_new_tokens: trainer.recipe().sample.tokens,
        sampling: Sampling {
            temperature: 0.8,
            seed: trainer.recipe().seed,
            ..Sampling::default()
        },
        stop_strings: Vec::new(),
        processors: LogitsProcessors::with_eos(tokenizer.end_of_text().into_iter().collect()),
    };
    let on_chunk = |_: TextChunk| match stop.load(Ordering::Relaxed) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let done = generate(&trainer.model(), Some(tokenizer), prompt, &config, on_chunk)?;
    Ok(done.text)
}
