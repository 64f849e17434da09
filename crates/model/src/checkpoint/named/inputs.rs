//! The inputs of a pass by Hugging Face's names, checked before anything is computed.

use std::ops::Range;

use burn::tensor::{Tensor, TensorData};

use super::super::CheckpointError;
use super::tensors::{Matrix, Tensors};
use crate::{AttentionConfig, BlockConfig, Input, Memory, MemoryStart, Model, ModelConfig, Source};

/// The inputs that a model reads.
pub fn inputs_of(config: &ModelConfig) -> Vec<&'static str> {
    if config.patches.is_some() {
        return vec!["pixel_values"];
    }
    let mut inputs = vec!["input_ids", "attention_mask"];
    if config.encoder.is_some() {
        inputs.extend(["decoder_input_ids", "decoder_attention_mask"]);
        return inputs;
    }
    inputs.push("position_ids");
    if config.embedding.types > 0 {
        inputs.push("token_type_ids");
    }
    let mut blocks = config.blocks.iter();
    if blocks.any(|block| matches!(block.attention, AttentionConfig::Longformer(_))) {
        inputs.push("global_attention_mask");
    }
    if config.blocks.iter().any(|block| block.cross.is_some()) {
        inputs.extend(["encoder_hidden_states", "encoder_attention_mask"]);
    }
    inputs
}

/// The inputs of a model, and where they are found.
pub struct Inputs<'a> {
    pub tensors: Tensors<'a>,
    pub model: &'a Model,
}

