//! Embeddings and a stack of blocks: from ids or pixels to hidden states.

use std::ops::Range;

use attentive_tensor::{Randomness, add, dropout, embedding};
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};

use crate::attention::Memory;
use crate::block::{Block, Residual};
use crate::embeddings::embed;
use crate::embeddings::{AdaptiveEmbedding, Embedding, Patches};
use crate::positions::interpolated;
use crate::positions::{Axial, PositionsConfig, RelativePositionBias, sinusoid};
use crate::{Cache, ForwardContext, Initializer, Linear, Norm, Observer, Site, StackConfig};

/// Embeddings, blocks and the norm after them.
#[derive(Module, Debug)]
pub struct Stack {
    tokens: Option<Embedding>,
    clusters: Vec<AdaptiveEmbedding>,
    patches: Option<Patches>,
    positions: Option<Embedding>,
    axial: Option<Axial>,
    types: Option<Embedding>,
    embedding_norm: Option<Norm>,
    embedding_projection: Option<Linear>,
    blocks: Vec<Block>,
    final_norm: Option<Norm>,
    #[module(skip)]
    config: StackConfig,
}

/// The input of a forward pass.
#[derive(Clone, Debug)]
pub struct Input {
    /// Token ids or images.
    pub data: InputData,
    /// Position ids, `[batch or 1, length]`; by default they continue from the length of the cache. A model without absolute
    /// positions panics if they are given.
    pub positions: Option<Tensor<2, Int>>,
    /// Token type ids, `[batch, length]`; 0 by default.
    pub types: Option<Tensor<2, Int>>,
    /// The range of tokens of each batch row that are not padding, counted from the cache's first position; all by default.
    pub non_padding: Option<Vec<Range<usize>>>,
    /// Positions with global attention; those of the settings by default. See [`ForwardContext::globals`].
    pub globals: Option<Vec<Vec<usize>>>,
    /// The keys and values of cross-attention: the result of [`crate::Model::encode`], or states from elsewhere.
    pub memory: Option<Memory>,
}

/// Token ids or images.
#[derive(Clone, Debug)]
pub enum InputData {
    /// Token ids, `[batch, length]`.
    Ids(Tensor<2, Int>),
    /// Images, `[batch, channels, height, width]`.
    Pixels(Tensor<4>),
}

impl Input {
    /// Token ids without padding, at the positions that follow the cache.
    pub fn new(ids: Tensor<2, Int>) -> Self {
        Self::of(InputData::Ids(ids))
    }

    /// Images.
    pub fn pixels(pixels: Tensor<4>) -> Self {
        Self::of(InputData::Pixels(pixels))
    }

    fn of(data: InputData) -> Self {
        Self {
            data,
            positions: None,
            types: None,
            non_padding: None,
            globals: None,
            memory: None,
        }
    }
}

/// Options of a forward pass.
#[derive(Default)]
pub struct ForwardOptions<'a> {
    /// The KV cache, which this pass reads and extends.
    pub cache: Option<&'a mut Cache>,
    /// Sees and may replace hidden states and attention weights.
    pub observer: Option<&'a mut dyn Observer>,
    /// The generator of dropout masks; without it dropout is off.
    pub randomness: Option<&'a mut Randomness>,
}

/// The result of a stack, before the heads.
#[derive(Clone, Debug)]
pub struct HiddenStates {
    /// The last hidden states, `[batch, length, width]`.
    pub states: Tensor<3>,
    /// What training adds to its loss, weighted and summed over layers: the balancing losses of mixtures of experts. None
    /// where no layer has any.
    pub auxiliary_loss: Option<Tensor<1>>,
}

