//! A stack of blocks with what it reads: from ids or pixels to hidden states.

use std::ops::Range;

use attentive_tensor::{Randomness, add, dropout, embedding};
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::clusters::embed;
use crate::positions::interpolated;
use crate::question::question_lengths;
use crate::{
    Axial, Block, Cache, ClusterEmbedding, DistanceBias, Embedding, Initializer, Linear, Memory,
    ModelConfig, Norm, Observer, Pass, Patches, PositionsConfig, Residual, Site, sinusoid,
};

/// Embeddings, blocks and the norm after them.
#[derive(Module, Debug)]
pub struct Stack {
    tokens: Option<Embedding>,
    clusters: Vec<ClusterEmbedding>,
    patches: Option<Patches>,
    positions: Option<Embedding>,
    axial: Option<Axial>,
    types: Option<Embedding>,
    embedding_norm: Option<Norm>,
    embedding_map: Option<Linear>,
    blocks: Vec<Block>,
    final_norm: Option<Norm>,
    #[module(skip)]
    config: ModelConfig,
}

/// What a pass reads.
#[derive(Clone, Debug)]
pub struct Input {
    /// The sequences.
    pub source: Source,
    /// Positions, `[batch or 1, length]`, where they are learned as rows of their table; counted on from what the cache
    /// holds unless said. A model whose positions are distances, or that has none, panics when given them rather than leave
    /// them unused.
    pub positions: Option<Tensor<2, Int>>,
    /// To which kind of segment each token belongs, `[batch, length]`; the first unless said.
    pub types: Option<Tensor<2, Int>>,
    /// Where padding leaves real tokens, one range per batch row, counted from the cache's first position.
    pub keys: Option<Vec<Range<usize>>>,
    /// Which positions see all and are seen by all; those of the settings unless said. See [`Pass::globals`].
    pub globals: Option<Vec<Vec<usize>>>,
    /// The sequence that cross attention looks at: what [`crate::Model::encode`] gave, or states from elsewhere.
    pub memory: Option<Memory>,
}

/// The sequences that a pass reads.
#[derive(Clone, Debug)]
pub enum Source {
    /// Token ids, `[batch, length]`.
    Ids(Tensor<2, Int>),
    /// Pictures, `[batch, channels, height, width]`.
    Pixels(Tensor<4>),
}

impl Input {
    /// Ids without padding, at the positions that follow the cache.
    pub fn new(ids: Tensor<2, Int>) -> Self {
        Self::of(Source::Ids(ids))
    }

    /// Pictures.
    pub fn pixels(pixels: Tensor<4>) -> Self {
        Self::of(Source::Pixels(pixels))
    }

