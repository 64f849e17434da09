//! The decoder-only transformer: embedding, blocks, norm, head.

use std::ops::Range;

use attentive_tensor::{Randomness, RotaryAngles, add, dropout, embedding, linear};
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor};

use crate::{
    Block, Cache, ConfigError, HeadConfig, Initializer, Linear, ModelConfig, Norm, Observer, Pass,
    PositionsConfig, Role, Site,
};

/// A transformer that predicts the next token.
#[derive(Module, Debug)]
pub struct LanguageModel {
    tokens: Embedding,
    positions: Option<Embedding>,
    blocks: Vec<Block>,
    final_norm: Option<Norm>,
    head: Option<Linear>,
    #[module(skip)]
    config: ModelConfig,
}

/// A table of vectors.
#[derive(Module, Debug)]
pub struct Embedding {
    /// `[entries, width]`
    weight: Param<Tensor<2>>,
}

/// What a pass reads.
#[derive(Clone, Debug)]
pub struct Input {
    /// Token ids, `[batch, length]`.
    pub ids: Tensor<2, Int>,
    /// Positions, `[batch or 1, length]`; counted on from what the cache holds unless said.
    pub positions: Option<Tensor<2, Int>>,
    /// Where padding leaves real tokens, one range per batch row, counted from the cache's first position.
    pub keys: Option<Vec<Range<usize>>>,
}

impl Input {
    /// Ids without padding, at the positions that follow the cache.
    pub fn new(ids: Tensor<2, Int>) -> Self {
        Self {
            ids,
            positions: None,
            keys: None,
        }
    }
}

/// What may go beside a pass.
#[derive(Default)]
pub struct Extras<'a> {
    /// Keys and values of earlier passes; this pass adds its own.
    pub cache: Option<&'a mut Cache>,
    /// Who looks on.
    pub observer: Option<&'a mut dyn Observer>,
    /// The source of dropout; without it nothing is dropped.
    pub randomness: Option<&'a mut Randomness>,
}

/// What a pass gives.
#[derive(Clone, Debug)]
pub struct Output {
    /// Scores of the next token, `[batch, length, vocabulary]`.
    pub logits: Tensor<3>,
    /// What the head read, `[batch, length, width]`.
    pub hidden: Tensor<3>,
}

impl LanguageModel {
    /// Builds a model with fresh weights, drawn from `seed` when they are first used.
    pub fn new(config: &ModelConfig, seed: u64, device: &Device) -> Result<Self, ConfigError> {
        config.validate()?;
        let initial = &mut Initializer::new(seed, device);
        let (width, deviation) = (config.width, config.initial_deviation);
        let mut table = |entries| Embedding {
            weight: initial.normal([entries, width], deviation),
        };
        let tokens = table(config.vocabulary);
        let positions = match config.positions {
            PositionsConfig::Learned {} => Some(table(config.length)),
            PositionsConfig::Rotary(_) => None,
        };
        let blocks = config
            .layer_blocks()
            .map(|block| Block::new(block, config, Role::Causal, initial))
            .collect();
        let final_norm = config
            .final_norm
            .as_ref()
            .map(|norm| Norm::new(norm, width, initial));
        let head = match config.head {
            HeadConfig::Tied => None,
            HeadConfig::Separate => Some(Linear::new(
                width,
                config.vocabulary,
                false,
                deviation,
                initial,
            )),
        };
        Ok(Self {
            tokens,
            positions,
            blocks,
            final_norm,
            head,
            config: config.clone(),
        })
    }

    /// The settings it was built from.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The device of its weights.
    pub fn device(&self) -> Device {
        self.tokens.weight.lazy_device()
    }

    /// Logits of every position.
    pub fn forward(&self, input: Input, extras: Extras) -> Output {
        let hidden = self.hidden(input, extras);
        Output {
            logits: self.logits(hidden.clone()),
            hidden,
        }
    }

    /// The hidden state that the head reads, `[batch, length, width]`.
    pub fn hidden(&self, input: Input, extras: Extras) -> Tensor<3> {
        let Extras {
            cache,
            observer,
            randomness,
        } = extras;
        let [batch, length] = input.ids.dims();
        let positions = input.positions.unwrap_or_else(|| {
            let start = cache.as_ref().map_or(0, |cache| cache.length()) as i64;
            Tensor::<1, Int>::arange(start..start + length as i64, &input.ids.device())
                .reshape([1, length])
        });
        let rotary = match &self.config.positions {
            PositionsConfig::Rotary(rotary) => Some(RotaryAngles::new(
                positions.clone(),
                self.config.head_width(),
                rotary.theta,
            )),
            PositionsConfig::Learned {} => None,
        };
        let mut pass = Pass {
            real: input.keys,
            rotary,
            cache,
            observer,
            randomness,
        };
        let mut x = embedding(self.tokens.weight.val(), input.ids);
        if let Some(table) = &self.positions {
            let positions = positions.expand([batch, length]);
            x = add(x, embedding(table.weight.val(), positions));
        }
        x = dropout(
            x,
            self.config.embedding_dropout,
            pass.randomness.as_deref_mut(),
        );
        x = pass.observe(Site::Embedding, x);
        for (layer, block) in self.blocks.iter().enumerate() {
            x = block.forward(x, layer, &mut pass);
        }
        if let Some(cache) = pass.cache.as_deref_mut() {
            cache.advance(length);
        }
        if let Some(norm) = &self.final_norm {
            x = norm.forward(x);
        }
        pass.observe(Site::Final, x)
    }

    /// Scores of the next token for each hidden state.
    pub fn logits(&self, hidden: Tensor<3>) -> Tensor<3> {
        match &self.head {
            Some(head) => head.forward(hidden),
            None => linear(hidden, self.tokens.weight.val(), None),
        }
    }
}
