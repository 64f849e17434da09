//! The inputs of a pass by Hugging Face's names, checked before anything is computed.

use std::ops::Range;

use burn::tensor::{Int, Tensor, TensorData};

use super::super::{CheckpointError, TensorFile};
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
    inputs.extend(["position_ids", "token_type_ids"]);
    let mut blocks = config.blocks.iter();
    if blocks.any(|block| matches!(block.attention, AttentionConfig::Longformer(_))) {
        inputs.push("global_attention_mask");
    }
    if config.blocks.iter().any(|block| block.cross.is_some()) {
        inputs.extend(["encoder_hidden_states", "encoder_attention_mask"]);
    }
    inputs
}

/// Where inputs are found.
pub struct Inputs<'a> {
    pub file: &'a TensorFile,
    /// What stands before every name.
    pub prefix: &'a str,
    pub model: &'a Model,
}

/// Whole numbers in rows and columns.
struct Matrix {
    numbers: Vec<i64>,
    shape: [usize; 2],
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
        let Some(shape) = self.file.shape(&self.whole(name)) else {
            let mask = "encoder_attention_mask";
            return match self.file.shape(&self.whole(mask)) {
                Some(_) => self.wrong(format!("{mask} is given without {name}; give both")),
                None => Ok(None),
            };
        };
        let config = self.model.config();
        if config.blocks.iter().all(|block| block.cross.is_none()) {
            return self.wrong(format!(
                "{name} is given, and no block looks at it; leave it out"
            ));
        }
        let (shape, width) = (shape.to_vec(), config.width);
        let [batch, length, _] = match shape.as_slice() {
            [batch, length, last] if *last == width && *batch > 0 && *length > 0 => {
                [*batch, *length, width]
            }
            _ => {
                return self.wrong(format!(
                    "{name} is {shape:?} and must be [batch, length, {width}]"
                ));
            }
        };
        let states = TensorData::new(self.file.floats(&self.whole(name))?, [batch, length, width]);
        let real = self.real("encoder_attention_mask", [batch, length])?;
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
        let ids = self.ids(config, ids)?;
        let shape = ids.shape;
        let keys = self.real(mask, shape)?;
        self.refuse_gap(config, mask, keys.as_deref())?;
        Ok(Input {
            source: Source::Ids(tensor(ids, self.model)),
            keys,
            positions: self
                .positions(config, shape)?
                .map(|it| tensor(it, self.model)),
            types: self.types(config, shape)?.map(|it| tensor(it, self.model)),
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
            true => self.wrong(format!(
                "{mask} has zeros in front, which would part the memory from the text; pad on the right"
            )),
            false => Ok(()),
        }
    }

