//! Rotary positions: pairs of a head's numbers are turned by angles that grow with the position. Su et al. 2021.
//!
//! The pairs are (i, i + half), as in GPT-NeoX and Llama.

use pulp::{Simd, WithSimd};

use crate::parts::{self, Parts, fits};
use crate::simd;
use crate::sweep::{Step, sweep};

/// The order of axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// [batch, heads, length, head width].
    HeadsFirst,
    /// [batch, length, heads, head width].
    LengthFirst,
}

/// Which way to turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// By the angle.
    Forward,
    /// By minus the angle: what the gradient needs.
    Backward,
}

/// The sizes of a tensor of heads, and the order of its axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Sequences.
    pub batch: usize,
    /// Heads of each sequence.
    pub heads: usize,
    /// Positions.
    pub length: usize,
    /// Numbers of a head: even.
    pub head_width: usize,
    /// The order of axes.
    pub layout: Layout,
}

impl Heads {
    fn rows(self) -> usize {
        self.batch * self.heads * self.length
    }

    /// The sequence and the position that a row of `head_width` numbers belongs to.
    #[inline(always)]
    fn place(self, row: usize) -> (usize, usize) {
        match self.layout {
            Layout::HeadsFirst => (row / (self.heads * self.length), row % self.length),
            Layout::LengthFirst => {
                let position = row / self.heads;
                (position / self.length, position % self.length)
            }
        }
    }

    /// How far apart the angles of two sequences are: zero when all share them.
    fn angle_stride(self, cosine: &[f32], sine: &[f32]) -> usize {
        let (operation, half) = ("rotary", self.head_width / 2);
        assert!(
            self.head_width.is_multiple_of(2),
            "{operation}: the head width {} is odd",
            self.head_width
        );
        fits(operation, "sine", sine.len(), cosine.len());
        let one = self.length * half;
        assert!(
            cosine.len() == one || cosine.len() == self.batch * one,
            "{operation}: cosine has {} numbers instead of {one} or {}",
            cosine.len(),
            self.batch * one
        );
        if cosine.len() == one { 0 } else { one }
    }
}

/// Turns the pairs of each head: `y1 = x1 cos - x2 sin`, `y2 = x2 cos + x1 sin`.
///
/// `cosine` and `sine` are [1 or batch, length, head width / 2].
///
/// # Panics
/// When the sizes do not fit.
pub fn rotary(
    x: &[f32],
    sizes: Heads,
    cosine: &[f32],
    sine: &[f32],
    direction: Direction,
    y: &mut [f32],
) {
    let (rows, width) = (sizes.rows(), sizes.head_width);
    fits("rotary", "x", x.len(), rows * width);
    fits("rotary", "y", y.len(), rows * width);
    let angle_stride = sizes.angle_stride(cosine, sine);
    let instructions = simd::instructions();
    let parts = Parts::of_rows(rows, width);
    let work: Vec<_> = (parts.ranges().zip(parts.cut(x, width)))
        .zip(parts.cut_mut(y, width))
        .map(|((range, x), y)| Part {
            first: range.start,
            sizes,
            angle_stride,
            x,
            cosine,
            sine,
            direction,
            y,
        })
        .collect();
    parts::each(work, |part| simd::run(instructions, part));
}

struct Part<'a> {
    first: usize,
    sizes: Heads,
    angle_stride: usize,
    x: &'a [f32],
    cosine: &'a [f32],
    sine: &'a [f32],
    direction: Direction,
    y: &'a mut [f32],
}

impl WithSimd for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = self.sizes.head_width;
        if width == 0 {
            return;
        }
        let half = width / 2;
        let turn = Turn(match self.direction {
            Direction::Forward => 1.0,
            Direction::Backward => -1.0,
        });
        let rows = (self.x.chunks_exact(width)).zip(self.y.chunks_exact_mut(width));
        for (index, (x, y)) in rows.enumerate() {
            let (sequence, position) = self.sizes.place(self.first + index);
            let angles = sequence * self.angle_stride + position * half;
            let (x1, x2) = x.split_at(half);
            let (y1, y2) = y.split_at_mut(half);
            let cosine = &self.cosine[angles..angles + half];
            let sine = &self.sine[angles..angles + half];
            sweep(simd, &turn, [x1, x2, cosine, sine], [y1, y2]);
        }
    }
}

