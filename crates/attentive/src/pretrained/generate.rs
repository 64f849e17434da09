//! Generating text: continuing a prompt, answering in a chat, or decoding with an encoder-decoder.

use std::fmt;
use std::ops::ControlFlow;

use attentive_generation::{
    BeamConfig, Decoding, DecodingContext, EarlyStopping, GenerateOptions, GenerationConfig,
    StopReason, TextChunk, beam_search, check, check_can_generate, check_prompt, check_tokenizer,
    generate,
};
use attentive_text::{ChatEnd, ChatMessage};

use super::{Pretrained, PretrainedError};

/// Generates text.
///
/// ```no_run
/// # fn main() -> Result<(), attentive::PretrainedError> {
/// use std::ops::ControlFlow;
///
/// let model = attentive::Pretrained::load("runs/stories")?;
/// let story = model.generate("Once upon a time").temperature(0.7).max_new_tokens(50);
/// story.stream(|chunk| {
///     print!("{}", chunk.text);
///     ControlFlow::Continue(())
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is run"]
pub struct Generate<'m> {
    model: &'m Pretrained,
    prompt: Prompt,
    options: GenerateOptions,
}

#[derive(Clone, Debug)]
enum Prompt {
    Text(String),
    Ids(Vec<u32>),
    Chat(Vec<ChatMessage>),
}

/// What was generated. It displays as the best text.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// The prompt as text, in the chat template if it was a chat; empty if it was given as ids.
    pub prompt: String,
    /// The tokens of the prompt.
    pub prompt_ids: Vec<u32>,
    /// The texts, best first; one, unless beam search returns several.
    pub texts: Vec<GeneratedText>,
}

/// A generated text.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratedText {
    /// The text; empty without a tokenizer.
    pub text: String,
    /// Its tokens, without the one that ended it.
    pub ids: Vec<u32>,
    /// Its score in beam search.
    pub score: Option<f64>,
    /// Why it ended.
    pub reason: StopReason,
}

/// A request whose prompt is tokenized and whose options are merged with the model's settings.
#[derive(Clone, Debug)]
pub struct PreparedGeneration<'m> {
    model: &'m Pretrained,
    /// The prompt as text, in the chat template if it was a chat; empty if it was given as ids.
    pub prompt: String,
    /// The tokens of the prompt.
    pub prompt_ids: Vec<u32>,
    /// How the text is generated.
    pub decoding: Decoding,
}

impl Generation {
    /// The best text.
    pub fn text(&self) -> &str {
        self.texts.first().map_or("", |text| text.text.as_str())
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(self.text())
    }
}

impl Pretrained {
    /// Continues a prompt, or decodes it where the model has an encoder.
    pub fn generate(&self, prompt: impl Into<String>) -> Generate<'_> {
        self.generation(Prompt::Text(prompt.into()))
    }

    /// Continues a prompt of token ids.
    pub fn generate_from_ids(&self, prompt: impl Into<Vec<u32>>) -> Generate<'_> {
        self.generation(Prompt::Ids(prompt.into()))
    }

    /// The assistant's next message of a chat, in the model's chat template.
    pub fn chat(&self, messages: impl Into<Vec<ChatMessage>>) -> Generate<'_> {
        self.generation(Prompt::Chat(messages.into()))
    }

    fn generation(&self, prompt: Prompt) -> Generate<'_> {
        Generate {
            model: self,
            prompt,
            options: GenerateOptions::default(),
        }
    }

    /// What the options of generation are merged with.
    pub(super) fn decoding_context(
        &self,
        prompt_length: usize,
    ) -> Result<DecodingContext<'_>, PretrainedError> {
        Ok(DecodingContext {
            model: &self.model,
            tokenizer: self.tokenizer()?,
            special: &self.description.special,
            settings: &self.description.generation,
            prompt_length,
        })
    }
}

impl<'m> Generate<'m> {
    /// Maximum number of new tokens.
    pub fn max_new_tokens(mut self, count: usize) -> Self {
        self.options.max_new_tokens = Some(count);
        self
    }

    /// Sampling temperature; zero is greedy decoding.
    pub fn temperature(mut self, temperature: f64) -> Self {
        self.options.temperature = Some(temperature);
        self
    }

    /// Samples from the `count` most probable tokens.
    pub fn top_k(mut self, count: usize) -> Self {
        self.options.top_k = Some(count);
        self
    }

    /// Samples from the nucleus of this total probability.
    pub fn top_p(mut self, probability: f64) -> Self {
        self.options.top_p = Some(probability);
        self
    }

    /// Repetition penalty; one disables it.
    pub fn repetition_penalty(mut self, penalty: f64) -> Self {
        self.options.repetition_penalty = Some(penalty);
        self
    }

    /// Beam search of this width; one disables it.
    pub fn num_beams(mut self, count: usize) -> Self {
        self.options.num_beams = Some(count);
        self
    }

    /// How many texts beam search returns.
    pub fn num_return_sequences(mut self, count: usize) -> Self {
        self.options.num_return_sequences = Some(count);
        self
    }

    /// Exponent of the length by which beam search divides scores.
    pub fn length_penalty(mut self, penalty: f64) -> Self {
        self.options.length_penalty = Some(penalty);
        self
    }

    /// When beam search stops.
    pub fn early_stopping(mut self, when: EarlyStopping) -> Self {
        self.options.early_stopping = Some(when);
        self
    }

