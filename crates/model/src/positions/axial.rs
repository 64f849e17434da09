//! A learned vector per row and one per column of a grid, beside one another, for long sequences. Kitaev et al. 2020.
//!
//! ```text
//! shape = [2, 3]            position 4 is row 1, column 1
//!   0 1 2
//!   3 4 5                   its vector: row 1 of the first table, then row 1 of the second
//! ```
//!
//! So the tables grow with the root of the length.

use burn::module::Module;
use burn::tensor::{Int, Tensor};
use serde::{Deserialize, Serialize};

use crate::checks::{refuse, size};
use crate::{ConfigError, Embedding, Initializer, ModelConfig};

/// Settings of positions in a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AxialConfig {
    /// Rows and columns of the grid; there are as many positions as their product.
    pub shape: [usize; 2],
    /// The widths of the vectors of rows and of columns, which make up the embedding's.
    pub widths: [usize; 2],
}

impl AxialConfig {
    /// Whether the settings can work in `model`.
    pub(super) fn validate(&self, path: &str, model: &ModelConfig) -> Result<(), ConfigError> {
        for (field, sizes) in [("shape", self.shape), ("widths", self.widths)] {
            for value in sizes {
                size(&format!("{path}.{field}"), value)?;
            }
        }
        if self.places() < model.length {
            return refuse(
                &format!("{path}.shape"),
                format!(
                    "{:?} has {} places and the length is {}; use more",
                    self.shape,
                    self.places(),
                    model.length
                ),
            );
        }
        let width = self.widths[0] + self.widths[1];
        if width != model.embedding_width() {
            return refuse(
                &format!("{path}.widths"),
                format!(
                    "{:?} make up {width} and the width is {}; they must be equal",
                    self.widths,
                    model.embedding_width()
                ),
            );
        }
        Ok(())
    }

    /// How many positions the grid has.
    pub(super) fn places(&self) -> usize {
        self.shape[0].saturating_mul(self.shape[1])
    }
}

/// The tables of rows and of columns.
#[derive(Module, Debug)]
pub struct Axial {
    rows: Embedding,
    columns: Embedding,
}

impl Axial {
    /// Builds tables with normal entries.
    pub fn new(config: &AxialConfig, deviation: f64, initial: &mut Initializer) -> Self {
        let AxialConfig { shape, widths } = *config;
        Self {
            rows: Embedding::new([shape[0], widths[0]], deviation, initial),
            columns: Embedding::new([shape[1], widths[1]], deviation, initial),
        }
    }

    /// The vectors `[batch, length, width]` of `positions` `[batch, length]`.
    pub fn forward(&self, positions: Tensor<2, Int>) -> Tensor<3> {
        let [columns, _] = self.columns.weight.dims();
        let column = positions.clone().remainder_scalar(columns as i64);
        // Without the remainder a division leaves nothing to round.
        let row = (positions - column.clone()) / columns as i64;
        Tensor::cat(
            vec![self.rows.forward(row), self.columns.forward(column)],
            2,
        )
    }
}
