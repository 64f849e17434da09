//! The named tensors of a file, as inputs of a pass.

use std::ops::Range;

use burn::tensor::{Device, Int, Tensor, TensorData};

use super::super::{CheckpointError, TensorFile};

/// Where inputs are found.
#[derive(Clone, Copy)]
pub struct Tensors<'a> {
    pub file: &'a TensorFile,
    /// What stands before every name.
    pub prefix: &'a str,
}

/// Whole numbers in rows and columns.
pub struct Matrix {
    pub numbers: Vec<i64>,
    pub shape: [usize; 2],
}

impl Matrix {
    pub fn tensor(self, device: &Device) -> Tensor<2, Int> {
        Tensor::from_data(TensorData::new(self.numbers, self.shape), device)
    }
}

impl Tensors<'_> {
    /// Ids of a vocabulary, in rows of at most `longest`.
    pub fn ids(
        &self,
        name: &str,
        vocabulary: usize,
        longest: usize,
    ) -> Result<Matrix, CheckpointError> {
        let Some(ids) = self.matrix(name)? else {
            return self.wrong(format!(
                "{name} is missing; it must be whole numbers [batch, length]"
            ));
        };
        let known = 0..vocabulary as i64;
        if let Some(id) = ids.numbers.iter().find(|id| !known.contains(id)) {
            return self.wrong(format!(
                "{name} holds {id}, which is outside the vocabulary of {vocabulary}"
            ));
        }
        let [_, length] = ids.shape;
        if length > longest {
            return self.wrong(format!(
                "{name} has length {length} and the model reads at most {longest}"
            ));
        }
        Ok(ids)
    }

    /// The real positions of each row, which must stand together.
    pub fn real(
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

    pub fn shaped(&self, name: &str, shape: [usize; 2]) -> Result<Option<Matrix>, CheckpointError> {
        match self.matrix(name)? {
            Some(matrix) if matrix.shape != shape => self.wrong(format!(
                "{name} is {:?} and must be {shape:?}",
                matrix.shape
            )),
            matrix => Ok(matrix),
        }
    }

    pub fn matrix(&self, name: &str) -> Result<Option<Matrix>, CheckpointError> {
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

    pub fn whole(&self, name: &str) -> String {
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
