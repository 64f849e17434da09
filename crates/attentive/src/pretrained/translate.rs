//! Translation, and other tasks of encoder-decoders that turn one text into another.

use attentive_generation::{
    Beam, GenerateOptions, GenerationError, beam_search, check_prompt, check_tokenizer,
};

use super::{Pretrained, PretrainedError};

/// The default beam width.
const BEAMS: usize = 4;

/// Translates texts.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is run"]
pub struct Translate<'m> {
    model: &'m Pretrained,
    texts: Vec<String>,
    prefix: String,
    options: GenerateOptions,
    batch_size: usize,
}

/// A translated text.
#[derive(Clone, Debug, PartialEq)]
pub struct Translation {
    /// The text.
    pub text: String,
    /// The score of the beam search; none for a blank text, which is not translated.
    pub score: Option<f64>,
}

impl Pretrained {
    /// Translates texts by beam search; a blank text stays empty.
    pub fn translate<T: Into<String>>(&self, texts: impl IntoIterator<Item = T>) -> Translate<'_> {
        Translate {
            model: self,
            texts: texts.into_iter().map(Into::into).collect(),
            prefix: String::new(),
            options: GenerateOptions::default(),
            batch_size: 8,
        }
    }
}

impl Translate<'_> {
    /// Put before every text, such as T5's `translate English to German: `.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Options of the beam search; those of sampling are refused.
    pub fn options(mut self, options: GenerateOptions) -> Self {
        self.options = options;
        self
    }

    /// Texts per batch.
    pub fn batch_size(mut self, size: usize) -> Self {
        self.batch_size = size.max(1);
        self
    }

    /// The translation of each text.
    pub fn run(self) -> Result<Vec<Translation>, PretrainedError> {
        let mut all = Vec::with_capacity(self.texts.len());
        self.run_each(|translation| {
            all.push(translation);
            Ok::<(), PretrainedError>(())
        })?;
        Ok(all)
    }

    /// Calls `each` with the translation of each text in order, after each batch. All texts are tokenized before the first
    /// batch is translated.
    pub fn run_each<E: From<PretrainedError>>(
        self,
        mut each: impl FnMut(Translation) -> Result<(), E>,
    ) -> Result<(), E> {
        let Self {
            model: pretrained,
            texts,
            prefix,
            options,
            batch_size,
        } = self;
        let model = pretrained.model_with_heads()?;
        if model.config().encoder.is_none() {
            let path = pretrained.path.clone();
            return Err(pretrained
                .cannot(PretrainedError::NoEncoder { path })
                .into());
        }
        let tokenizer = pretrained.required_tokenizer()?;
        check_tokenizer(model, Some(tokenizer)).map_err(PretrainedError::from)?;
        let settings = &pretrained.description.generation;
        if settings.do_sample == Some(true) && options.num_beams.is_none() {
            settings
                .check_no_sampling()
                .map_err(PretrainedError::from)?;
        }
        settings
            .check_single_sequence()
            .map_err(PretrainedError::from)?;
        let num_beams = options.num_beams.or(settings.num_beams).unwrap_or(BEAMS);
        let config = options
            .beam_config(pretrained.decoding_context(1)?, num_beams)
            .map_err(PretrainedError::from)?;
        let mut sources: Vec<Option<Vec<u32>>> = Vec::with_capacity(texts.len());
        for (index, text) in texts.iter().enumerate() {
            let in_text = |source: GenerationError| PretrainedError::Source {
                number: index + 1,
                source,
            };
            let blank = text.trim().is_empty();
            sources.push(match blank {
                true => None,
                false => {
                    let ids = tokenizer.encode(&format!("{prefix}{text}"));
                    let ids = ids.map_err(|error| in_text(error.into()))?;
                    check_prompt(model, &ids).map_err(in_text)?;
                    Some(ids)
                }
            });
        }
        for batch in sources.chunks(batch_size) {
            let ids: Vec<Vec<u32>> = batch.iter().flatten().cloned().collect();
            let found = beam_search(model, &ids, &config).map_err(PretrainedError::from)?;
            let mut found = found.into_iter();
            for source in batch {
                let best: Option<Beam> = (source.as_ref())
                    .and_then(|_| found.next())
                    .and_then(|beams| beams.into_iter().next());
                let text = match &best {
                    Some(beam) => tokenizer.decode(&beam.ids).map_err(PretrainedError::from)?,
                    None => String::new(),
                };
                each(Translation {
                    text,
                    score: best.map(|beam| beam.score),
                })?;
            }
        }
        Ok(())
    }
}
