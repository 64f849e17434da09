//! One row of a tile: from scores to weights, and from slopes of weights to slopes of scores.

use pulp::Simd;

use super::super::scores::{Seen, dropout_factors, powers, prepare_row};
use super::super::{BiasOf, KEYS};
use super::Group;
use super::meetings::Meeting;
use crate::elementwise::add_to;

/// Replaces each number by `e^(number · factor + shift)`.
#[inline(always)]
fn exponentiate<S: Simd>(simd: S, vectors: &mut [S::f32s], factor: S::f32s, shift: S::f32s) {
    let (fours, rest) = vectors.as_chunks_mut::<4>();
    for four in fours {
        *four = powers(simd, *four, factor, shift);
    }
    for vector in rest {
        [*vector] = powers(simd, [*vector], factor, shift);
    }
}

impl Group<'_> {
    /// From raw scores to weights (with dropout), and from slopes of weights to slopes of scores.
    #[inline(always)]
    pub(super) fn row<S: Simd>(
        &self,
        simd: S,
        at: [usize; 3],
        meeting: &Meeting,
        weights: &mut [f32],
        slopes: &mut [f32],
        mean: f32,
    ) {
        let (tile, count, run) = (meeting.keys.start, meeting.keys.len(), &meeting.run);
        let number = self.shape.row(at[0], at[1], at[2]);
        let log_sum = self.attended.log_sums[number];
        let range = self.options.mask.range(self.shape, at[0], at[2]);
        let range = range.start.max(run.start)..range.end.min(run.end);
        let seen = Seen::new::<S>(range, tile, count);
        if seen.is_empty() || log_sum == f32::NEG_INFINITY {
            weights[..count].fill(0.0);
            slopes[..count].fill(0.0);
            return;
        }
        seen.clear_rest(weights, count);
        seen.clear_rest(slopes, count);
        let factor = prepare_row(weights, &seen, self.options, self.shape, at, tile);
        let (factor, shift) = (simd.splat_f32s(factor), simd.splat_f32s(-log_sum));
        let scale = self.options.scale;
        if self.options.dropout.is_none() && self.out.bias.is_none() {
            let (middle, scale) = (simd.splat_f32s(mean), simd.splat_f32s(scale));
            let weights = seen.vectors::<S>(weights);
            exponentiate(simd, weights, factor, shift);
            for (weight, slope) in weights.iter().zip(seen.vectors::<S>(slopes)) {
                let scaled = simd.mul_f32s(*weight, scale);
                *slope = simd.mul_f32s(scaled, simd.sub_f32s(*slope, middle));
            }
        } else {
            exponentiate(simd, seen.vectors::<S>(weights), factor, shift);
            let from = tile + seen.from;
            let inside = seen.from..seen.to;
            let (weights, slopes) = (&mut weights[inside.clone()], &mut slopes[inside]);
            self.drop_row(simd, number, from, weights, slopes, mean);
            if let Some(bias) = self.out.bias {
                self.add_to_bias(simd, bias, at, from, slopes);
            }
            for slope in slopes {
                *slope *= scale;
            }
        }
        // A weight of zero does not undo a slope that is infinite or none.
        seen.fill_vectors(slopes, 0.0);
    }

    /// Adds slopes of scores to the gradient of the bias, for the keys `from..`.
    #[inline(always)]
    fn add_to_bias<S: Simd>(
        &self,
        simd: S,
        bias: *mut f32,
        [batch, head, query]: [usize; 3],
        from: usize,
        slopes: &[f32],
    ) {
        let of = self.out.bias_of;
        let head = (batch * self.shape.heads + head) * of.size(self.shape);
        // SAFETY: `backward` checked the size, and no other task has this head.
        let out = unsafe {
            let start = bias.add(head + of.start(self.shape, query) + from);
            std::slice::from_raw_parts_mut(start, slopes.len())
        };
        match of {
            // Each number has one pair.
            BiasOf::Pairs => out.copy_from_slice(slopes),
            BiasOf::Keys | BiasOf::Distances => add_to(simd, out, slopes),
        }
    }

    /// Slopes of scores before their scale, and weights after dropout, if there is any.
    #[inline(always)]
    fn drop_row<S: Simd>(
        &self,
        simd: S,
        number: usize,
        from: usize,
        weights: &mut [f32],
        slopes: &mut [f32],
        mean: f32,
    ) {
        let mut factors = [1f32; KEYS];
        let factors = &mut factors[..weights.len()];
        dropout_factors(simd, self.options, self.shape, number, from, factors);
        for ((weight, slope), factor) in weights.iter_mut().zip(slopes).zip(factors) {
            *slope = *weight * (*slope * *factor - mean);
            *weight *= *factor;
        }
    }
}