    fn of(source: Source) -> Self {
        Self {
            source,
            positions: None,
            types: None,
            keys: None,
            globals: None,
            memory: None,
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

/// What the layers give, before the heads.
#[derive(Clone, Debug)]
pub struct Hidden {
    /// What the heads read, `[batch, length, width]`.
    pub states: Tensor<3>,
    /// What layers ask training to add to its loss, weighted and summed: the balance of mixtures of experts. None where no
    /// layer asks.
    pub auxiliary_loss: Option<Tensor<1>>,
}

impl Stack {
    /// Builds the stack of settings that are valid.
    pub(crate) fn new(config: &ModelConfig, initial: &mut Initializer) -> Self {
        let (width, narrow) = (config.width, config.embedding_width());
        let deviation = config.initial_deviation;
        let reads_tokens = config.patches.is_none()
            && config.embedding.clusters.is_none()
            && !config.embedding.shared;
        let mut table = |shape| Embedding::new(shape, deviation, initial);
        let tokens = reads_tokens.then(|| table([config.vocabulary, narrow]));
        let positions = config.positions.table(config).map(&mut table);
        let axial = match &config.positions {
            PositionsConfig::Axial(axial) => Some(Axial::new(axial, deviation, initial)),
            _ => None,
        };
        let mut table = |shape| Embedding::new(shape, deviation, initial);
        let types = config.embedding.types;
        let types = (types > 0).then(|| table([types, narrow]));
        Self {
            tokens,
            clusters: (config.embedding.clusters.as_ref())
                .map(|clusters| ClusterEmbedding::all(clusters, config, initial))
                .unwrap_or_default(),
            patches: (config.patches.as_ref())
                .map(|patches| Patches::new(patches, width, deviation, initial)),
            positions,
            axial,
            types,
            embedding_norm: (config.embedding.norm.as_ref())
                .map(|norm| Norm::new(norm, narrow, initial)),
            embedding_map: (config.embedding.width.is_some())
                .then(|| Linear::new(narrow, width, true, deviation, initial)),
            blocks: config
                .layer_blocks()
                .map(|block| Block::new(block, config, config.role, initial))
                .collect(),
            final_norm: (config.final_norm.as_ref())
                .map(|norm| Norm::new(norm, config.states_width(), initial)),
            config: config.clone(),
        }
    }

    /// The settings it was built from.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The table of tokens, `[vocabulary, width]`.
    ///
    /// # Panics
    /// When it has none of its own.
    pub fn tokens(&self) -> Tensor<2> {
        let tokens = self.tokens.as_ref();
        tokens
            .expect("stack: there is no table of tokens here")
            .weight
            .val()
    }

    /// The clusters of tokens, where they are in such.
    pub fn clusters(&self) -> &[ClusterEmbedding] {
        &self.clusters
    }

    /// The device of its weights.
    pub(crate) fn device(&self) -> Device {
        match (&self.tokens, &self.patches, self.clusters.first()) {
            (Some(tokens), ..) => tokens.weight.lazy_device(),
            (None, Some(patches), _) => patches.device(),
            (None, None, Some(cluster)) => cluster.table().lazy_device(),
            (None, None, None) => panic!("stack: an encoder's device is that of its decoder"),
        }
    }

    /// Draws anew what is drawn anew at this step.
    pub(crate) fn redraw(self, step: u64) -> Self {
        let blocks = self.blocks.into_iter();
        Self {
            blocks: blocks.map(|block| block.redraw(step)).collect(),
            ..self
        }
    }

    /// The hidden states of a pass; `shared` is the table of tokens, where this stack has none of its own.
    ///
    /// # Panics
    /// When positions, kinds of segments or another sequence are given to a stack that cannot use them, or ids to one that
    /// reads pictures, or the reverse.
    pub fn forward(&self, input: Input, shared: Option<Tensor<2>>, extras: Extras) -> Hidden {
        let Extras {
            cache,
            observer,
            randomness,
        } = extras;
        let start = cache.as_ref().map_or(0, |cache| cache.length());
        let (vectors, positions) = self.embed(&input, shared, start);
        let [_, length, _] = vectors.dims();
        let crossed = self.config.blocks.iter().any(|block| block.cross.is_some());
        assert!(
            crossed || input.memory.is_none(),
            "stack: another sequence was given, and no block looks at one"
        );
        let real_tokens = input.keys.as_ref().map(|keys| {
            let real = |range: &Range<usize>| {
                let range = range.clone();
                (start..start + length).map(move |position| range.contains(&position))
            };
            keys.iter().flat_map(real).collect()
        });
        let globals = match (&input.source, self.config.globals) {
            (Source::Ids(ids), Some(config)) => input.globals.or_else(|| Some(config.of(ids))),
            _ => input.globals,
        };
        let mut pass = Pass {
            real: input.keys,
            memory: input.memory,
            globals,
            rotary: self
                .config
                .positions
                .angles(&positions, self.config.head_width()),
            distance_bias: self.distance_bias(&vectors.device()),
            real_tokens,
            cache,
            observer,
            randomness,
            ..Pass::default()
        };
        let mut x = dropout(
            vectors,
            self.config.embedding_dropout,
            pass.randomness.as_deref_mut(),
        );
        if let Some(map) = &self.embedding_map {
            x = map.forward(x);
        }
        x = pass.observe(Site::Embedding, x);
        let mut residual = Residual::new(self.config.residual, x);
        for (layer, block) in self.passed().enumerate() {
            residual = block.forward(residual, layer, &mut pass);
        }
        let stream = residual.joined();
        if let Some(cache) = pass.cache.as_deref_mut() {
            cache.advance(length);
        }
        let x = match &self.final_norm {
            Some(norm) => stream.normed(norm),
            None => stream.whole(),
        };
        Hidden {
            states: pass.observe(Site::Final, x),
            auxiliary_loss: pass.auxiliary_loss(),
        }
    }

    /// The blocks in the order of a pass.
    fn passed(&self) -> impl Iterator<Item = &Block> {
        let order = &self.config.order;
        let passes = match order.len() {
            0 => self.blocks.len(),
            passes => passes,
        };
        (0..passes).map(move |at| &self.blocks[order.get(at).copied().unwrap_or(at)])
    }

    /// The sum of all vectors, normalized, and the positions they stand for.
    fn embed(
        &self,
        input: &Input,
        shared: Option<Tensor<2>>,
        start: usize,
    ) -> (Tensor<3>, Tensor<2, Int>) {
        let (x, positions) = match (&input.source, &self.patches) {
            (Source::Pixels(pixels), Some(patches)) => {
                let (x, grid) = patches.forward(pixels.clone());
                let positions = counted(0, x.dims()[1], &x.device());
                (self.placed_in_grid(x, grid), positions)
            }
            (Source::Ids(ids), None) => {
                let mut x = match self.clusters.as_slice() {
                    [] => embedding(shared.unwrap_or_else(|| self.tokens()), ids.clone()),
                    clusters => embed(clusters, ids),
                };
                if let Some(scale) = self.config.embedding.scale(&self.config) {
                    x = x * scale;
                }
                let x = self.with_types(x, ids, input.types.as_ref());
                let positions = self.positions_of(input, ids, start);
                (self.with_positions(x, positions.clone()), positions)
            }
            (Source::Ids(_), Some(_)) => panic!("stack: ids were given to a model of pictures"),
            (Source::Pixels(_), None) => panic!("stack: pixels were given to a model of tokens"),
        };
        match &self.embedding_norm {
            Some(norm) => (norm.forward(x), positions),
            None => (x, positions),
        }
    }

    /// The positions that were given, or those that follow the `start` that a cache holds.
    fn positions_of(&self, input: &Input, ids: &Tensor<2, Int>, start: usize) -> Tensor<2, Int> {
        let config = &self.config.positions;
        if let Some(positions) = &input.positions {
            assert!(
                config.countable(self.config.length).is_some(),
                "stack: positions {:?} were given, and {config:?} cannot use them",
                positions.dims()
            );
            return positions.clone();
        }
        match config {
            PositionsConfig::Learned(learned) => learned.rows(ids, start),
            _ => counted(start, ids.dims()[1], &ids.device()),
        }
    }

    /// The vectors with those of their kinds of segments, where there are kinds.
    fn with_types(
        &self,
        x: Tensor<3>,
        ids: &Tensor<2, Int>,
        given: Option<&Tensor<2, Int>>,
    ) -> Tensor<3> {
        let [batch, length, _] = x.dims();
        let Some(table) = &self.types else {
            assert!(
                given.is_none(),
                "stack: kinds of segments were given, and the model has none"
            );
            return x;
        };
        let types = match (given, self.config.embedding.question_end) {
            (Some(types), _) => types.clone(),
            (None, Some(end)) => {
                let ends = question_lengths(ids, end).into_iter();
                let kinds = ends.flat_map(|end| (0..length).map(move |at| i64::from(at >= end)));
                let kinds = TensorData::new(kinds.collect::<Vec<_>>(), [batch, length]);
                Tensor::from_data(kinds, &x.device())
            }
            (None, None) => Tensor::zeros([batch, length], &x.device()),
        };
        add(x, table.forward(types))
    }

    /// The vectors with those of their positions, where positions are added.
    fn with_positions(&self, x: Tensor<3>, positions: Tensor<2, Int>) -> Tensor<3> {
        let [batch, length, width] = x.dims();
        match (&self.config.positions, &self.positions) {
            (PositionsConfig::Learned(_), Some(table)) => {
                add(x, table.forward(positions.expand([batch, length])))
            }
            (PositionsConfig::Axial(_), _) => {
                let axial = self
                    .axial
                    .as_ref()
                    .expect("stack: axial positions have tables");
                add(x, axial.forward(positions.expand([batch, length])))
            }
            (PositionsConfig::Sinusoidal(config), _) => {
                let vectors = sinusoid(positions, width, config.layout);
                add(x, vectors.expand([batch, length, width]))
            }
            _ => x,
        }
    }

    /// The patches of a picture with the vectors of their places, which are interpolated for a picture of another size.
    fn placed_in_grid(&self, x: Tensor<3>, grid: [usize; 2]) -> Tensor<3> {
        let (Some(config), Some(table)) = (&self.config.patches, &self.positions) else {
            let positions = counted(0, x.dims()[1], &x.device());
            return self.with_positions(x, positions);
        };
        let mut table = table.weight.val();
        if grid != config.grid() {
            table = interpolated(table, config.tokens, config.grid(), grid);
        }
        let [batch, length, width] = x.dims();
        add(
            x,
            table.unsqueeze_dim::<3>(0).expand([batch, length, width]),
        )
    }

    /// The biases by distance, where positions are such.
    fn distance_bias(&self, device: &Device) -> Option<DistanceBias> {
        match (&self.config.positions, &self.positions) {
            (PositionsConfig::Alibi {}, _) => {
                Some(DistanceBias::alibi(self.config.heads(), device))
            }
            (PositionsConfig::T5Buckets(config), Some(table)) => {
                Some(DistanceBias::t5_buckets(config, table.weight.val()))
            }
            _ => None,
        }
    }
}

/// `[1, length]`, counted from `start`.
fn counted(start: usize, length: usize, device: &Device) -> Tensor<2, Int> {
    let (start, end) = (start as i64, (start + length) as i64);
    Tensor::<1, Int>::arange(start..end, device).reshape([1, length])
}
