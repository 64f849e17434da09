//! How a tensor is laid out in a file where that differs from the model.

use std::ops::Range;

use super::TensorFile;
use attentive_model::ParamData;
use attentive_model::embeddings::PatchesConfig;

/// How a parameter of the model becomes a tensor of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transform {
    /// The file has the same tensor.
    Same,
    /// The file has one more axis of size one, in front.
    Unsqueeze0,
    /// The file has one more axis of size one, after the first.
    Unsqueeze1,
    /// Not in the model: the inverse frequencies of sinusoidal positions, a buffer in the file.
    InverseFrequencies,
    /// Not in the file: sampled from a seed in the config.
    FromSeed,
    /// The file has the kernel of a convolution: channels, rows and columns of a patch on axes of their own.
    Conv2d,
    /// The file has `[input, output]`.
    Transpose,
    /// The file has two tensors fused along the first axis; this is the one at this index.
    Half(usize),
    /// The file has three tensors fused along the first axis; this is the one at this index.
    Third(usize),
    /// The file has `[input, 2 · output]`; this is the half of the columns at this index.
    TransposedHalf(usize),
    /// The file has `[input, 3 · output]`; this is the third of the columns at this index.
    TransposedThird(usize),
    /// The file rotates interleaved pairs of features where the model rotates the two halves of a head: in each head, row
    /// `i` of half `h` is the file's row `2 · i + h`.
    InterleavedRope,
}

/// How a parameter is laid out in a file whose values can be used as they are.
pub enum Layout {
    /// Contiguous, in this shape.
    Contiguous(Vec<usize>),
    /// As these columns of a matrix of this shape.
    Columns([usize; 2], Range<usize>),
}

impl Layout {
    /// The memory-mapped values, where the file has them as f32.
    pub fn mapped(self, file: &TensorFile, name: &str) -> Option<ParamData> {
        match self {
            Self::Contiguous(shape) => file.mapped(name, &shape).map(ParamData::Contiguous),
            Self::Columns(shape, columns) => {
                let matrix = file.mapped(name, &shape)?;
                Some(ParamData::TransposedColumns(matrix, columns))
            }
        }
    }
}

impl Transform {
    /// The layout of a parameter of this shape, where the file's values can be used as they are.
    pub fn layout(self, shape: &[usize]) -> Option<Layout> {
        if let ([output, input], Some((columns, start))) = (shape, self.transposition(shape)) {
            return Some(Layout::Columns([*input, columns], start..start + output));
        }
        self.keeps_order()
            .then(|| Layout::Contiguous(shape.to_vec()))
    }

    /// Whether only the shape changes.
    fn keeps_order(self) -> bool {
        matches!(
            self,
            Self::Same | Self::Unsqueeze0 | Self::Unsqueeze1 | Self::Conv2d
        )
    }

    /// The shape of the file's tensor for a parameter of this shape.
    pub fn file_shape(self, shape: &[usize], patches: Option<&PatchesConfig>) -> Vec<usize> {
        match (self, shape) {
            (Self::Same | Self::InterleavedRope, _) => shape.to_vec(),
            (Self::Unsqueeze0, _) => [&[1], shape].concat(),
            (Self::Unsqueeze1, [first, rest @ ..]) => [&[*first, 1][..], rest].concat(),
            (Self::Conv2d, [output, _]) => {
                let patches = patches.expect("only models with patches have convolutions");
                vec![*output, patches.channels, patches.size, patches.size]
            }
            (Self::Transpose, [output, input]) => vec![*input, *output],
            (Self::Half(_), [first, rest @ ..]) => [&[2 * first][..], rest].concat(),
            (Self::Third(_), [first, rest @ ..]) => [&[3 * first][..], rest].concat(),
            (Self::TransposedHalf(_), [output, input]) => vec![*input, 2 * output],
            (Self::TransposedThird(_), [output, input]) => vec![*input, 3 * output],
            _ => panic!("checkpoint table: {self:?} does not apply to {shape:?}"),
        }
    }

    /// A parameter of this shape from the file's tensor.
    pub fn load(self, file: Vec<f32>, shape: &[usize], head_width: usize) -> Vec<f32> {
        if self.keeps_order() {
            return file;
        }
        if let ([output, input], Some((stride, start))) = (shape, self.transposition(shape)) {
            return transpose_columns(&file, [*output, *input], stride, start);
        }
        (0..shape.iter().product())
            .map(|index| file[self.file_index(index, shape, head_width)])
            .collect()
    }

    /// Where the file's tensor is transposed: its number of columns, and the column of the parameter's first row.
    fn transposition(self, shape: &[usize]) -> Option<(usize, usize)> {
        match (self, shape) {
            (Self::Transpose, [output, _]) => Some((*output, 0)),
            (Self::TransposedHalf(part), [output, _]) => Some((2 * output, part * output)),
            (Self::TransposedThird(part), [output, _]) => Some((3 * output, part * output)),
            _ => None,
        }
    }

    /// Writes a parameter of this shape into the file's tensor.
    pub fn write_into(self, values: &[f32], shape: &[usize], head_width: usize, file: &mut [f32]) {
        for (index, value) in values.iter().enumerate() {
            file[self.file_index(index, shape, head_width)] = *value;
        }
    }

    /// The index in the file's tensor of an element of the parameter.
    fn file_index(self, index: usize, shape: &[usize], head_width: usize) -> usize {
        match (self, shape) {
            _ if self.keeps_order() => index,
            (Self::Half(part) | Self::Third(part), _) => {
                part * shape.iter().product::<usize>() + index
            }
            (_, [_, input]) if let Some((stride, start)) = self.transposition(shape) => {
                index % input * stride + start + index / input
            }
            (Self::InterleavedRope, [_, rest @ ..]) => {
                let columns: usize = rest.iter().product();
                let (row, column) = (index / columns, index % columns);
                let (head, feature) = (row / head_width, row % head_width);
                let pairs = head_width / 2;
                let file_row = head * head_width + feature % pairs * 2 + feature / pairs;
                file_row * columns + column
            }
            _ => panic!("checkpoint table: {self:?} does not apply to {shape:?}"),
        }
    }
}

/// Columns of a matrix, from `start` on, as rows `[output, input]`. Tiled, so that both the rows read and the rows written
/// stay in cache.
fn transpose_columns(matrix: &[f32], shape: [usize; 2], stride: usize, start: usize) -> Vec<f32> {
    const TILE: usize = 32;
    let [output, input] = shape;
    let mut transposed = vec![0f32; output * input];
    for (top, left) in tiles(output, input, TILE) {
        for row in top..output.min(top + TILE) {
            for column in left..input.min(left + TILE) {
                transposed[row * input + column] = matrix[column * stride + start + row];
            }
        }
    }
    transposed
}

/// The top left corners of the tiles that cover a matrix.
fn tiles(rows: usize, columns: usize, tile: usize) -> impl Iterator<Item = (usize, usize)> {
    let row = (0..rows).step_by(tile);
    row.flat_map(move |top| (0..columns).step_by(tile).map(move |left| (top, left)))
}
