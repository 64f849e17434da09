//! The ways between a tensor of ours and theirs.

use std::ops::Range;

use super::TensorFile;
use crate::{Numbers, PatchesConfig};

/// How a tensor of ours is found in theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The same numbers in the same order.
    Same,
    /// The same under one more axis of size one, in front.
    Led,
    /// The same under one more axis of size one, after the first.
    Parted,
    /// In no model of ours: the inverse wavelengths of sines and cosines, which theirs keeps beside its weights.
    Wavelengths,
    /// In no file of theirs: it is drawn from a seed of the settings.
    Drawn,
    /// The same, with the pixels of a patch under axes of their own.
    Convolution,
    /// Theirs is `[input, output]`.
    Transpose,
    /// Theirs holds two tensors one after the other, of which ours is this one.
    Half(usize),
    /// Theirs holds three tensors one after the other, of which ours is this one.
    Third(usize),
    /// Theirs is `[input, 2 · output]`, of which ours is this half of the columns.
    TransposedHalf(usize),
    /// Theirs is `[input, 3 · output]`, of which ours is this third of the columns.
    TransposedThird(usize),
    /// Theirs rotates neighbouring features where ours rotates the halves of a head: in each head, our row `i` of half `h` is
    /// their row `2 · i + h`.
    NeighbouringPairs,
}

/// How our numbers lie among theirs where none has to be changed.
pub enum Lies {
    /// In our order, under our shape.
    InOrder(Vec<usize>),
    /// As these columns of a matrix of this shape.
    Columns([usize; 2], Range<usize>),
}

impl Lies {
    /// The numbers where they lie in a file, if it has them as we compute with them.
    pub fn mapped(self, file: &TensorFile, name: &str) -> Option<Numbers> {
        match self {
            Self::InOrder(shape) => file.mapped(name, &shape).map(Numbers::InOrder),
            Self::Columns(shape, columns) => {
                let matrix = file.mapped(name, &shape)?;
                Some(Numbers::Columns(matrix, columns))
            }
        }
    }
}

impl Operation {
    /// How ours can be read where theirs lies, given our shape, if it can.
    pub fn as_it_lies(self, shape: &[usize]) -> Option<Lies> {
        if let ([output, input], Some((wide, start))) = (shape, self.transposition(shape)) {
            return Some(Lies::Columns([*input, wide], start..start + output));
        }
        self.keeps_order().then(|| Lies::InOrder(shape.to_vec()))
    }

    /// Whether both have the same numbers one after the other.
    fn keeps_order(self) -> bool {
        matches!(
            self,
            Self::Same | Self::Led | Self::Parted | Self::Convolution
        )
    }

    /// The shape of theirs, given ours.
    pub fn their_shape(self, ours: &[usize], patches: Option<&PatchesConfig>) -> Vec<usize> {
        match (self, ours) {
            (Self::Same | Self::NeighbouringPairs, _) => ours.to_vec(),
            (Self::Led, _) => [&[1], ours].concat(),
            (Self::Parted, [first, rest @ ..]) => [&[*first, 1][..], rest].concat(),
            (Self::Convolution, [output, _]) => {
                let patches = patches.expect("convolutions are of models with patches");
                vec![*output, patches.channels, patches.size, patches.size]
            }
            (Self::Transpose, [output, input]) => vec![*input, *output],
            (Self::Half(_), [first, rest @ ..]) => [&[2 * first][..], rest].concat(),
            (Self::Third(_), [first, rest @ ..]) => [&[3 * first][..], rest].concat(),
            (Self::TransposedHalf(_), [output, input]) => vec![*input, 2 * output],
            (Self::TransposedThird(_), [output, input]) => vec![*input, 3 * output],
            _ => panic!("checkpoint table: {self:?} does not apply to {ours:?}"),
        }
    }

    /// Our numbers from theirs.
    pub fn ours(self, theirs: Vec<f32>, shape: &[usize], head_width: usize) -> Vec<f32> {
        if self.keeps_order() {
            return theirs;
        }
        if let ([output, input], Some((stride, start))) = (shape, self.transposition(shape)) {
            return transposed(&theirs, [*output, *input], stride, start);
        }
        (0..shape.iter().product())
            .map(|index| theirs[self.their_index(index, shape, head_width)])
            .collect()
    }

    /// Of what is transposed: how many columns theirs has, and which of them is our first row.
    fn transposition(self, shape: &[usize]) -> Option<(usize, usize)> {
        match (self, shape) {
            (Self::Transpose, [output, _]) => Some((*output, 0)),
            (Self::TransposedHalf(part), [output, _]) => Some((2 * output, part * output)),
            (Self::TransposedThird(part), [output, _]) => Some((3 * output, part * output)),
            _ => None,
        }
    }

    /// Puts our numbers to their places in theirs.
    pub fn put(self, ours: &[f32], shape: &[usize], head_width: usize, theirs: &mut [f32]) {
        for (index, number) in ours.iter().enumerate() {
            theirs[self.their_index(index, shape, head_width)] = *number;
        }
    }

    /// Where our number of this index stands in theirs.
    fn their_index(self, index: usize, shape: &[usize], head_width: usize) -> usize {
        match (self, shape) {
            _ if self.keeps_order() => index,
            (Self::Half(part) | Self::Third(part), _) => {
                part * shape.iter().product::<usize>() + index
            }
            (_, [_, input]) if let Some((stride, start)) = self.transposition(shape) => {
                index % input * stride + start + index / input
            }
            (Self::NeighbouringPairs, [_, rest @ ..]) => {
                let columns: usize = rest.iter().product();
                let (row, column) = (index / columns, index % columns);
                let (head, place) = (row / head_width, row % head_width);
                let pairs = head_width / 2;
                let theirs = head * head_width + place % pairs * 2 + place / pairs;
                theirs * columns + column
            }
            _ => panic!("checkpoint table: {self:?} does not apply to {shape:?}"),
        }
    }
}

/// Columns of `theirs`, from number `start` on, as rows `[output, input]`. In squares, since one of the two sides is read or
/// written across its rows, and a square of both stays in cache.
fn transposed(theirs: &[f32], shape: [usize; 2], stride: usize, start: usize) -> Vec<f32> {
    const SIDE: usize = 32;
    let [output, input] = shape;
    let mut ours = vec![0f32; output * input];
    for (above, left) in squares(output, input, SIDE) {
        for row in above..output.min(above + SIDE) {
            for column in left..input.min(left + SIDE) {
                ours[row * input + column] = theirs[column * stride + start + row];
            }
        }
    }
    ours
}

/// The corners of squares that cover a matrix.
fn squares(rows: usize, columns: usize, side: usize) -> impl Iterator<Item = (usize, usize)> {
    let row = (0..rows).step_by(side);
    row.flat_map(move |above| (0..columns).step_by(side).map(move |left| (above, left)))
}
