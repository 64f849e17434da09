//! Classification of texts, images and tokens, masked tokens, and question answering.

use std::path::Path;

use attentive_images::Image;
use attentive_model::head::TokenTask;
use attentive_tasks::{
    AnswerSpan, ClassLabels, ClassScore, ClassifiedToken, MaskedToken, Text, answer,
    classify_images, classify_texts, classify_tokens, fill_mask,
};

use super::{BatchOptions, Pretrained, PretrainedError};

/// How many candidates are returned for a mask.
const CANDIDATES: usize = 5;

/// The maximum number of tokens of an answer.
const MAX_ANSWER_TOKENS: usize = 15;

/// Predicts masked tokens.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is run"]
pub struct Fill<'m> {
    model: &'m Pretrained,
    texts: Vec<Text>,
    top: usize,
    batch: BatchOptions,
}

/// Classifies texts, or pairs of them.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is run"]
pub struct Classify<'m> {
    model: &'m Pretrained,
    texts: Vec<Text>,
    batch: BatchOptions,
}

/// Classifies images.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is run"]
pub struct ClassifyImages<'m> {
    model: &'m Pretrained,
    images: Vec<Image>,
    batch_size: usize,
}

/// Labels the tokens of texts.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is run"]
pub struct Label<'m> {
    model: &'m Pretrained,
    texts: Vec<Text>,
    batch: BatchOptions,
}

/// Answers a question from a text.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is run"]
pub struct Answer<'m> {
    model: &'m Pretrained,
    question: String,
    context: String,
    top: usize,
    max_answer_tokens: usize,
}

impl Pretrained {
    /// Predicts the masked tokens of texts; `[MASK]` and `<mask>` stand for the tokenizer's mask token.
    pub fn fill<T: Into<Text>>(&self, texts: impl IntoIterator<Item = T>) -> Fill<'_> {
        Fill {
            model: self,
            texts: texts.into_iter().map(Into::into).collect(),
            top: CANDIDATES,
            batch: BatchOptions::default(),
        }
    }

    /// Classifies texts, or pairs of them (`("premise", "hypothesis")`).
    pub fn classify<T: Into<Text>>(&self, texts: impl IntoIterator<Item = T>) -> Classify<'_> {
        Classify {
            model: self,
            texts: texts.into_iter().map(Into::into).collect(),
            batch: BatchOptions::default(),
        }
    }

    /// Classifies images.
    pub fn classify_images(&self, images: impl IntoIterator<Item = Image>) -> ClassifyImages<'_> {
        ClassifyImages {
            model: self,
            images: images.into_iter().collect(),
            batch_size: BatchOptions::default().size,
        }
    }

    /// Classifies image files.
    pub fn classify_files<P: AsRef<Path>>(
        &self,
        files: impl IntoIterator<Item = P>,
    ) -> Result<ClassifyImages<'_>, PretrainedError> {
        let images = files.into_iter().map(|file| Image::open(file.as_ref()));
        Ok(self.classify_images(images.collect::<Result<Vec<_>, _>>()?))
    }

    /// Labels the tokens of texts, such as names of people and places.
    pub fn label<T: Into<Text>>(&self, texts: impl IntoIterator<Item = T>) -> Label<'_> {
        Label {
            model: self,
            texts: texts.into_iter().map(Into::into).collect(),
            batch: BatchOptions::default(),
        }
    }

    /// Answers a question with spans of a text.
    pub fn answer(&self, question: impl Into<String>, context: impl Into<String>) -> Answer<'_> {
        Answer {
            model: self,
            question: question.into(),
            context: context.into(),
            top: 1,
            max_answer_tokens: MAX_ANSWER_TOKENS,
        }
    }

    /// Whether the model labels tokens.
    pub fn labels_tokens(&self) -> bool {
        let classifier = self.model.config().token_classifier.as_ref();
        classifier.is_some_and(|it| it.task == TokenTask::Labels)
    }

    /// Whether the model reads images.
    pub fn reads_images(&self) -> bool {
        self.model.config().stack.patches.is_some()
    }
}

impl Fill<'_> {
    /// The number of candidates for each mask.
    pub fn top(mut self, count: usize) -> Self {
        self.top = count;
        self
    }

    /// How texts are batched.
    pub fn batch(mut self, options: BatchOptions) -> Self {
        self.batch = options;
        self
    }

    /// The masks of each text with their most probable tokens.
    pub fn run(self) -> Result<Vec<Vec<MaskedToken>>, PretrainedError> {
        self.model.model_with_heads()?;
        let batcher = self.model.batcher(self.batch, None)?;
        fill_mask(batcher, &self.texts, self.top).map_err(|error| self.model.cannot(error))
    }
}

impl Classify<'_> {
    /// How texts are batched.
    pub fn batch(mut self, options: BatchOptions) -> Self {
        self.batch = options;
        self
    }

    /// The classes of each text, highest score first.
    pub fn run(self) -> Result<Vec<Vec<ClassScore>>, PretrainedError> {
        self.model.model_with_heads()?;
        let batcher = self.model.batcher(self.batch, None)?;
        let labels = ClassLabels::from(&self.model.description);
        classify_texts(batcher, labels, &self.texts).map_err(|error| self.model.cannot(error))
    }
}

impl ClassifyImages<'_> {
    /// Images per batch.
    pub fn batch_size(mut self, size: usize) -> Self {
        self.batch_size = size;
        self
    }

    /// The classes of each image, highest score first.
    pub fn run(self) -> Result<Vec<Vec<ClassScore>>, PretrainedError> {
        let model = self.model.model_with_heads()?;
        if !self.model.reads_images() {
            return Err(self.model.cannot(PretrainedError::ReadsTexts));
        }
        let preprocessor = self.model.preprocessor()?;
        let labels = ClassLabels::from(&self.model.description);
        classify_images(model, &preprocessor, labels, &self.images, self.batch_size)
            .map_err(|error| self.model.cannot(error))
    }
}

impl Label<'_> {
    /// How texts are batched.
    pub fn batch(mut self, options: BatchOptions) -> Self {
        self.batch = options;
        self
    }

    /// The label of each token of each text, special tokens aside.
    pub fn run(self) -> Result<Vec<Vec<ClassifiedToken>>, PretrainedError> {
        self.model.model_with_heads()?;
        let batcher = self.model.batcher(self.batch, None)?;
        let labels = &self.model.description.labels;
        classify_tokens(batcher, labels, &self.texts).map_err(|error| self.model.cannot(error))
    }
}

impl Answer<'_> {
    /// The number of answers.
    pub fn top(mut self, count: usize) -> Self {
        self.top = count;
        self
    }

    /// The maximum number of tokens of an answer.
    pub fn max_answer_tokens(mut self, count: usize) -> Self {
        self.max_answer_tokens = count;
        self
    }

    /// The answers, most probable first.
    pub fn run(self) -> Result<Vec<AnswerSpan>, PretrainedError> {
        self.model.model_with_heads()?;
        let batcher = self.model.batcher(BatchOptions::default(), None)?;
        answer(
            batcher,
            &self.question,
            &self.context,
            self.top,
            self.max_answer_tokens,
        )
        .map_err(|error| self.model.cannot(error))
    }
}
