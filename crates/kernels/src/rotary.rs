//! Rotary position embedding (RoPE): pairs of a head's elements are rotated by angles that grow with the position. Su et al. 2021.
//!
//! The pairs are (i, i + half), as in GPT-NeoX and Llama.

use pulp::{Simd, WithSimd};

use crate::map_reduce::{VectorOp, map_reduce};
use crate::partition::{self, Partition, check_length};
use crate::simd;

/// The order of axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// [batch, heads, length, head width].
    HeadsFirst,
    /// [batch, length, heads, head width].
    LengthFirst,
}

/// The direction of the rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Rotates by the angle.
    Forward,
    /// Rotates by minus the angle, for the backward pass.
    Backward,
}

/// The shape of a tensor of heads, and the order of its axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotaryShape {
    /// Sequences.
    pub batch: usize,
    /// Heads of each sequence.
    pub heads: usize,
    /// Positions.
    pub length: usize,
    /// Width of a head: even.
    pub head_width: usize,
    /// The order of axes.
    pub layout: Layout,
}

impl RotaryShape {
    fn rows(self) -> usize {
        self.batch * self.heads * self.length
    }

    /// The sequence and the position of a row.
    #[inline(always)]
    fn position_of(self, row: usize) -> (usize, usize) {
        match self.layout {
            Layout::HeadsFirst => (row / (self.heads * self.length), row % self.length),
            Layout::LengthFirst => {
                let position = row / self.heads;
                (position / self.length, position % self.length)
            }
        }
    }

    /// Stride from the angles of a sequence to those of the next; zero when all share them.
    fn angle_stride(self, cosine: &[f32], sine: &[f32]) -> usize {
        let (operation, half) = ("rotary", self.head_width / 2);
        assert!(
            self.head_width.is_multiple_of(2),
            "{operation}: the head width {} is odd",
            self.head_width
        );
        check_length(operation, "sine", sine.len(), cosine.len());
        let shared_len = self.length * half;
        assert!(
            cosine.len() == shared_len || cosine.len() == self.batch * shared_len,
            "{operation}: cosine has {} values instead of {shared_len} or {}",
            cosine.len(),
            self.batch * shared_len
        );
        if cosine.len() == shared_len {
            0
        } else {
            shared_len
        }
    }
}

/// Rotates the pairs of each head: `y1 = x1 cos - x2 sin`, `y2 = x2 cos + x1 sin`.
///
/// `cosine` and `sine` are [1 or batch, length, head width / 2].
///
/// # Panics
/// When the sizes do not match.
pub fn rotary(
    x: &[f32],
    shape: RotaryShape,
    cosine: &[f32],
    sine: &[f32],
    direction: Direction,
    y: &mut [f32],
) {
    let (rows, width) = (shape.rows(), shape.head_width);
    check_length("rotary", "x", x.len(), rows * width);
    check_length("rotary", "y", y.len(), rows * width);
    let angle_stride = shape.angle_stride(cosine, sine);
    let instructions = simd::instructions();
    let parts = Partition::of_rows(rows, width);
    let tasks: Vec<_> = (parts.ranges().zip(parts.split(x, width)))
        .zip(parts.split_mut(y, width))
        .map(|((range, x), y)| RotaryTask {
            first: range.start,
            shape,
            angle_stride,
            x,
            cosine,
            sine,
            direction,
            y,
        })
        .collect();
    partition::for_each(tasks, |task| simd::run(instructions, task));
}

struct RotaryTask<'a> {
    first: usize,
    shape: RotaryShape,
    angle_stride: usize,
    x: &'a [f32],
    cosine: &'a [f32],
    sine: &'a [f32],
    direction: Direction,
    y: &'a mut [f32],
}

impl WithSimd for RotaryTask<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = self.shape.head_width;
        if width == 0 {
            return;
        }
        let half = width / 2;
        let rotate = Rotate(match self.direction {
            Direction::Forward => 1.0,
            Direction::Backward => -1.0,
        });
        let rows = (self.x.chunks_exact(width)).zip(self.y.chunks_exact_mut(width));
        for (index, (x, y)) in rows.enumerate() {
            let (sequence, position) = self.shape.position_of(self.first + index);
            let angles = sequence * self.angle_stride + position * half;
            let (x1, x2) = x.split_at(half);
            let (y1, y2) = y.split_at_mut(half);
            let cosine = &self.cosine[angles..angles + half];
            let sine = &self.sine[angles..angles + half];
            map_reduce(simd, &rotate, [x1, x2, cosine, sine], [y1, y2]);
        }
    }
}

struct Rotate(f32);

impl VectorOp<4, 2, 0> for Rotate {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [x1, x2, cosine, sine]: [S::f32s; 4],
        _: [S::f32s; 2],
    ) -> ([S::f32s; 2], [S::f32s; 0]) {
        let sine = simd.mul_f32s(sine, simd.splat_f32s(self.0));
        let y1 = simd.sub_f32s(simd.mul_f32s(x1, cosine), simd.mul_f32s(x2, sine));
        let y2 = simd.mul_add_e_f32s(x1, sine, simd.mul_f32s(x2, cosine));
        ([y1, y2], [])
    }
}

