//! Beam search. Lowerre 1976; Sutskever et al. 2014. Scores and early stopping are those of Hugging Face's transformers.
//!
//! ```text
//! rows of the batch         source 0: beam beam beam beam | source 1: beam beam beam beam
//! candidates                the best 2 · num_beams continuations of all beams of a source
//!   ending in eos           become finished hypotheses, if they are among the best num_beams
//!   all others              the best num_beams are the beams of the next step; the cache is reordered
//! ```

mod hypotheses;
#[cfg(test)]
mod margins;

use attentive_model::Model;

use crate::check::{check_decoder, pad_token};
use crate::logits_processors::ProcessorContext;
use crate::sequences::Sequences;
use crate::softmax::log_softmax;
use crate::{
    EarlyStopping, GenerationError, LogitsProcessors, MAX_BEAMS, SettingError, StopReason,
    check_prompt, encode,
};
use hypotheses::Hypotheses;

/// Settings of beam search.
#[derive(Clone, Debug, PartialEq)]
pub struct BeamConfig {
    /// Maximum number of new tokens; the model's length limits it as well.
    pub max_new_tokens: usize,
    /// Beam width.
    pub num_beams: usize,
    /// How many texts are returned for each source, at most `num_beams`.
    pub num_return_sequences: usize,
    /// A text's score is its log-probability divided by this power of its length; larger favours longer texts.
    pub length_penalty: f64,
    /// When the search stops.
    pub early_stopping: EarlyStopping,
    /// Whether log-probabilities are normalized again after the logits processors.
    pub renormalize_logits: bool,
    /// The size of the tokenizer's vocabulary; tokens beyond it are masked.
    pub tokenizer_vocabulary: Option<usize>,
    /// The logits processors of the model's folder.
    pub processors: LogitsProcessors,
}

/// A finished hypothesis.
#[derive(Clone, Debug, PartialEq)]
pub struct Beam {
    /// Its tokens, without the one that ended it.
    pub ids: Vec<u32>,
    /// Its log-probability, end token included, divided by its length to the power of the length penalty.
    pub score: f64,
    /// Why it ended.
    pub reason: StopReason,
}

impl BeamConfig {
    /// Whether every setting is in its range.
    pub fn validate(&self) -> Result<(), SettingError> {
        SettingError::first([
            (
                "num_beams",
                self.num_beams as f64,
                (1..=MAX_BEAMS).contains(&self.num_beams),
                &format!("1 to {MAX_BEAMS}"),
            ),
            (
                "num_return_sequences",
                self.num_return_sequences as f64,
                (1..=self.num_beams).contains(&self.num_return_sequences),
                &format!("1 to {}, the number of beams", self.num_beams),
            ),
            (
                "length_penalty",
                self.length_penalty,
                self.length_penalty.is_finite(),
                "a finite number",
            ),
        ])
    }
}

/// The best texts for each source, best first. An encoder-decoder decodes all sources as one batch; a decoder continues each
/// as a prompt of its own.
pub fn beam_search(
    model: &Model,
    sources: &[Vec<u32>],
    config: &BeamConfig,
) -> Result<Vec<Vec<Beam>>, GenerationError> {
    config.validate()?;
    check_decoder(model, &config.processors)?;
    for source in sources {
        check_prompt(model, source)?;
    }
    if sources.is_empty() {
        return Ok(Vec::new());
    }
    if model.config().encoder.is_none() {
        let continue_one = |prompt: &Vec<u32>| {
            let sequences = Sequences::new(model, None);
            let prompt = std::slice::from_ref(prompt);
            Ok(search(sequences, prompt, prompt, config)?.remove(0))
        };
        return sources.iter().map(continue_one).collect();
    }
    let memory = encode(model, sources, pad_token(model, &config.processors));
    let start = config
        .processors
        .decoder_start
        .ok_or(GenerationError::NoStart)?;
    let starts = vec![vec![start]; sources.len()];
    let sequences = Sequences::new(model, Some(memory));
    search(sequences, sources, &starts, config)
}

/// The best continuations of each source's prompt; all prompts have the same length.
fn search(
    mut sequences: Sequences,
    sources: &[Vec<u32>],
    prompts: &[Vec<u32>],
    config: &BeamConfig,
) -> Result<Vec<Vec<Beam>>, GenerationError> {
    // The last token is never fed back, so it needs no position.
    let room = (sequences.model().config().stack.length + 1).saturating_sub(prompts[0].len());
    let max_new_tokens = config.max_new_tokens.min(room);
    let mut all: Vec<Hypotheses> = prompts.iter().map(|_| Hypotheses::new()).collect();
    let mut inputs = prompts.to_vec();
    for generated in 0..max_new_tokens {
        let mut logits = sequences.forward(&inputs);
        let vocabulary = logits.len() / inputs.len();
        let mut rows = logits.chunks_mut(vocabulary).zip(sequences.rows());
        let mut first_row = 0;
        let mut parents = Vec::new();
        inputs.clear();
        let unfinished = all.iter_mut().zip(sources);
        for (hypotheses, source) in unfinished.filter(|(it, _)| !it.is_done()) {
            let count = hypotheses.running().len();
            let mut log_probabilities = Vec::with_capacity(count);
            for (logits, tokens) in rows.by_ref().take(count) {
                let context = ProcessorContext {
                    source,
                    tokens,
                    generated,
                    max_new_tokens,
                };
                score_tokens(logits, context, config)?;
                log_probabilities.push(&*logits);
            }
            hypotheses.step(&log_probabilities, generated, max_new_tokens, config);
            for beam in hypotheses.running() {
                parents.push(first_row + beam.parent);
                inputs.extend(beam.ids.last().map(|id| vec![*id]));
            }
            first_row += count;
        }
        if parents.is_empty() {
            break;
        }
        // After the last step the cache is not used again.
        if generated + 1 < max_new_tokens {
            sequences.select(&parents);
        }
    }
    let texts = all
        .into_iter()
        .map(|it| it.into_texts(config.num_return_sequences));
    let texts: Vec<Vec<Beam>> = texts.collect();
    match texts.iter().any(Vec::is_empty) {
        true => Err(GenerationError::AllTokensMasked),
        false => Ok(texts),
    }
}

/// Turns logits into the log-probabilities that candidates are scored with.
fn score_tokens(
    logits: &mut [f32],
    context: ProcessorContext,
    config: &BeamConfig,
) -> Result<(), GenerationError> {
    if logits.iter().any(|logit| logit.is_nan()) || !log_softmax(logits) {
        return Err(GenerationError::NonFiniteLogits);
    }
    if let Some(vocabulary) = config.tokenizer_vocabulary {
        logits[vocabulary..].fill(f32::NEG_INFINITY);
    }
    config.processors.apply(logits, context);
    if config.renormalize_logits {
        // Where all tokens are masked this changes nothing, and the search ends with an error.
        log_softmax(logits);
    }
    Ok(())
}
