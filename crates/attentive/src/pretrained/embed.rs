//! Text embeddings.

use attentive_tasks::{EmbedConfig, Pooling, SentenceTransformersConfig, Text, embed};

use super::{BatchOptions, Pretrained, PretrainedError};

/// Embeds texts.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is run"]
pub struct Embed<'m> {
    model: &'m Pretrained,
    texts: Vec<Text>,
    pooling: Option<Pooling>,
    normalize: Option<bool>,
    batch: BatchOptions,
}

impl Pretrained {
    /// Embeds texts as vectors. Pooling and normalization are those of a sentence-transformers folder, or else the mean over the
    /// tokens, normalized.
    pub fn embed<T: Into<Text>>(&self, texts: impl IntoIterator<Item = T>) -> Embed<'_> {
        Embed {
            model: self,
            texts: texts.into_iter().map(Into::into).collect(),
            pooling: None,
            normalize: None,
            batch: BatchOptions::default(),
        }
    }
}

impl Embed<'_> {
    /// Pooling over the tokens.
    pub fn pooling(mut self, pooling: Pooling) -> Self {
        self.pooling = Some(pooling);
        self
    }

    /// Whether vectors are normalized to length one.
    pub fn normalize(mut self, normalize: bool) -> Self {
        self.normalize = Some(normalize);
        self
    }

    /// How texts are batched.
    pub fn batch(mut self, options: BatchOptions) -> Self {
        self.batch = options;
        self
    }

    /// The vector of each text.
    pub fn run(self) -> Result<Vec<Vec<f32>>, PretrainedError> {
        let folder = SentenceTransformersConfig::from_folder(&self.model.path)?;
        let config = EmbedConfig {
            pooling: (self.pooling)
                .unwrap_or(folder.map_or(Pooling::Mean, |folder| folder.pooling)),
            normalize: (self.normalize).unwrap_or(folder.is_none_or(|folder| folder.normalize)),
        };
        let max_length = folder.and_then(|folder| folder.max_length);
        let batcher = self.model.batcher(self.batch, max_length)?;
        Ok(embed(batcher, config, &self.texts)?)
    }
}
