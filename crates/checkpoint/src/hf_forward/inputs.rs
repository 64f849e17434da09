//! Model inputs by Hugging Face's names, validated before the forward pass.

use std::ops::Range;

use burn::tensor::{Tensor, TensorData};

use super::super::CheckpointError;
use super::input_tensors::{InputTensors, IntMatrix};
use attentive_model::attention::{AttentionConfig, Memory, MemoryStart};
use attentive_model::block::BlockConfig;
use attentive_model::{Input, InputData, Model, ModelConfig, StackConfig};

/// The names of a model's inputs.
pub fn input_names(config: &ModelConfig) -> Vec<&'static str> {
    if config.stack.patches.is_some() {
        return vec!["pixel_values"];
    }
    let mut inputs = vec!["input_ids", "attention_mask"];
    if config.encoder.is_some() {
        inputs.extend(["decoder_input_ids", "decoder_attention_mask"]);
        return inputs;
    }
    inputs.push("position_ids");
    if config.stack.embedding.types > 0 {
        inputs.push("token_type_ids");
    }
    let mut blocks = config.stack.blocks.iter();
    if blocks.any(|block| matches!(block.attention, AttentionConfig::Longformer(_))) {
        inputs.push("global_attention_mask");
    }
    if config
        .stack
        .blocks
        .iter()
        .any(|block| block.cross.is_some())
    {
        inputs.extend(["encoder_hidden_states", "encoder_attention_mask"]);
    }
    inputs
}

/// A model and a file with its inputs.
pub struct ModelInputs<'a> {
    pub tensors: InputTensors<'a>,
    pub model: &'a Model,
}