impl Inputs<'_> {
    /// What a model of one stack reads.
    pub fn own(&self) -> Result<Input, CheckpointError> {
        self.input(self.model.config(), "input_ids", "attention_mask")
    }

    /// What an encoder reads.
    pub fn encoder(&self) -> Result<Input, CheckpointError> {
        let config = self.model.config().encoder.as_deref();
        let config = config.expect("asked of models that have an encoder");
        self.input(config, "input_ids", "attention_mask")
    }

    /// What the decoder of an encoder reads.
    pub fn decoder(&self) -> Result<Input, CheckpointError> {
        let config = self.model.config();
        self.input(config, "decoder_input_ids", "decoder_attention_mask")
    }

    /// The states that a decoder without an encoder looks at.
    pub fn memory(&self) -> Result<Option<Memory>, CheckpointError> {
        let name = "encoder_hidden_states";
        let Some(shape) = self.tensors.file.shape(&self.tensors.whole(name)) else {
            let mask = "encoder_attention_mask";
            return match self.tensors.file.shape(&self.tensors.whole(mask)) {
                Some(_) => self
                    .tensors
                    .wrong(format!("{mask} is given without {name}; give both")),
                None => Ok(None),
            };
        };
        let config = self.model.config();
        if config.blocks.iter().all(|block| block.cross.is_none()) {
            return self.tensors.wrong(format!(
                "{name} is given, and no block looks at it; leave it out"
            ));
        }
        let (shape, width) = (shape.to_vec(), config.width);
        let [batch, length, _] = match shape.as_slice() {
            [batch, length, last] if *last == width && *batch > 0 && *length > 0 => {
                [*batch, *length, width]
            }
            _ => {
                return self.tensors.wrong(format!(
                    "{name} is {shape:?} and must be [batch, length, {width}]"
                ));
            }
        };
        let states = TensorData::new(
            self.tensors.file.floats(&self.tensors.whole(name))?,
            [batch, length, width],
        );
        let real = self
            .tensors
            .real("encoder_attention_mask", [batch, length])?;
        Ok(Some(Memory {
            real,
            ..Memory::new(Tensor::from_data(states, &self.model.device()))
        }))
    }

    fn input(&self, config: &ModelConfig, ids: &str, mask: &str) -> Result<Input, CheckpointError> {
        let device = self.model.device();
        if config.patches.is_some() {
            return self.pixels(config);
        }
        let ids = self.tensors.ids(ids, config.vocabulary, config.length)?;
        let shape = ids.shape;
        let keys = self.tensors.real(mask, shape)?;
        self.refuse_gap(config, mask, keys.as_deref())?;
        Ok(Input {
            source: Source::Ids(ids.tensor(&device)),
            keys,
            positions: self.positions(config, shape)?.map(|it| it.tensor(&device)),
            types: self.types(config, shape)?.map(|it| it.tensor(&device)),
            globals: self.globals(shape)?,
            ..Input::new(Tensor::zeros([0, 0], &device))
        })
    }

    /// Padding in front would part a memory of zeros from the text.
    fn refuse_gap(
        &self,
        config: &ModelConfig,
        mask: &str,
        keys: Option<&[Range<usize>]>,
    ) -> Result<(), CheckpointError> {
        let zeros = |block: &BlockConfig| match &block.attention {
            AttentionConfig::TransformerXl(config) => config.start == MemoryStart::Zeros,
            _ => false,
        };
        let padded = keys.is_some_and(|keys| keys.iter().any(|range| range.start > 0));
        match padded && config.blocks.iter().any(zeros) {
            true => self.tensors.wrong(format!(
                "{mask} has zeros in front, which would part the memory from the text; pad on the right"
            )),
            false => Ok(()),
        }
    }

    fn pixels(&self, config: &ModelConfig) -> Result<Input, CheckpointError> {
        let name = "pixel_values";
        let patches = config.patches.expect("asked of models of pictures");
        let whole = self.tensors.whole(name);
        let shape = self.tensors.file.shape(&whole).unwrap_or_default().to_vec();
        let size = patches.size;
        let fits = match shape.as_slice() {
            [batch, channels, height, width] => {
                *batch > 0
                    && *channels == patches.channels
                    && [height, width]
                        .iter()
                        .all(|it| **it > 0 && it.is_multiple_of(size))
            }
            _ => false,
        };
        if !fits {
            return self.tensors.wrong(format!(
                "{name} is {shape:?} and must be [batch, {}, height, width], both multiples of {size}",
                patches.channels
            ));
        }
        let data = TensorData::new(self.tensors.file.floats(&whole)?, shape);
        Ok(Input::pixels(Tensor::from_data(data, &self.model.device())))
    }

    fn types(
        &self,
        config: &ModelConfig,
        shape: [usize; 2],
    ) -> Result<Option<Matrix>, CheckpointError> {
        let name = "token_type_ids";
        let Some(types) = self.tensors.shaped(name, shape)? else {
            return Ok(None);
        };
        let most = config.embedding.types;
        match types
            .numbers
            .iter()
            .find(|it| !(0..most as i64).contains(it))
        {
            Some(_) if most == 0 => self.tensors.wrong(format!(
                "{name} are given, and this model has no kinds of segments; leave them out"
            )),
            Some(kind) => self
                .tensors
                .wrong(format!("{name} holds {kind}; kinds are 0 to {}", most - 1)),
            None => Ok(Some(types)),
        }
    }

    fn positions(
        &self,
        config: &ModelConfig,
        [batch, length]: [usize; 2],
    ) -> Result<Option<Matrix>, CheckpointError> {
        let name = "position_ids";
        let Some(positions) = self.tensors.matrix(name)? else {
            return Ok(None);
        };
        let [rows, columns] = positions.shape;
        if columns != length || (rows != batch && rows != 1) {
            return self.tensors.wrong(format!(
                "{name} is {:?} and must be [{batch}, {length}]",
                positions.shape
            ));
        }
        let Some(most) = config.positions.countable(config.length) else {
            return self.tensors.wrong(format!(
                "{name} are given, and this model goes by distances; leave them out"
            ));
        };
        let known = 0..most as i64;
        match positions.numbers.iter().find(|it| !known.contains(it)) {
            Some(position) => self.tensors.wrong(format!(
                "{name} holds {position}; positions are 0 to {}",
                most - 1
            )),
            None => Ok(Some(positions)),
        }
    }

    fn globals(&self, shape: [usize; 2]) -> Result<Option<Vec<Vec<usize>>>, CheckpointError> {
        let Some(flags) = self.tensors.shaped("global_attention_mask", shape)? else {
            return Ok(None);
        };
        let places = |row: &[i64]| {
            let flagged = row.iter().enumerate().filter(|(_, flag)| **flag != 0);
            flagged.map(|(place, _)| place).collect()
        };
        Ok(Some(flags.numbers.chunks(shape[1]).map(places).collect()))
    }
}
