//! Vectorized map and reduce, the loop of all elementwise and reduction kernels: load a vector from each slice, compute, store,
//! accumulate.
//!
//! Remainders that do not fill a vector are handled here once for all kernels: missing lanes are loaded as zero, not stored, and
//! left out of the sums.

use pulp::{Simd, WithSimd};

use crate::partition::{self, Partition};
use crate::simd;

/// Evaluates `$call` with a constant that is the number of the variant: the kernel is monomorphized for each variant, so that
/// dispatch happens once and not per vector.
macro_rules! for_variant {
    ($value:expr, $enum:ident { $($variant:ident),* }, $constant:ident => $call:expr) => {
        match $value {
            $($enum::$variant => {
                const $constant: usize = $enum::$variant as usize;
                $call
            })*
        }
    };
}
pub(crate) use for_variant;

/// An operation on one vector of each slice.
///
/// A trait with `#[inline(always)]` methods rather than a closure: code that is not inlined is compiled without the
/// vector instructions.
pub(crate) trait VectorOp<const IN: usize, const OUT: usize, const SUMS: usize>:
    Sync
{
    /// Maps the inputs and the old outputs to the new outputs, and to the terms of each sum.
    fn apply<S: Simd>(
        &self,
        simd: S,
        inputs: [S::f32s; IN],
        old: [S::f32s; OUT],
    ) -> ([S::f32s; OUT], [S::f32s; SUMS]);
}

/// A function of one element and its derivative, in each lane.
///
/// A trait with `#[inline(always)]` methods, like [`VectorOp`].
pub(crate) trait ElementwiseFunction: Sync {
    /// `f(x)`.
    fn value<S: Simd>(&self, simd: S, x: S::f32s) -> S::f32s;

    /// `dy · f'(x)`.
    fn gradient<S: Simd>(&self, simd: S, x: S::f32s, dy: S::f32s) -> S::f32s;
}

/// `y = f(x)`.
pub(crate) struct Apply<F>(pub F);

impl<F: ElementwiseFunction> VectorOp<1, 1, 0> for Apply<F> {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [x]: [S::f32s; 1],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([self.0.value(simd, x)], [])
    }
}

/// `dx = dy · f'(x)`.
pub(crate) struct ApplyBackward<F>(pub F);

impl<F: ElementwiseFunction> VectorOp<2, 1, 0> for ApplyBackward<F> {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [x, dy]: [S::f32s; 2],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([self.0.gradient(simd, x, dy)], [])
    }
}

/// Accumulators per sum: enough to hide the latency of an addition.
const ACCUMULATORS: usize = 4;

/// Applies an operation to all vectors of slices of the same length, and returns the sums over all lanes.
///
/// The order of summation depends only on the length and the number of lanes.
#[inline(always)]
pub(crate) fn map_reduce<S, T, const IN: usize, const OUT: usize, const SUMS: usize>(
    simd: S,
    op: &T,
    inputs: [&[f32]; IN],
    mut outputs: [&mut [f32]; OUT],
) -> [f32; SUMS]
where
    S: Simd,
    T: VectorOp<IN, OUT, SUMS>,
{
    let zero = simd.splat_f32s(0.0);
    let length = match (inputs.first(), outputs.first()) {
        (Some(first), _) => first.len(),
        (None, Some(first)) => first.len(),
        (None, None) => 0,
    };
    let vectors = length / S::F32_LANES;
    let whole = vectors * S::F32_LANES;
    // Loops instead of closures throughout: a closure that is not inlined is compiled without the vector instructions.
    let mut sums = [[zero; ACCUMULATORS]; SUMS];
    let mut read: [&[S::f32s]; IN] = [&[]; IN];
    for i in 0..IN {
        read[i] = &S::as_simd_f32s(&inputs[i][..whole]).0[..vectors];
    }
    let mut written: [&mut [S::f32s]; OUT] = std::array::from_fn(|_| Default::default());
    for (slot, output) in written.iter_mut().zip(&mut outputs) {
        *slot = &mut S::as_mut_simd_f32s(&mut output[..whole]).0[..vectors];
    }
    let mut done = 0;
    if SUMS > 0 {
        // As arrays, so that the compiler can elide bounds checks.
        let blocks = vectors / ACCUMULATORS;
        let mut read_blocks: [&[[S::f32s; ACCUMULATORS]]; IN] = [&[]; IN];
        for i in 0..IN {
            read_blocks[i] = &read[i].as_chunks().0[..blocks];
        }
        let mut written_blocks: [&mut [[S::f32s; ACCUMULATORS]]; OUT] =
            std::array::from_fn(|_| Default::default());
        for (slot, output) in written_blocks.iter_mut().zip(&mut written) {
            *slot = &mut output.as_chunks_mut().0[..blocks];
        }
        for block in 0..blocks {
            for accumulator in 0..ACCUMULATORS {
                let (mut loaded, mut old) = ([zero; IN], [zero; OUT]);
                for i in 0..IN {
                    loaded[i] = read_blocks[i][block][accumulator];
                }
                for i in 0..OUT {
                    old[i] = written_blocks[i][block][accumulator];
                }
                let (new, terms) = op.apply(simd, loaded, old);
                for i in 0..OUT {
                    written_blocks[i][block][accumulator] = new[i];
                }
                for i in 0..SUMS {
                    sums[i][accumulator] = simd.add_f32s(sums[i][accumulator], terms[i]);
                }
            }
        }
        done = blocks * ACCUMULATORS;
    }
    for index in done..vectors {
        let (mut loaded, mut old) = ([zero; IN], [zero; OUT]);
        for i in 0..IN {
            loaded[i] = read[i][index];
        }
        for i in 0..OUT {
            old[i] = written[i][index];
        }
        let (new, terms) = op.apply(simd, loaded, old);
        for i in 0..OUT {
            written[i][index] = new[i];
        }
        for i in 0..SUMS {
            sums[i][0] = simd.add_f32s(sums[i][0], terms[i]);
        }
    }
    if whole < length {
        let mask = simd.mask_between_m32s(0, (length - whole) as u32).mask();
        let (mut loaded, mut old) = ([zero; IN], [zero; OUT]);
        for i in 0..IN {
            loaded[i] = simd.partial_load_f32s(&inputs[i][whole..length]);
        }
        for i in 0..OUT {
            old[i] = simd.partial_load_f32s(&outputs[i][whole..length]);
        }
        let (new, terms) = op.apply(simd, loaded, old);
        for i in 0..OUT {
            simd.partial_store_f32s(&mut outputs[i][whole..length], new[i]);
        }
        for i in 0..SUMS {
            let term = simd.select_f32s(mask, terms[i], zero);
            sums[i][0] = simd.add_f32s(sums[i][0], term);
        }
    }
    let mut out = [0.0; SUMS];
    for i in 0..SUMS {
        let [a, b, c, d] = sums[i];
        out[i] = simd.reduce_sum_f32s(simd.add_f32s(simd.add_f32s(a, b), simd.add_f32s(c, d)));
    }
    out
}