    /// Ends the text at this string, which is not part of it; may be given several times.
    pub fn stop(mut self, string: impl Into<String>) -> Self {
        self.options.stop_strings.push(string.into());
        self
    }

    /// The seed of sampling.
    pub fn seed(mut self, seed: u64) -> Self {
        self.options.seed = Some(seed);
        self
    }

    /// Sets all options at once.
    pub fn options(mut self, options: GenerateOptions) -> Self {
        self.options = options;
        self
    }

    /// Generates the text.
    pub fn run(self) -> Result<Generation, PretrainedError> {
        self.stream(|_| ControlFlow::Continue(()))
    }

    /// Generates the text and passes it to `on_chunk` as it grows, which may end it by breaking. Beam search passes its best
    /// text at the end.
    pub fn stream(
        self,
        on_chunk: impl FnMut(TextChunk) -> ControlFlow<()>,
    ) -> Result<Generation, PretrainedError> {
        self.prepare()?.stream(on_chunk)
    }

    /// Tokenizes the prompt and merges the options with the model's settings; what cannot be generated is refused here.
    pub fn prepare(self) -> Result<PreparedGeneration<'m>, PretrainedError> {
        let Self {
            model: pretrained,
            prompt,
            options,
        } = self;
        options.validate()?;
        let model = pretrained.model_with_heads()?;
        check_can_generate(model).map_err(|error| pretrained.cannot(error))?;
        if !options.stop_strings.is_empty() {
            pretrained.required_tokenizer()?;
        }
        let (prompt, mut prompt_ids) = match prompt {
            Prompt::Ids(ids) => (String::new(), ids),
            Prompt::Text(text) if text.is_empty() => (text, Vec::new()),
            Prompt::Text(text) => {
                let ids = pretrained.required_tokenizer()?.encode(&text)?;
                (text, ids)
            }
            Prompt::Chat(messages) => {
                let text = pretrained.apply_chat_template(&messages)?;
                let tokenizer = pretrained.required_tokenizer()?;
                let ids = tokenizer.encode_without_special(&text)?;
                (text, ids)
            }
        };
        if prompt_ids.is_empty() && model.config().encoder.is_none() {
            prompt_ids.extend(pretrained.description.special.bos);
        }
        let context = pretrained.decoding_context(prompt_ids.len())?;
        let decoding = options.decoding(context)?;
        check_tokenizer(model, context.tokenizer)?;
        match &decoding {
            Decoding::Sample(config) => check(model, context.tokenizer, &prompt_ids, config)?,
            Decoding::Beams(_) => check_prompt(model, &prompt_ids)?,
        }
        Ok(PreparedGeneration {
            model: pretrained,
            prompt,
            prompt_ids,
            decoding,
        })
    }
}

impl Pretrained {
    /// A chat in the model's template, ending where the assistant speaks.
    fn apply_chat_template(&self, messages: &[ChatMessage]) -> Result<String, PretrainedError> {
        let templates = self
            .chat_templates()?
            .ok_or_else(|| PretrainedError::NoChatTemplate {
                path: self.path.clone(),
            })?;
        Ok(templates.render(None, messages, ChatEnd::GenerationPrompt)?)
    }
}

impl PreparedGeneration<'_> {
    /// Generates the text and passes it to `on_chunk` as it grows, which may end it by breaking. Beam search passes its best
    /// text at the end.
    pub fn stream(
        self,
        on_chunk: impl FnMut(TextChunk) -> ControlFlow<()>,
    ) -> Result<Generation, PretrainedError> {
        let texts = match &self.decoding {
            Decoding::Sample(config) => vec![self.sample(config, on_chunk)?],
            Decoding::Beams(config) => self.search(config, on_chunk)?,
        };
        Ok(Generation {
            prompt: self.prompt,
            prompt_ids: self.prompt_ids,
            texts,
        })
    }

    fn sample(
        &self,
        config: &GenerationConfig,
        on_chunk: impl FnMut(TextChunk) -> ControlFlow<()>,
    ) -> Result<GeneratedText, PretrainedError> {
        let tokenizer = self.model.tokenizer()?;
        let done = generate(
            &self.model.model,
            tokenizer,
            &self.prompt_ids,
            config,
            on_chunk,
        )?;
        Ok(GeneratedText {
            text: done.text,
            ids: done.ids,
            score: None,
            reason: done.reason,
        })
    }

    fn search(
        &self,
        config: &BeamConfig,
        mut on_chunk: impl FnMut(TextChunk) -> ControlFlow<()>,
    ) -> Result<Vec<GeneratedText>, PretrainedError> {
        let tokenizer = self.model.tokenizer()?;
        let sources = std::slice::from_ref(&self.prompt_ids);
        let beams = beam_search(&self.model.model, sources, config)?.remove(0);
        let mut texts = Vec::with_capacity(beams.len());
        for beam in beams {
            texts.push(GeneratedText {
                text: match tokenizer {
                    Some(tokenizer) => tokenizer.decode(&beam.ids)?,
                    None => String::new(),
                },
                ids: beam.ids,
                score: Some(beam.score),
                reason: beam.reason,
            });
        }
        if let Some(best) = texts.first() {
            // The text is complete, so breaking has no effect.
            let _ = on_chunk(TextChunk {
                id: None,
                text: &best.text,
            });
        }
        Ok(texts)
    }
}
