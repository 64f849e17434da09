//! Learned positions: an embedding per position.

use burn::tensor::{Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::ConfigError;
use crate::checks::{refuse, within};
use crate::setters;

/// Settings of learned positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnedConfig {
    /// The table's row of the first position. Rows before it are unused, or used for padding.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offset: usize,
    /// The padding id, which is not counted: its position is the row before the first (Liu et al. 2019).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub padding: Option<u32>,
}

fn is_zero(offset: &usize) -> bool {
    *offset == 0
}

impl LearnedConfig {
    setters! {
        with_offset(offset: usize);
        with_padding(padding: u32 => Some);
    }

    /// Whether the settings are valid.
    pub(super) fn validate(&self, path: &str) -> Result<(), ConfigError> {
        let field = format!("{path}.offset");
        match (self.offset, self.padding) {
            (0, None) => Ok(()),
            (0, Some(_)) => refuse(
                &field,
                "the row before the first position is for padding, so there must be one; use 1 or more",
            ),
            (offset, _) => within(&field, offset, 1 << 20),
        }
    }

    /// The table's rows of `ids` after `start` cached ones.
    pub(crate) fn rows(&self, ids: &Tensor<2, Int>, start: usize) -> Tensor<2, Int> {
        let [batch, length] = ids.dims();
        let device = ids.device();
        let Some(padding) = self.padding else {
            let first = (self.offset + start) as i64;
            let rows = Tensor::<1, Int>::arange(first..first + length as i64, &device);
            return rows.reshape([1, length]);
        };
        let values = ids.clone().into_data().iter::<i64>().collect::<Vec<_>>();
        let mut rows = Vec::with_capacity(values.len());
        for row in values.chunks(length.max(1)) {
            let mut next = self.offset + start;
            rows.extend(row.iter().map(|id| {
                if *id == i64::from(padding) {
                    return self.offset as i64 - 1;
                }
                next += 1;
                next as i64 - 1
            }));
        }
        Tensor::from_data(TensorData::new(rows, [batch, length]), &device)
    }
}

/// Resizes the position table of a grid, `[tokens + rows · columns, width]`, by bicubic interpolation as in PyTorch with
/// `align_corners=False`. The first `tokens` rows are unchanged.
pub(crate) fn interpolated(
    table: Tensor<2>,
    tokens: usize,
    from: [usize; 2],
    to: [usize; 2],
) -> Tensor<2> {
    let [_, width] = table.dims();
    let [rows, columns] = from;
    let device = table.device();
    let grid = table.clone().narrow(0, tokens, rows * columns);
    let weights = |from: usize, to: usize| {
        let data = TensorData::new(cubic(from, to), [to, from]);
        Tensor::<2>::from_data(data, &device)
    };
    // Along the rows, then along the columns, each as a product with the interpolation weights.
    let rows_resized = weights(rows, to[0]).matmul(grid.reshape([rows, columns * width]));
    let grid = weights(columns, to[1])
        .unsqueeze_dim::<3>(0)
        .expand([to[0], to[1], columns])
        .matmul(rows_resized.reshape([to[0], columns, width]));
    let grid = grid.reshape([to[0] * to[1], width]);
    match tokens {
        0 => grid,
        _ => Tensor::cat(vec![table.narrow(0, 0, tokens), grid], 0),
    }
}

/// The weights `[to, from]` of cubic convolution (Keys 1981) with the constant that PyTorch uses.
fn cubic(from: usize, to: usize) -> Vec<f32> {
    const A: f64 = -0.75;
    let near = |x: f64| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let far = |x: f64| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    let mut weights = vec![0f32; to * from];
    for (index, row) in weights.chunks_mut(from).enumerate() {
        let at = (index as f64 + 0.5) * from as f64 / to as f64 - 0.5;
        let part = at - at.floor();
        let taps = [
            far(part + 1.0),
            near(part),
            near(1.0 - part),
            far(2.0 - part),
        ];
        for (tap, weight) in taps.into_iter().enumerate() {
            let source = at.floor() as i64 + tap as i64 - 1;
            row[source.clamp(0, from as i64 - 1) as usize] += weight as f32;
        }
    }
    weights
}
