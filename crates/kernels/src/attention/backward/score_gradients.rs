//! One row of a tile: from scores to weights, and from gradients of the weights to gradients of the scores.

use pulp::Simd;

use super::super::scores::{VisibleSpan, dropout_factors, exp_scaled, scale_and_mask};
use super::super::{BiasLayout, KEY_TILE};
use super::BackwardTask;
use super::tile_schedule::Tile;
use crate::elementwise::add_assign_with;

/// Replaces each score by `exp(score · factor + shift)`.
#[inline(always)]
fn exponentiate<S: Simd>(simd: S, vectors: &mut [S::f32s], factor: S::f32s, shift: S::f32s) {
    let (fours, rest) = vectors.as_chunks_mut::<4>();
    for four in fours {
        *four = exp_scaled(simd, *four, factor, shift);
    }
    for vector in rest {
        [*vector] = exp_scaled(simd, [*vector], factor, shift);
    }
}

impl BackwardTask<'_> {
    /// Turns raw scores into weights (after dropout), and gradients of the weights into gradients of the raw scores:
    /// `dS = P ∘ (dP - delta)`.
    #[inline(always)]
    pub(super) fn score_gradients<S: Simd>(
        &self,
        simd: S,
        at: [usize; 3],
        tile: &Tile,
        weights: &mut [f32],
        gradients: &mut [f32],
        delta: f32,
    ) {
        let (first_key, count, run) = (tile.keys.start, tile.keys.len(), &tile.run);
        let row = self.shape.row_index(at[0], at[1], at[2]);
        let log_sum_exp = self.saved.log_sum_exp[row];
        let visible = self.options.mask.visible_keys(self.shape, at[0], at[2]);
        let visible = visible.start.max(run.start)..visible.end.min(run.end);
        let span = VisibleSpan::new::<S>(visible, first_key, count);
        if span.is_empty() || log_sum_exp == f32::NEG_INFINITY {
            weights[..count].fill(0.0);
            gradients[..count].fill(0.0);
            return;
        }
        span.zero_outside(weights, count);
        span.zero_outside(gradients, count);
        let factor = scale_and_mask(weights, &span, self.options, self.shape, at, first_key);
        let (factor, shift) = (simd.splat_f32s(factor), simd.splat_f32s(-log_sum_exp));
        let scale = self.options.scale;
        if self.options.dropout.is_none() && self.out.bias.is_none() {
            let (delta, scale) = (simd.splat_f32s(delta), simd.splat_f32s(scale));
            let weights = span.vectors::<S>(weights);
            exponentiate(simd, weights, factor, shift);
            for (weight, gradient) in weights.iter().zip(span.vectors::<S>(gradients)) {
                let scaled = simd.mul_f32s(*weight, scale);
                *gradient = simd.mul_f32s(scaled, simd.sub_f32s(*gradient, delta));
            }
        } else {
            exponentiate(simd, span.vectors::<S>(weights), factor, shift);
            let from = first_key + span.from;
            let inside = span.from..span.to;
            let (weights, gradients) = (&mut weights[inside.clone()], &mut gradients[inside]);
            self.score_gradients_with_dropout(simd, row, from, weights, gradients, delta);
            if let Some(bias) = self.out.bias {
                self.add_to_bias(simd, bias, at, from, gradients);
            }
            for gradient in gradients {
                *gradient *= scale;
            }
        }
        // A weight of zero does not cancel a gradient that is infinite or NaN.
        span.fill_edges(gradients, 0.0);
    }

    /// Accumulates score gradients into the gradient of the bias, for the keys `from..`.
    #[inline(always)]
    fn add_to_bias<S: Simd>(
        &self,
        simd: S,
        bias: *mut f32,
        [batch, head, query]: [usize; 3],
        from: usize,
        gradients: &[f32],
    ) {
        let layout = self.out.bias_layout;
        let head = (batch * self.shape.heads + head) * layout.head_len(self.shape);
        // SAFETY: `GradientPointers::new` checked the size, and no other task has this head.
        let out = unsafe {
            let start = bias.add(head + layout.row_start(self.shape, query) + from);
            std::slice::from_raw_parts_mut(start, gradients.len())
        };
        match layout {
            // Each element belongs to one score.
            BiasLayout::PerPair => out.copy_from_slice(gradients),
            BiasLayout::PerKey | BiasLayout::PerDistance => add_assign_with(simd, out, gradients),
        }
    }

    /// Score gradients before their scale, and weights after dropout, if there is any.
    #[inline(always)]
    fn score_gradients_with_dropout<S: Simd>(
        &self,
        simd: S,
        row: usize,
        from: usize,
        weights: &mut [f32],
        gradients: &mut [f32],
        delta: f32,
    ) {
        let mut factors = [1f32; KEY_TILE];
        let factors = &mut factors[..weights.len()];
        dropout_factors(simd, self.options, self.shape, row, from, factors);
        for ((weight, gradient), factor) in weights.iter_mut().zip(gradients).zip(factors) {
            *gradient = *weight * (*gradient * *factor - delta);
            *weight *= *factor;
        }
    }
}