/// The specification: one pair at a time.
pub mod naive {
    use super::{Direction, Layout, RotaryShape};

    /// Rotates the pairs of each head.
    pub fn rotary(
        x: &[f64],
        shape: RotaryShape,
        cosine: &[f64],
        sine: &[f64],
        direction: Direction,
    ) -> Vec<f64> {
        let mut y = vec![0.0; x.len()];
        let (length, half) = (shape.length, shape.head_width / 2);
        for batch in 0..shape.batch {
            for head in 0..shape.heads {
                for position in 0..length {
                    let row = match shape.layout {
                        Layout::HeadsFirst => (batch * shape.heads + head) * length + position,
                        Layout::LengthFirst => (batch * length + position) * shape.heads + head,
                    };
                    for i in 0..half {
                        let angles = match cosine.len() == length * half {
                            true => position * half + i,
                            false => (batch * length + position) * half + i,
                        };
                        let sine = match direction {
                            Direction::Forward => sine[angles],
                            Direction::Backward => -sine[angles],
                        };
                        let first = row * shape.head_width + i;
                        let second = first + half;
                        y[first] = x[first] * cosine[angles] - x[second] * sine;
                        y[second] = x[second] * cosine[angles] + x[first] * sine;
                    }
                }
            }
        }
        y
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{
        assert_gradients_close, dot, few_cases, finite_differences, on_each_instruction_set,
        panic_message, random_values, to_f64,
    };
    use attentive_testing::{Scale, assert_close};
    use proptest::prelude::*;

    fn shape() -> impl Strategy<Value = RotaryShape> {
        let layout = prop::sample::select(vec![Layout::HeadsFirst, Layout::LengthFirst]);
        let half = prop::sample::select(vec![0usize, 1, 3, 7, 8, 9, 16, 17, 32]);
        let length = prop::sample::select(vec![0usize, 1, 2, 5, 131]);
        (0usize..4, 0usize..4, length, half, layout).prop_map(
            |(batch, heads, length, half, layout)| RotaryShape {
                batch,
                heads,
                length,
                head_width: 2 * half,
                layout,
            },
        )
    }

    proptest! {
        #![proptest_config(few_cases())]

        #[test]
        fn heads_equal_the_naive_reference(shape in shape(), seed: u64, shared: bool) {
            let x = random_values(seed, shape.rows() * shape.head_width);
            let batch = if shared { 1 } else { shape.batch };
            let angles = random_values(!seed, batch * shape.length * shape.head_width / 2);
            let cosine: Vec<f32> = angles.iter().map(|angle| angle.cos()).collect();
            let sine: Vec<f32> = angles.iter().map(|angle| angle.sin()).collect();
            for direction in [Direction::Forward, Direction::Backward] {
                let expected =
                    naive::rotary(&to_f64(&x), shape, &to_f64(&cosine), &to_f64(&sine), direction);
                on_each_instruction_set(|| {
                    let mut y = vec![f32::NAN; x.len()];
                    rotary(&x, shape, &cosine, &sine, direction, &mut y);
                    assert_close("rotary", &y, &expected, Scale::EachOrOne, 2e-6);
                });
            }
        }
    }

    #[test]
    fn the_backward_rotation_is_the_gradient() {
        let shape = RotaryShape {
            batch: 2,
            heads: 1,
            length: 2,
            head_width: 4,
            layout: Layout::LengthFirst,
        };
        let [x, dy, cosine, sine] = [(1, 16), (2, 16), (3, 4), (4, 4)]
            .map(|(seed, count)| to_f64(&random_values(seed, count)));
        let rotated = |x: &[f64], direction| naive::rotary(x, shape, &cosine, &sine, direction);
        let found = rotated(&dy, Direction::Backward);
        let expected = finite_differences(&x, |x| dot(&rotated(x, Direction::Forward), &dy));
        assert_gradients_close("dx", &found, &expected);
    }

    #[test]
    fn mismatched_sizes_are_refused() {
        let call = |head_width: usize, angles: usize| {
            let shape = RotaryShape {
                batch: 3,
                heads: 1,
                length: 2,
                head_width,
                layout: Layout::HeadsFirst,
            };
            let x = vec![0.0; shape.rows() * head_width];
            let angles = vec![0.0; angles];
            rotary(
                &x,
                shape,
                &angles,
                &angles,
                Direction::Forward,
                &mut x.clone(),
            );
        };
        assert!(panic_message(|| call(3, 2)).contains("rotary: the head width 3 is odd"));
        let message = panic_message(|| call(4, 5));
        assert!(
            message.contains("cosine has 5 values instead of 4 or 12"),
            "{message}"
        );
    }
}
