//! The decoder-only transformer: embedding, blocks, norm, head.

use std::ops::Range;

use attentive_tensor::{Randomness, add, dropout, embedding, linear};
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor};

use crate::{
    Block, Cache, ConfigError, DistanceBias, HeadConfig, Initializer, Linear, ModelConfig, Norm,
    Observer, Pass, PositionsConfig, Role, SinusoidLayout, Site, sinusoid,
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
    /// `[entries, width]`; of T5's positions, `[buckets, heads]`
    weight: Param<Tensor<2>>,
}

/// What a pass reads.
#[derive(Clone, Debug)]
pub struct Input {
    /// Token ids, `[batch, length]`.
    pub ids: Tensor<2, Int>,
    /// Positions, `[batch or 1, length]`; counted on from what the cache holds unless said. A model whose positions are
    /// distances, or that has none, panics when given them rather than leave them unused.
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
    /// What training adds to its loss; see [`Hidden::auxiliary_loss`].
    pub auxiliary_loss: Option<Tensor<1>>,
}

/// What the layers give, before the head.
#[derive(Clone, Debug)]
pub struct Hidden {
    /// What the head reads, `[batch, length, width]`.
    pub states: Tensor<3>,
    /// What layers ask training to add to its loss, weighted and summed: the balance of mixtures of experts. None where no
    /// layer asks.
    pub auxiliary_loss: Option<Tensor<1>>,
}

impl LanguageModel {
    /// Builds a model with fresh weights, drawn from `seed` when they are first used.
    pub fn new(config: &ModelConfig, seed: u64, device: &Device) -> Result<Self, ConfigError> {
        config.validate()?;
        let initial = &mut Initializer::new(seed, device);
        let (width, deviation) = (config.width, config.initial_deviation);
        let mut table = |shape| Embedding {
            weight: initial.normal(shape, deviation),
        };
        let tokens = table([config.vocabulary, width]);
        let positions = config.positions.table(config).map(table);
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

    /// Draws anew what is drawn anew at this step: a Performer's features, if their settings say so.
    #[must_use]
    pub fn redraw(self, step: u64) -> Self {
        let blocks = self.blocks.into_iter();
        Self {
            blocks: blocks.map(|block| block.redraw(step)).collect(),
            ..self
        }
    }

    /// Logits of every position.
    pub fn forward(&self, input: Input, extras: Extras) -> Output {
        let Hidden {
            states,
            auxiliary_loss,
        } = self.hidden(input, extras);
        Output {
            logits: self.logits(states.clone()),
            hidden: states,
            auxiliary_loss,
        }
    }

    /// The hidden state that the head reads.
    ///
    /// # Panics
    /// When positions are given to a model that cannot use them.
    pub fn hidden(&self, input: Input, extras: Extras) -> Hidden {
        let Extras {
            cache,
            observer,
            randomness,
        } = extras;
        let [_, length] = input.ids.dims();
        let start = cache.as_ref().map_or(0, |cache| cache.length());
        let positions = self.positions_of(&input, start);
        let real_tokens = input.keys.as_ref().map(|keys| {
            let real = |range: &Range<usize>| {
                let range = range.clone();
                (start..start + length).map(move |position| range.contains(&position))
            };
            keys.iter().flat_map(real).collect()
        });
        let mut pass = Pass {
            real: input.keys,
            rotary: self
                .config
                .positions
                .angles(&positions, self.config.head_width()),
            distance_bias: self.distance_bias(),
            real_tokens,
            cache,
            observer,
            randomness,
            ..Pass::default()
        };
        let x = embedding(self.tokens.weight.val(), input.ids);
        let x = self.with_positions(x, positions);
        let mut x = dropout(
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
        Hidden {
            states: pass.observe(Site::Final, x),
            auxiliary_loss: pass.auxiliary_loss(),
        }
    }

    /// The positions that were given, or those that follow the `start` that a cache holds.
    fn positions_of(&self, input: &Input, start: usize) -> Tensor<2, Int> {
        let [_, length] = input.ids.dims();
        if let Some(positions) = &input.positions {
            let config = &self.config.positions;
            assert!(
                config.countable(self.config.length).is_some(),
                "language_model: positions {:?} were given, and {config:?} cannot use them",
                positions.dims()
            );
            return positions.clone();
        }
        let (start, length) = (start as i64, length as i64);
        Tensor::<1, Int>::arange(start..start + length, &input.ids.device())
            .reshape([1, length as usize])
    }

    /// The tokens' vectors with those of their positions, where positions are added.
    fn with_positions(&self, x: Tensor<3>, positions: Tensor<2, Int>) -> Tensor<3> {
        let [batch, length, width] = x.dims();
        let vectors = match (&self.config.positions, &self.positions) {
            (PositionsConfig::Learned {}, Some(table)) => {
                embedding(table.weight.val(), positions.expand([batch, length]))
            }
            (PositionsConfig::Sinusoidal {}, _) => {
                let vectors = sinusoid(positions, width, SinusoidLayout::Interleaved);
                // The paper multiplies the tokens' vectors, which sines of length √(width / 2) would drown otherwise.
                return add(
                    x * (width as f64).sqrt(),
                    vectors.expand([batch, length, width]),
                );
            }
            _ => return x,
        };
        add(x, vectors)
    }

    /// The biases by distance, where positions are such.
    fn distance_bias(&self) -> Option<DistanceBias> {
        match (&self.config.positions, &self.positions) {
            (PositionsConfig::Alibi {}, _) => {
                Some(DistanceBias::alibi(self.config.heads(), &self.device()))
            }
            (PositionsConfig::T5Buckets(config), Some(table)) => {
                Some(DistanceBias::t5_buckets(config, table.weight.val()))
            }
            _ => None,
        }
    }

    /// Scores of the next token for each hidden state.
    pub fn logits(&self, hidden: Tensor<3>) -> Tensor<3> {
        match &self.head {
            Some(head) => head.forward(hidden),
            None => linear(hidden, self.tokens.weight.val(), None),
        }
    }
}