impl ModelInputs<'_> {
    /// The input of a model of one stack.
    pub fn single_stack(&self) -> Result<Input, CheckpointError> {
        self.input(&self.model.config().stack, "input_ids", "attention_mask")
    }

    /// The input of the encoder.
    pub fn encoder(&self) -> Result<Input, CheckpointError> {
        let config = self.model.config().encoder.as_deref();
        let config = config.expect("called for models that have an encoder");
        self.input(config, "input_ids", "attention_mask")
    }

    /// The input of the decoder of an encoder-decoder.
    pub fn decoder(&self) -> Result<Input, CheckpointError> {
        let config = &self.model.config().stack;
        self.input(config, "decoder_input_ids", "decoder_attention_mask")
    }

    /// The encoder states that a decoder without an encoder attends to.
    pub fn memory(&self) -> Result<Option<Memory>, CheckpointError> {
        let name = "encoder_hidden_states";
        let Some(shape) = self.tensors.file.shape(&self.tensors.full_name(name)) else {
            let mask = "encoder_attention_mask";
            return match self.tensors.file.shape(&self.tensors.full_name(mask)) {
                Some(_) => self
                    .tensors
                    .error(format!("{mask} is given without {name}; give both")),
                None => Ok(None),
            };
        };
        let config = self.model.config();
        if config
            .stack
            .blocks
            .iter()
            .all(|block| block.cross.is_none())
        {
            return self.tensors.error(format!(
                "{name} is given, and no block has cross-attention; leave it out"
            ));
        }
        let (shape, width) = (shape.to_vec(), config.stack.width);
        let [batch, length, _] = match shape.as_slice() {
            [batch, length, last] if *last == width && *batch > 0 && *length > 0 => {
                [*batch, *length, width]
            }
            _ => {
                return self.tensors.error(format!(
                    "{name} is {shape:?} and must be [batch, length, {width}]"
                ));
            }
        };
        let states = TensorData::new(
            self.tensors
                .values(self.tensors.file.floats(&self.tensors.full_name(name)))?,
            [batch, length, width],
        );
        let non_padding = self
            .tensors
            .mask_ranges("encoder_attention_mask", [batch, length])?;
        Ok(Some(Memory {
            non_padding,
            ..Memory::new(Tensor::from_data(states, &self.model.device()))
        }))
    }

    fn input(&self, config: &StackConfig, ids: &str, mask: &str) -> Result<Input, CheckpointError> {
        let device = self.model.device();
        if config.patches.is_some() {
            return self.pixels(config);
        }
        let ids = self.tensors.ids(ids, config.vocabulary, config.length)?;
        let shape = ids.shape;
        let non_padding = self.tensors.mask_ranges(mask, shape)?;
        self.refuse_left_padding(config, mask, non_padding.as_deref())?;
        Ok(Input {
            data: InputData::Ids(ids.tensor(&device)),
            non_padding,
            positions: self.positions(config, shape)?.map(|it| it.tensor(&device)),
            types: self.types(config, shape)?.map(|it| it.tensor(&device)),
            globals: self.globals(shape)?,
            ..Input::new(Tensor::zeros([0, 0], &device))
        })
    }

    /// Left padding would separate the initial memory of zeros from the text.
    fn refuse_left_padding(
        &self,
        config: &StackConfig,
        mask: &str,
        keys: Option<&[Range<usize>]>,
    ) -> Result<(), CheckpointError> {
        let starts_with_zeros = |block: &BlockConfig| match &block.attention {
            AttentionConfig::TransformerXl(config) => config.start == MemoryStart::Zeros,
            _ => false,
        };
        let padded = keys.is_some_and(|keys| keys.iter().any(|range| range.start > 0));
        match padded && config.blocks.iter().any(starts_with_zeros) {
            true => self.tensors.error(format!(
                "{mask} starts with zeros, which would separate the memory from the text; pad on the right"
            )),
            false => Ok(()),
        }
    }

    fn pixels(&self, config: &StackConfig) -> Result<Input, CheckpointError> {
        let name = "pixel_values";
        let patches = config.patches.expect("called for vision models");
        let full_name = self.tensors.full_name(name);
        let shape = self
            .tensors
            .file
            .shape(&full_name)
            .unwrap_or_default()
            .to_vec();
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
            return self.tensors.error(format!(
                "{name} is {shape:?} and must be [batch, {}, height, width], both multiples of {size}",
                patches.channels
            ));
        }
        let values = self.tensors.values(self.tensors.file.floats(&full_name))?;
        let data = TensorData::new(values, shape);
        Ok(Input::pixels(Tensor::from_data(data, &self.model.device())))
    }

    fn types(
        &self,
        config: &StackConfig,
        shape: [usize; 2],
    ) -> Result<Option<IntMatrix>, CheckpointError> {
        let name = "token_type_ids";
        let Some(types) = self.tensors.matrix_of_shape(name, shape)? else {
            return Ok(None);
        };
        let types_count = config.embedding.types;
        match types
            .values
            .iter()
            .find(|it| !(0..types_count as i64).contains(it))
        {
            Some(_) if types_count == 0 => self.tensors.error(format!(
                "{name} are given, and this model has no token types; leave them out"
            )),
            Some(kind) => self.tensors.error(format!(
                "{name} holds {kind}; token types are 0 to {}",
                types_count - 1
            )),
            None => Ok(Some(types)),
        }
    }

    fn positions(
        &self,
        config: &StackConfig,
        [batch, length]: [usize; 2],
    ) -> Result<Option<IntMatrix>, CheckpointError> {
        let name = "position_ids";
        let Some(positions) = self.tensors.matrix(name)? else {
            return Ok(None);
        };
        let [rows, columns] = positions.shape;
        if columns != length || (rows != batch && rows != 1) {
            return self.tensors.error(format!(
                "{name} is {:?} and must be [{batch}, {length}]",
                positions.shape
            ));
        }
        let Some(count) = config.positions.position_count(config.length) else {
            return self.tensors.error(format!(
                "{name} are given, and this model has relative positions; leave them out"
            ));
        };
        let known = 0..count as i64;
        match positions.values.iter().find(|it| !known.contains(it)) {
            Some(position) => self.tensors.error(format!(
                "{name} holds {position}; positions are 0 to {}",
                count - 1
            )),
            None => Ok(Some(positions)),
        }
    }

    fn globals(&self, shape: [usize; 2]) -> Result<Option<Vec<Vec<usize>>>, CheckpointError> {
        let Some(flags) = self
            .tensors
            .matrix_of_shape("global_attention_mask", shape)?
        else {
            return Ok(None);
        };
        let flagged_positions = |row: &[i64]| {
            let flagged = row.iter().enumerate().filter(|(_, flag)| **flag != 0);
            flagged.map(|(position, _)| position).collect()
        };
        Ok(Some(
            flags
                .values
                .chunks(shape[1])
                .map(flagged_positions)
                .collect(),
        ))
    }
}
