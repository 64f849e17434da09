//! What a caller asks of generated text, merged with the generation settings of the model's folder.

use std::time::{SystemTime, UNIX_EPOCH};

use attentive_model::Model;
use attentive_text::Tokenizer;

use crate::{
    BeamConfig, EarlyStopping, GenerationConfig, GenerationError, GenerationSettings,
    LogitsProcessors, Sampling, SettingError, SpecialTokens,
};

/// The maximum number of new tokens where neither the caller nor the model's settings give one.
const MAX_NEW_TOKENS: usize = 200;

/// The temperature of a decoder whose folder has no generation settings.
const TEMPERATURE: f64 = 0.8;

/// How texts are generated. What is left out comes from the model's generation settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerateOptions {
    /// Maximum number of new tokens.
    pub max_new_tokens: Option<usize>,
    /// Sampling temperature; zero is greedy decoding.
    pub temperature: Option<f64>,
    /// Samples from this many of the most probable tokens.
    pub top_k: Option<usize>,
    /// Samples from the nucleus of this total probability.
    pub top_p: Option<f64>,
    /// Repetition penalty; one disables it.
    pub repetition_penalty: Option<f64>,
    /// Beam width; one disables beam search.
    pub num_beams: Option<usize>,
    /// How many texts beam search returns.
    pub num_return_sequences: Option<usize>,
    /// Exponent of the length by which beam search divides scores.
    pub length_penalty: Option<f64>,
    /// When beam search stops.
    pub early_stopping: Option<EarlyStopping>,
    /// Strings that end the text.
    pub stop_strings: Vec<String>,
    /// The seed of sampling; random if left out. It alone does not turn sampling on.
    pub seed: Option<u64>,
}

/// How a text is generated.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoding {
    /// Greedy decoding or sampling.
    Sample(GenerationConfig),
    /// Beam search.
    Beams(BeamConfig),
}

/// What decoding depends on besides the options.
#[derive(Clone, Copy, Debug)]
pub struct DecodingContext<'a> {
    /// The model.
    pub model: &'a Model,
    /// Its tokenizer.
    pub tokenizer: Option<&'a Tokenizer>,
    /// Its special tokens.
    pub special: &'a SpecialTokens,
    /// The generation settings of its folder.
    pub settings: &'a GenerationSettings,
    /// Tokens of the prompt.
    pub prompt_length: usize,
}

impl DecodingContext<'_> {
    /// Tokens before the first generated one: the decoder of an encoder-decoder starts with one.
    fn decoder_prompt_length(self) -> usize {
        match self.model.config().encoder {
            Some(_) => 1,
            None => self.prompt_length,
        }
    }
}

impl GenerateOptions {
    /// Refuses values out of range and options that exclude each other, whatever the model.
    pub fn validate(&self) -> Result<(), GenerationError> {
        let sampling = Sampling {
            temperature: self.temperature.unwrap_or(0.0),
            top_k: self.top_k,
            top_p: self.top_p,
            ..Sampling::default()
        };
        sampling.validate()?;
        let processors = LogitsProcessors {
            repetition_penalty: self.repetition_penalty,
            ..LogitsProcessors::default()
        };
        processors.validate()?;
        if self.stop_strings.iter().any(String::is_empty) {
            return Err(GenerationError::EmptyStopString);
        }
        let seed = self.seed.map(|_| "seed");
        match (self.num_beams, self.sampling_option().or(seed)) {
            (Some(2..), Some(option)) => Err(GenerationError::Conflict {
                option,
                reason: "it is for sampling, and num_beams asks for beam search",
                advice: "leave one of them out",
            }),
            _ => Ok(()),
        }
    }

    /// The options, merged with the settings of a model.
    pub fn decoding(&self, context: DecodingContext) -> Result<Decoding, GenerationError> {
        self.validate()?;
        let DecodingContext {
            model, settings, ..
        } = context;
        let num_beams = self.beams(settings)?;
        if num_beams == 1 {
            self.refuse_beam_options(settings)?;
            return Ok(Decoding::Sample(GenerationConfig {
                max_new_tokens: self.length(context)?,
                sampling: self.sampling(settings, model.config().encoder.is_some())?,
                stop_strings: self.stop_strings.clone(),
                processors: self.processors(context)?,
            }));
        }
        if !self.stop_strings.is_empty() {
            return Err(GenerationError::Conflict {
                option: "stop",
                reason: "it needs sampling or greedy decoding, not beam search",
                advice: "give num_beams 1, or leave it out",
            });
        }
        if self.num_return_sequences.is_none() {
            settings.check_num_return_sequences(num_beams)?;
        }
        Ok(Decoding::Beams(self.beam_config(context, num_beams)?))
    }