impl Stack {
    /// Builds the stack; `config` must be valid.
    pub(crate) fn new(config: &StackConfig, initializer: &mut Initializer) -> Self {
        let (width, narrow) = (config.width, config.embedding_width());
        let std = config.init_std;
        let reads_tokens = config.patches.is_none()
            && config.embedding.adaptive.is_none()
            && !config.embedding.shared;
        let mut table = |shape| Embedding::new(shape, std, initializer);
        let tokens = reads_tokens.then(|| table([config.vocabulary, narrow]));
        let positions = config.positions.table_shape(config).map(&mut table);
        let axial = match &config.positions {
            PositionsConfig::Axial(axial) => Some(Axial::new(axial, std, initializer)),
            _ => None,
        };
        let mut table = |shape| Embedding::new(shape, std, initializer);
        let types = config.embedding.types;
        let types = (types > 0).then(|| table([types, narrow]));
        Self {
            tokens,
            clusters: (config.embedding.adaptive.as_ref())
                .map(|adaptive| AdaptiveEmbedding::all(adaptive, config, initializer))
                .unwrap_or_default(),
            patches: (config.patches.as_ref())
                .map(|patches| Patches::new(patches, width, std, initializer)),
            positions,
            axial,
            types,
            embedding_norm: (config.embedding.norm.as_ref())
                .map(|norm| Norm::new(norm, narrow, initializer)),
            embedding_projection: (config.embedding.width.is_some())
                .then(|| Linear::new(narrow, width, true, std, initializer)),
            blocks: config
                .stored_blocks()
                .map(|block| Block::new(block, config, config.role, initializer))
                .collect(),
            final_norm: (config.final_norm.as_ref())
                .map(|norm| Norm::new(norm, config.states_width(), initializer)),
            config: config.clone(),
        }
    }

    /// The settings it was built from.
    pub fn config(&self) -> &StackConfig {
        &self.config
    }

    /// The token embedding, `[vocabulary, width]`.
    ///
    /// # Panics
    /// When the stack has none of its own.
    pub fn tokens(&self) -> Tensor<2> {
        let tokens = self.tokens.as_ref();
        tokens
            .expect("stack: this stack has no token embedding of its own")
            .weight
            .val()
    }

    /// The clusters of an adaptive embedding; empty without one.
    pub fn clusters(&self) -> &[AdaptiveEmbedding] {
        &self.clusters
    }

    /// The device of its weights.
    pub(crate) fn device(&self) -> Device {
        // A valid stack has a block, with weights, and all weights are on one device.
        self.blocks
            .first()
            .map_or_else(Device::default, Block::device)
    }

    /// Resamples random features when due.
    pub(crate) fn resample_features(self, step: u64) -> Self {
        let blocks = self.blocks.into_iter();
        Self {
            blocks: blocks.map(|block| block.resample_features(step)).collect(),
            ..self
        }
    }

    /// A forward pass; `shared` is the token embedding of a stack that has none of its own.
    ///
    /// # Panics
    /// When the stack cannot use the positions, token types or memory that it is given, or is given ids where it reads images,
    /// or the reverse.
    pub fn forward(
        &self,
        input: Input,
        shared: Option<Tensor<2>>,
        options: ForwardOptions,
    ) -> HiddenStates {
        let ForwardOptions {
            cache,
            observer,
            randomness,
        } = options;
        let start = cache.as_ref().map_or(0, |cache| cache.length());
        let (embeddings, positions) = self.embed(&input, shared, start);
        let [_, length, _] = embeddings.dims();
        let has_cross = self.config.blocks.iter().any(|block| block.cross.is_some());
        assert!(
            has_cross || input.memory.is_none(),
            "stack: a memory was given, and no block has cross-attention"
        );
        let token_mask = input.non_padding.as_ref().map(|keys| {
            let non_padding = |range: &Range<usize>| {
                let range = range.clone();
                (start..start + length).map(move |position| range.contains(&position))
            };
            keys.iter().flat_map(non_padding).collect()
        });
        let globals = match (&input.data, self.config.globals) {
            (InputData::Ids(ids), Some(config)) => input.globals.or_else(|| Some(config.of(ids))),
            _ => input.globals,
        };
        let mut pass = ForwardContext {
            non_padding: input.non_padding,
            memory: input.memory,
            globals,
            rotary: self
                .config
                .positions
                .rotary_angles(&positions, self.config.head_width()),
            relative_position_bias: self.relative_position_bias(&embeddings.device()),
            token_mask,
            cache,
            observer,
            randomness,
            ..ForwardContext::default()
        };
        let mut x = dropout(
            embeddings,
            self.config.embedding_dropout,
            pass.randomness.as_deref_mut(),
        );
        if let Some(projection) = &self.embedding_projection {
            x = projection.forward(x);
        }
        x = pass.observe(Site::Embedding, x);
        let mut residual = Residual::new(self.config.residual, x);
        for (layer, block) in self.unrolled().enumerate() {
            residual = block.forward(residual, layer, &mut pass);
        }
        let stream = residual.concatenated();
        if let Some(cache) = pass.cache.as_deref_mut() {
            cache.advance(length);
        }
        let x = match &self.final_norm {
            Some(norm) => stream.add_norm(norm),
            None => stream.materialize(),
        };
        HiddenStates {
            states: pass.observe(Site::Final, x),
            auxiliary_loss: pass.auxiliary_loss(),
        }
    }

