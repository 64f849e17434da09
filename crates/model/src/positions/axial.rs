//! Axial positions: positions form a grid, with a learned embedding per row and one per column, concatenated. Kitaev et al. 2020.
//!
//! ```text
//! shape = [2, 3]            position 4 is row 1, column 1
//!   0 1 2
//!   3 4 5                   its embedding: row 1 of the first table, then row 1 of the second
//! ```
//!
//! The tables grow with the square root of the length.

use burn::module::Module;
use burn::tensor::{Int, Tensor};
use serde::{Deserialize, Serialize};

use crate::checks::{refuse, size};
use crate::embeddings::Embedding;
use crate::{ConfigError, Initializer, StackConfig};

/// Settings of axial positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AxialConfig {
    /// Rows and columns of the grid. Their product is the number of positions.
    pub shape: [usize; 2],
    /// The widths of the row and column embeddings. Their sum is the width of the embedding.
    pub widths: [usize; 2],
}

impl AxialConfig {
    /// A grid of this shape, whose rows and columns have embeddings of these widths.
    pub fn new(shape: [usize; 2], widths: [usize; 2]) -> Self {
        Self { shape, widths }
    }

    /// Whether the settings are valid in `stack`.
    pub(super) fn validate(&self, path: &str, stack: &StackConfig) -> Result<(), ConfigError> {
        for (field, sizes) in [("shape", self.shape), ("widths", self.widths)] {
            for value in sizes {
                size(&format!("{path}.{field}"), value)?;
            }
        }
        if self.capacity() < stack.length {
            return refuse(
                &format!("{path}.shape"),
                format!(
                    "{:?} has {} positions and the length is {}; use more",
                    self.shape,
                    self.capacity(),
                    stack.length
                ),
            );
        }
        let width = self.widths[0] + self.widths[1];
        if width != stack.embedding_width() {
            return refuse(
                &format!("{path}.widths"),
                format!(
                    "the sum of {:?} is {width} and the width is {}; they must be equal",
                    self.widths,
                    stack.embedding_width()
                ),
            );
        }
        Ok(())
    }

    /// The number of positions in the grid.
    pub(super) fn capacity(&self) -> usize {
        self.shape[0].saturating_mul(self.shape[1])
    }
}

/// The tables of row and column embeddings.
#[derive(Module, Debug)]
pub struct Axial {
    rows: Embedding,
    columns: Embedding,
}

impl Axial {
    /// Tables with normal initial values.
    pub fn new(config: &AxialConfig, std: f64, initializer: &mut Initializer) -> Self {
        let AxialConfig { shape, widths } = *config;
        Self {
            rows: Embedding::new([shape[0], widths[0]], std, initializer),
            columns: Embedding::new([shape[1], widths[1]], std, initializer),
        }
    }

    /// The embeddings `[batch, length, width]` of `positions` `[batch, length]`.
    pub fn forward(&self, positions: Tensor<2, Int>) -> Tensor<3> {
        let [columns, _] = self.columns.weight.dims();
        let column = positions.clone().remainder_scalar(columns as i64);
        // Subtracting the remainder makes the division exact.
        let row = (positions - column.clone()) / columns as i64;
        Tensor::cat(
            vec![self.rows.forward(row), self.columns.forward(column)],
            2,
        )
    }
}