    /// Beam search of this width, merged with the settings of a model.
    pub fn beam_config(
        &self,
        context: DecodingContext,
        num_beams: usize,
    ) -> Result<BeamConfig, GenerationError> {
        let settings = context.settings;
        let config = BeamConfig {
            max_new_tokens: self.length(context)?,
            num_beams,
            num_return_sequences: (self.num_return_sequences)
                .or(settings.num_return_sequences)
                .unwrap_or(1),
            length_penalty: (self.length_penalty)
                .or(settings.length_penalty)
                .unwrap_or(1.0),
            early_stopping: (self.early_stopping)
                .or(settings.early_stopping)
                .unwrap_or_default(),
            renormalize_logits: settings.renormalize_logits.unwrap_or(false),
            tokenizer_vocabulary: context.tokenizer.map(Tokenizer::vocabulary),
            processors: self.processors(context)?,
        };
        config.validate()?;
        Ok(config)
    }

    /// The maximum number of new tokens.
    fn length(&self, context: DecodingContext) -> Result<usize, GenerationError> {
        Ok(match self.max_new_tokens {
            Some(count) => count,
            None => (context.settings)
                .max_new_tokens_after(context.decoder_prompt_length())?
                .unwrap_or(MAX_NEW_TOKENS),
        })
    }

    fn processors(&self, context: DecodingContext) -> Result<LogitsProcessors, GenerationError> {
        let prompt_length = context.decoder_prompt_length();
        let (special, settings) = (context.special, context.settings);
        let mut processors = LogitsProcessors::from_settings(special, settings, prompt_length)?;
        processors.repetition_penalty = self.repetition_penalty.or(processors.repetition_penalty);
        Ok(processors)
    }

    /// The beam width; one when sampling.
    fn beams(&self, settings: &GenerationSettings) -> Result<usize, GenerationError> {
        if let Some(beams) = self.num_beams {
            return match beams {
                0 => Err(SettingError {
                    name: "num_beams",
                    value: 0.0,
                    range: format!("1 to {}", crate::MAX_BEAMS),
                }
                .into()),
                beams => Ok(beams),
            };
        }
        if self.sampling_option().is_some() {
            return Ok(1);
        }
        settings.check_no_beam_sampling()?;
        Ok(settings.num_beams.unwrap_or(1))
    }

    /// Sampling settings, for decoding without beam search.
    fn sampling(
        &self,
        settings: &GenerationSettings,
        has_encoder: bool,
    ) -> Result<Sampling, GenerationError> {
        let asked = self.sampling_option().is_some();
        let do_sample = match (self.temperature, settings.do_sample) {
            (Some(0.0), _) => false,
            (_, Some(true)) => true,
            (_, Some(false)) => asked,
            // Tasks of encoder-decoders, such as translation, mostly have one right output.
            (_, None) => asked || !(has_encoder || settings.temperature == Some(0.0)),
        };
        let defaults = Sampling {
            temperature: TEMPERATURE,
            ..Sampling::default()
        };
        let base = match (do_sample, settings.do_sample) {
            (false, _) => Sampling::greedy(),
            (true, Some(true)) => Sampling::from_settings(settings)?.unwrap_or(defaults),
            (true, _) => defaults.with_settings(settings)?,
        };
        Ok(Sampling {
            temperature: self.temperature.unwrap_or(base.temperature),
            top_k: self.top_k.or(base.top_k),
            top_p: self.top_p.or(base.top_p),
            seed: self.seed.unwrap_or_else(random_seed),
            ..base
        })
    }

    /// The first sampling option that was given.
    fn sampling_option(&self) -> Option<&'static str> {
        let options = [
            ("temperature", self.temperature.is_some()),
            ("top_k", self.top_k.is_some()),
            ("top_p", self.top_p.is_some()),
        ];
        let given = options.into_iter().find(|(_, given)| *given);
        given.map(|(name, _)| name)
    }

    /// Refuses options of beam search without beam search.
    fn refuse_beam_options(&self, settings: &GenerationSettings) -> Result<(), GenerationError> {
        if self.num_return_sequences.is_none() {
            settings.check_num_return_sequences(1)?;
        }
        let several = self.num_return_sequences.is_some_and(|it| it != 1);
        let options = [
            ("length_penalty", self.length_penalty.is_some()),
            ("early_stopping", self.early_stopping.is_some()),
            ("num_return_sequences", several),
        ];
        match options.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(GenerationError::Conflict {
                option,
                reason: "it is for beam search",
                advice: "give num_beams 4, or leave it out",
            }),
            None => Ok(()),
        }
    }
}

/// A seed from the clock.
fn random_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    // Within the range of a recipe's seed (a signed integer), so that a printed seed can be given again.
    now.map_or(0, |time| time.as_nanos() as u64 >> 1)
}