struct Turn(f32);

impl Step<4, 2, 0> for Turn {
    #[inline(always)]
    fn step<S: Simd>(
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
    use super::{Direction, Heads, Layout};

    /// Turns the pairs of each head.
    pub fn rotary(
        x: &[f64],
        sizes: Heads,
        cosine: &[f64],
        sine: &[f64],
        direction: Direction,
    ) -> Vec<f64> {
        let mut y = vec![0.0; x.len()];
        let (length, half) = (sizes.length, sizes.head_width / 2);
        for batch in 0..sizes.batch {
            for head in 0..sizes.heads {
                for position in 0..length {
                    let row = match sizes.layout {
                        Layout::HeadsFirst => (batch * sizes.heads + head) * length + position,
                        Layout::LengthFirst => (batch * length + position) * sizes.heads + head,
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
                        let one = row * sizes.head_width + i;
                        let two = one + half;
                        y[one] = x[one] * cosine[angles] - x[two] * sine;
                        y[two] = x[two] * cosine[angles] + x[one] * sine;
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
    use crate::checks::{close, close_slopes, dot, each_way, few, numbers, panic_of, slopes, wide};
    use proptest::prelude::*;

    fn sizes() -> impl Strategy<Value = Heads> {
        let layout = prop::sample::select(vec![Layout::HeadsFirst, Layout::LengthFirst]);
        let half = prop::sample::select(vec![0usize, 1, 3, 7, 8, 9, 16, 17, 32]);
        let length = prop::sample::select(vec![0usize, 1, 2, 5, 131]);
        (0usize..4, 0usize..4, length, half, layout).prop_map(
            |(batch, heads, length, half, layout)| Heads {
                batch,
                heads,
                length,
                head_width: 2 * half,
                layout,
            },
        )
    }

    proptest! {
        #![proptest_config(few())]

        #[test]
        fn heads_are_turned_as_by_the_twin(sizes in sizes(), seed: u64, shared: bool) {
            let x = numbers(seed, sizes.rows() * sizes.head_width);
            let batch = if shared { 1 } else { sizes.batch };
            let angles = numbers(!seed, batch * sizes.length * sizes.head_width / 2);
            let cosine: Vec<f32> = angles.iter().map(|angle| angle.cos()).collect();
            let sine: Vec<f32> = angles.iter().map(|angle| angle.sin()).collect();
            for direction in [Direction::Forward, Direction::Backward] {
                let expected =
                    naive::rotary(&wide(&x), sizes, &wide(&cosine), &wide(&sine), direction);
                each_way(|| {
                    let mut y = vec![f32::NAN; x.len()];
                    rotary(&x, sizes, &cosine, &sine, direction, &mut y);
                    close("rotary", &y, &expected, 2e-6);
                });
            }
        }
    }

    #[test]
    fn turning_back_is_the_gradient() {
        let sizes = Heads {
            batch: 2,
            heads: 1,
            length: 2,
            head_width: 4,
            layout: Layout::LengthFirst,
        };
        let [x, dy, cosine, sine] =
            [(1, 16), (2, 16), (3, 4), (4, 4)].map(|(seed, count)| wide(&numbers(seed, count)));
        let turned = |x: &[f64], direction| naive::rotary(x, sizes, &cosine, &sine, direction);
        let found = turned(&dy, Direction::Backward);
        let expected = slopes(&x, |x| dot(&turned(x, Direction::Forward), &dy));
        close_slopes("dx", &found, &expected);
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let call = |head_width: usize, angles: usize| {
            let sizes = Heads {
                batch: 3,
                heads: 1,
                length: 2,
                head_width,
                layout: Layout::HeadsFirst,
            };
            let x = vec![0.0; sizes.rows() * head_width];
            let angles = vec![0.0; angles];
            rotary(
                &x,
                sizes,
                &angles,
                &angles,
                Direction::Forward,
                &mut x.clone(),
            );
        };
        assert!(panic_of(|| call(3, 2)).contains("rotary: the head width 3 is odd"));
        let message = panic_of(|| call(4, 5));
        assert!(
            message.contains("cosine has 5 numbers instead of 4 or 12"),
            "{message}"
        );
    }
}