    /// The block of each layer, in the order of a forward pass.
    fn unrolled(&self) -> impl Iterator<Item = &Block> {
        let order = &self.config.order;
        let layers = match order.len() {
            0 => self.blocks.len(),
            layers => layers,
        };
        (0..layers).map(move |at| &self.blocks[order.get(at).copied().unwrap_or(at)])
    }

    /// The sum of all embeddings, normalized, and their positions.
    fn embed(
        &self,
        input: &Input,
        shared: Option<Tensor<2>>,
        start: usize,
    ) -> (Tensor<3>, Tensor<2, Int>) {
        let (x, positions) = match (&input.data, &self.patches) {
            (InputData::Pixels(pixels), Some(patches)) => {
                let (x, grid) = patches.forward(pixels.clone());
                let positions = counted(0, x.dims()[1], &x.device());
                (self.with_grid_positions(x, grid), positions)
            }
            (InputData::Ids(ids), None) => {
                let mut x = match self.clusters.as_slice() {
                    [] => embedding(shared.unwrap_or_else(|| self.tokens()), ids.clone()),
                    clusters => embed(clusters, ids),
                };
                if let Some(scale) = self.config.embedding.scale(&self.config) {
                    x = x * scale;
                }
                let x = self.with_types(x, input.types.as_ref());
                let positions = self.positions_of(input, ids, start);
                (self.with_positions(x, positions.clone()), positions)
            }
            (InputData::Ids(_), Some(_)) => panic!("stack: ids were given to a model of images"),
            (InputData::Pixels(_), None) => panic!("stack: pixels were given to a model of tokens"),
        };
        match &self.embedding_norm {
            Some(norm) => (norm.forward(x), positions),
            None => (x, positions),
        }
    }

    /// The positions that were given, or those from `start` on, the length of the cache.
    fn positions_of(&self, input: &Input, ids: &Tensor<2, Int>, start: usize) -> Tensor<2, Int> {
        let config = &self.config.positions;
        if let Some(positions) = &input.positions {
            assert!(
                config.position_count(self.config.length).is_some(),
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

    /// Adds token type embeddings, where the model has them.
    fn with_types(&self, x: Tensor<3>, given: Option<&Tensor<2, Int>>) -> Tensor<3> {
        let [batch, length, _] = x.dims();
        let Some(table) = &self.types else {
            assert!(
                given.is_none(),
                "stack: token types were given, and the model has none"
            );
            return x;
        };
        let types = given.cloned();
        let types = types.unwrap_or_else(|| Tensor::zeros([batch, length], &x.device()));
        add(x, table.forward(types))
    }

    /// Adds position embeddings, where positions are absolute.
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
                let embeddings = sinusoid(positions, width, config.layout);
                add(x, embeddings.expand([batch, length, width]))
            }
            _ => x,
        }
    }

    /// Adds the position embeddings of an image's patches, interpolated for an image of another size.
    fn with_grid_positions(&self, x: Tensor<3>, grid: [usize; 2]) -> Tensor<3> {
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

    /// The relative position bias of attention scores, where the model has one.
    fn relative_position_bias(&self, device: &Device) -> Option<RelativePositionBias> {
        match (&self.config.positions, &self.positions) {
            (PositionsConfig::Alibi {}, _) => {
                Some(RelativePositionBias::alibi(self.config.heads(), device))
            }
            (PositionsConfig::T5Buckets(config), Some(table)) => {
                Some(RelativePositionBias::t5_buckets(config, table.weight.val()))
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
