//! The named tensors of a file as model inputs.

use std::ops::Range;

use burn::tensor::{Device, Int, Tensor, TensorData};

use super::super::{CheckpointError, TensorFile};

/// The input tensors of a file.
#[derive(Clone, Copy)]
pub struct InputTensors<'a> {
    pub file: &'a TensorFile,
    /// The prefix of every name.
    pub prefix: &'a str,
}

/// An integer matrix.
pub struct IntMatrix {
    pub values: Vec<i64>,
    pub shape: [usize; 2],
}

impl IntMatrix {
    pub fn tensor(self, device: &Device) -> Tensor<2, Int> {
        Tensor::from_data(TensorData::new(self.values, self.shape), device)
    }
}

impl InputTensors<'_> {
    /// Token ids `[batch, length]`, of a length of at most `max_length`.
    pub fn ids(
        &self,
        name: &str,
        vocabulary: usize,
        max_length: usize,
    ) -> Result<IntMatrix, CheckpointError> {
        let Some(ids) = self.matrix(name)? else {
            return self.error(format!(
                "{name} is missing; it must be integers [batch, length]"
            ));
        };
        let known = 0..vocabulary as i64;
        if let Some(id) = ids.values.iter().find(|id| !known.contains(id)) {
            return self.error(format!(
                "{name} holds {id}, which is outside the vocabulary of {vocabulary}"
            ));
        }
        let [_, length] = ids.shape;
        if length > max_length {
            return self.error(format!(
                "{name} has length {length} and the model reads at most {max_length}"
            ));
        }
        Ok(ids)
    }

    /// The attended positions of each row of a mask, which must be contiguous.
    pub fn mask_ranges(
        &self,
        name: &str,
        shape: [usize; 2],
    ) -> Result<Option<Vec<Range<usize>>>, CheckpointError> {
        let Some(mask) = self.matrix_of_shape(name, shape)? else {
            return Ok(None);
        };
        let mut ranges = Vec::new();
        for (row, flags) in mask.values.chunks(shape[1]).enumerate() {
            let start = flags.iter().position(|flag| *flag != 0).unwrap_or(0);
            let count = flags.iter().filter(|flag| **flag != 0).count();
            if flags[start..start + count].contains(&0) {
                return self.error(format!(
                    "{name} row {row} has gaps; its ones must be contiguous"
                ));
            }
            ranges.push(start..start + count);
        }
        Ok(Some(ranges))
    }

    pub fn matrix_of_shape(
        &self,
        name: &str,
        shape: [usize; 2],
    ) -> Result<Option<IntMatrix>, CheckpointError> {
        match self.matrix(name)? {
            Some(matrix) if matrix.shape != shape => self.error(format!(
                "{name} is {:?} and must be {shape:?}",
                matrix.shape
            )),
            matrix => Ok(matrix),
        }
    }

    pub fn matrix(&self, name: &str) -> Result<Option<IntMatrix>, CheckpointError> {
        let full_name = self.full_name(name);
        let Some(shape) = self.file.shape(&full_name) else {
            return Ok(None);
        };
        let Ok(shape) = <[usize; 2]>::try_from(shape) else {
            return self.error(format!("{name} is {shape:?} and must be [batch, length]"));
        };
        if shape.contains(&0) {
            return self.error(format!("{name} is {shape:?}, which is empty"));
        }
        Ok(Some(IntMatrix {
            values: self.values(self.file.integers(&full_name))?,
            shape,
        }))
    }

    /// The values of a tensor. One of another dtype than the model reads does not make the file a broken one.
    pub fn values<T>(&self, read: Result<T, CheckpointError>) -> Result<T, CheckpointError> {
        match read {
            Err(CheckpointError::Broken { problem, .. }) => self.error(problem),
            read => read,
        }
    }

    pub fn full_name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// An error that names the file.
    pub fn error<T>(&self, problem: String) -> Result<T, CheckpointError> {
        Err(CheckpointError::Input {
            path: self.file.path().to_owned(),
            problem,
        })
    }
}