/// The maximum of a slice, ignoring NaN; minus infinity if it is empty.
#[inline(always)]
pub(crate) fn max<S: Simd>(simd: S, x: &[f32]) -> f32 {
    let lowest = simd.splat_f32s(f32::NEG_INFINITY);
    let mut maxima = [lowest; ACCUMULATORS];
    let (body, tail) = S::as_simd_f32s(x);
    let (blocks, rest) = body.as_chunks::<ACCUMULATORS>();
    // The hardware maximum returns its second operand if either is NaN, so the running maximum comes second.
    for block in blocks {
        for i in 0..ACCUMULATORS {
            maxima[i] = simd.max_f32s(block[i], maxima[i]);
        }
    }
    for x in rest {
        maxima[0] = simd.max_f32s(*x, maxima[0]);
    }
    if !tail.is_empty() {
        let mask = simd.mask_between_m32s(0, tail.len() as u32).mask();
        let x = simd.select_f32s(mask, simd.partial_load_f32s(tail), lowest);
        maxima[0] = simd.max_f32s(x, maxima[0]);
    }
    let [a, b, c, d] = maxima;
    simd.reduce_max_f32s(simd.max_f32s(simd.max_f32s(a, b), simd.max_f32s(c, d)))
}

/// [`map_reduce`] over slices of one length, multithreaded.
///
/// # Panics
/// When a slice differs in length from the first, naming `operation` and the argument.
pub(crate) fn parallel_map<T, const IN: usize, const OUT: usize>(
    operation: &str,
    op: &T,
    inputs: [&[f32]; IN],
    outputs: [&mut [f32]; OUT],
) where
    T: VectorOp<IN, OUT, 0>,
{
    struct MapTask<'a, T, const IN: usize, const OUT: usize> {
        op: &'a T,
        inputs: [&'a [f32]; IN],
        outputs: [&'a mut [f32]; OUT],
    }
    impl<T: VectorOp<IN, OUT, 0>, const IN: usize, const OUT: usize> WithSimd
        for MapTask<'_, T, IN, OUT>
    {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            map_reduce(simd, self.op, self.inputs, self.outputs);
        }
    }

    let mut lengths =
        (inputs.iter().map(|slice| slice.len())).chain(outputs.iter().map(|slice| slice.len()));
    let length = lengths.next().unwrap_or(0);
    for (other, found) in lengths.enumerate() {
        assert_eq!(
            found,
            length,
            "{operation}: argument {} has {found} values, but the first has {length}",
            other + 2
        );
    }
    let instructions = simd::instructions();
    let parts = Partition::of_elements(length);
    let mut rest = outputs;
    let work: Vec<_> = parts
        .ranges()
        .map(|range| MapTask {
            op,
            inputs: inputs.map(|slice| &slice[range.clone()]),
            outputs: rest.each_mut().map(|slice| {
                slice
                    .split_off_mut(..range.len())
                    .expect("the ranges cover the slices")
            }),
        })
        .collect();
    partition::for_each(work, |part| simd::run(instructions, part));
}