    fn pixels(&self, config: &ModelConfig) -> Result<Input, CheckpointError> {
        let name = "pixel_values";
        let patches = config.patches.expect("asked of models of pictures");
        let whole = self.whole(name);
        let shape = self.file.shape(&whole).unwrap_or_default().to_vec();
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
            return self.wrong(format!(
                "{name} is {shape:?} and must be [batch, {}, height, width], both multiples of {size}",
                patches.channels
            ));
        }
        let data = TensorData::new(self.file.floats(&whole)?, shape);
        Ok(Input::pixels(Tensor::from_data(data, &self.model.device())))
    }

    fn ids(&self, config: &ModelConfig, name: &str) -> Result<Matrix, CheckpointError> {
        let Some(ids) = self.matrix(name)? else {
            return self.wrong(format!(
                "{name} is missing; it must be whole numbers [batch, length]"
            ));
        };
        let known = 0..config.vocabulary as i64;
        if let Some(id) = ids.numbers.iter().find(|id| !known.contains(id)) {
            return self.wrong(format!(
                "{name} holds {id}, which is outside the vocabulary of {}",
                config.vocabulary
            ));
        }
        let [_, length] = ids.shape;
        if length > config.length {
            return self.wrong(format!(
                "{name} has length {length} and the model reads at most {}",
                config.length
            ));
        }
        Ok(ids)
    }

    fn types(
        &self,
        config: &ModelConfig,
        shape: [usize; 2],
    ) -> Result<Option<Matrix>, CheckpointError> {
        let name = "token_type_ids";
        let Some(types) = self.shaped(name, shape)? else {
            return Ok(None);
        };
        let most = config.embedding.types;
        match types
            .numbers
            .iter()
            .find(|it| !(0..most as i64).contains(it))
        {
            Some(_) if most == 0 => self.wrong(format!(
                "{name} are given, and this model has no kinds of segments; leave them out"
            )),
            Some(kind) => self.wrong(format!("{name} holds {kind}; kinds are 0 to {}", most - 1)),
            None => Ok(Some(types)),
        }
    }

    fn positions(
        &self,
        config: &ModelConfig,
        [batch, length]: [usize; 2],
    ) -> Result<Option<Matrix>, CheckpointError> {
        let name = "position_ids";
        let Some(positions) = self.matrix(name)? else {
            return Ok(None);
        };
        let [rows, columns] = positions.shape;
        if columns != length || (rows != batch && rows != 1) {
            return self.wrong(format!(
                "{name} is {:?} and must be [{batch}, {length}]",
                positions.shape
            ));
        }
        let Some(most) = config.positions.countable(config.length) else {
            return self.wrong(format!(
                "{name} are given, and this model goes by distances; leave them out"
            ));
        };
        let known = 0..most as i64;
        match positions.numbers.iter().find(|it| !known.contains(it)) {
            Some(position) => self.wrong(format!(
                "{name} holds {position}; positions are 0 to {}",
                most - 1
            )),
            None => Ok(Some(positions)),
        }
    }

    fn globals(&self, shape: [usize; 2]) -> Result<Option<Vec<Vec<usize>>>, CheckpointError> {
        let Some(flags) = self.shaped("global_attention_mask", shape)? else {
            return Ok(None);
        };
        let places = |row: &[i64]| {
            let flagged = row.iter().enumerate().filter(|(_, flag)| **flag != 0);
            flagged.map(|(place, _)| place).collect()
        };
        Ok(Some(flags.numbers.chunks(shape[1]).map(places).collect()))
    }

    /// The real positions of each row, which must stand together.
    fn real(
        &self,
        name: &str,
        shape: [usize; 2],
    ) -> Result<Option<Vec<Range<usize>>>, CheckpointError> {
        let Some(mask) = self.shaped(name, shape)? else {
            return Ok(None);
        };
        let mut ranges = Vec::new();
        for (row, flags) in mask.numbers.chunks(shape[1]).enumerate() {
            let start = flags.iter().position(|flag| *flag != 0).unwrap_or(0);
            let count = flags.iter().filter(|flag| **flag != 0).count();
            if flags[start..start + count].contains(&0) {
                return self.wrong(format!(
                    "{name} row {row} has gaps; its ones must stand together"
                ));
            }
            ranges.push(start..start + count);
        }
        Ok(Some(ranges))
    }

    fn shaped(&self, name: &str, shape: [usize; 2]) -> Result<Option<Matrix>, CheckpointError> {
        match self.matrix(name)? {
            Some(matrix) if matrix.shape != shape => self.wrong(format!(
                "{name} is {:?} and must be {shape:?}",
                matrix.shape
            )),
            matrix => Ok(matrix),
        }
    }

    fn matrix(&self, name: &str) -> Result<Option<Matrix>, CheckpointError> {
        let whole = self.whole(name);
        let Some(shape) = self.file.shape(&whole) else {
            return Ok(None);
        };
        let Ok(shape) = <[usize; 2]>::try_from(shape) else {
            return self.wrong(format!("{name} is {shape:?} and must be [batch, length]"));
        };
        if shape.contains(&0) {
            return self.wrong(format!("{name} is {shape:?}, which holds nothing"));
        }
        Ok(Some(Matrix {
            numbers: self.file.integers(&whole)?,
            shape,
        }))
    }

    fn whole(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// An error that names the file.
    pub fn wrong<T>(&self, problem: String) -> Result<T, CheckpointError> {
        Err(CheckpointError::Input {
            path: self.file.path().to_owned(),
            problem,
        })
    }
}

fn tensor(matrix: Matrix, model: &Model) -> Tensor<2, Int> {
    Tensor::from_data(
        TensorData::new(matrix.numbers, matrix.shape),
        &model.device(),
    )
}
