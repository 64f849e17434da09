//! Floating-point comparison for the tests of all crates.
//!
//! An f32 operation has a relative rounding error of at most half an [`EPSILON`]. The error of a sum of `n` terms, in any
//! order, is at most `n` rounding errors of the sum of the terms' *magnitudes* (Higham 2002, section 4.2); because of
//! cancellation it is not bounded by the result. Vector widths, fused multiply-adds and shapes change the order of sums, so
//! two CPUs differ by about as much. Tolerances are therefore a number of rounding errors relative to a [`Scale`], the
//! magnitude of what was summed. An absolute tolerance is one with a scale of one.
//!
//! Rounding errors mostly cancel: the error of a sum grows with the square root of `n`. What must be exact (bit-identical
//! results, zeros, masked positions without effect) is compared with `assert_eq!`.

use std::fmt::Display;

/// The machine epsilon of f32: the distance from 1 to the next value, one ulp.
pub const EPSILON: f64 = f32::EPSILON as f64;

/// The tolerance of outputs of models and operations, relative to the largest value of the reference: 84 ulps. The fixtures
/// have two to four layers, each with a dozen rounding errors of sums of at most 64 terms.
pub const VALUES: f64 = 1e-5;

/// The tolerance of gradients, which have passed through all layers twice and are sums over all positions.
pub const GRADIENTS: f64 = 1e-4;

/// The tolerance of beam search scores against transformers', relative to [`Scale::EachOrOne`]. A log-probability has the errors of
/// its logits: implementations and instruction sets differ by up to ten ulps ([`CLEAR_MARGIN`]) of logits up to twelve. A score is
/// the mean of log-probabilities of one sign, whose errors partly cancel; another power of the length multiplies score and
/// error alike. The additions, at most 24 in f32, add less than a tenth.
pub const SCORES: f64 = ulps(10 * 12);

/// A tolerance of this many ulps, relative to the scale.
pub const fn ulps(count: usize) -> f64 {
    count as f64 * EPSILON
}

/// The tolerance of a sum of this many terms in any order. Each addition is off by at most half an ulp of its partial sum. Such
/// errors behave like random variables, so they grow with the square root of the count, here with four standard deviations of
/// half an [`EPSILON`] each (Higham and Mary 2019). The counts of sums of sums add up, and so do those of two computations.
///
/// It is relative to a bound on the partial sums. The sum of the terms' magnitudes ([`Scale::Terms`]) always is one. So is the
/// largest of dozens of sums of terms of random signs ([`Scale::Largest`]): a partial sum is a shorter random walk than the sums
/// themselves, the largest of which is more than two standard deviations.
pub fn ulps_of_sum(terms: usize) -> f64 {
    2.0 * (terms.max(1) as f64).sqrt() * EPSILON
}

/// The difference of the two largest scores, in ulps of the largest magnitude.
pub fn margin(scores: &[f32]) -> f64 {
    let finite = scores.iter().filter(|score| score.is_finite());
    let mut sorted: Vec<f64> = finite.map(|score| f64::from(*score)).collect();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let magnitude = sorted.iter().fold(0.0, |max: f64, it| max.max(it.abs()));
    match sorted.as_slice() {
        [best, second, ..] => (best - second) / (magnitude * EPSILON),
        _ => f64::INFINITY,
    }
}

/// The minimum [`margin`] of an argmax that a golden text depends on. The logits of the fixtures differ by at most ten ulps
/// between instruction sets, so rounding errors cannot flip an argmax with ten times that margin.
pub const CLEAR_MARGIN: f64 = 100.0;

/// What a difference is relative to.
#[derive(Clone, Copy, Debug)]
pub enum Scale<'a> {
    /// One: for probabilities, cosines, and sums of a few of them.
    One,
    /// The largest magnitude of the reference: every value is a sum of terms of about that magnitude.
    Largest,
    /// The largest magnitude of the reference, but at least this: the magnitude of terms that cancel.
    LargestOr(f64),
    /// The magnitude of each value of the reference, but at least one: for values whose terms are of about one. Where these cancel,
    /// errors are relative to one.
    EachOrOne,
    /// For each value, the magnitude of what it sums: the sum of the magnitudes of its terms, or a bound on its partial sums.
    Terms(&'a [f64]),
    /// This magnitude.
    Of(f64),
}

/// The largest difference relative to the scale. It is infinite for NaN and for different infinities, so that the maximum does
/// not hide them.
///
/// # Panics
/// If the lengths differ, or a scale is negative, infinite or NaN.
#[track_caller]
pub fn difference<A, B>(ours: &[A], reference: &[B], scale: Scale) -> f64
where
    A: Copy + Into<f64>,
    B: Copy + Into<f64>,
{
    worst(ours, reference, scale).map_or(0.0, |worst| worst.difference)
}

/// Asserts that values differ by at most `bound` times the scale.
///
/// # Panics
/// With the value that differs most.
#[track_caller]
pub fn assert_close<A, B>(what: impl Display, ours: &[A], reference: &[B], scale: Scale, bound: f64)
where
    A: Copy + Into<f64>,
    B: Copy + Into<f64>,
{
    if let Err(error) = check_close(what, ours, reference, scale, bound) {
        panic!("{error}");
    }
}

/// [`assert_close`] that returns its message instead of panicking.
///
/// # Errors
/// With the value that differs most.
///
/// # Panics
/// If the lengths differ, or a scale is negative, infinite or NaN.
#[track_caller]
pub fn check_close<A, B>(
    what: impl Display,
    ours: &[A],
    reference: &[B],
    scale: Scale,
    bound: f64,
) -> Result<(), String>
where
    A: Copy + Into<f64>,
    B: Copy + Into<f64>,
{
    let Some(worst) = worst(ours, reference, scale) else {
        return Ok(());
    };
    let Worst {
        index,
        ours,
        reference,
        difference,
    } = worst;
    match difference <= bound {
        true => Ok(()),
        false => Err(format!(
            "{what}: value {index} is {ours} instead of {reference}: the error is {difference:.1e} of the scale, above the tolerance {bound:.1e}"
        )),
    }
}

/// [`assert_close`] of two values.
#[track_caller]
pub fn assert_near(
    what: impl Display,
    ours: impl Into<f64>,
    reference: impl Into<f64>,
    scale: Scale,
    bound: f64,
) {
    assert_close(what, &[ours.into()], &[reference.into()], scale, bound);
}

/// Asserts that values differ: the largest difference is more than `least` times the scale.
///
/// # Panics
/// If they do not, or if it is infinite: NaN and infinities are not the effect that a test looks for.
#[track_caller]
pub fn assert_differs<A, B>(what: impl Display, ours: &[A], other: &[B], scale: Scale, least: f64)
where
    A: Copy + Into<f64>,
    B: Copy + Into<f64>,
{
    let found = difference(ours, other, scale);
    assert!(
        found > least && found.is_finite(),
        "{what}: the difference is {found:.1e} of the scale instead of a number above {least:.1e}"
    );
}

/// The value that differs most.
struct Worst {
    index: usize,
    ours: f64,
    reference: f64,
    difference: f64,
}

#[track_caller]
fn worst<A, B>(ours: &[A], reference: &[B], scale: Scale) -> Option<Worst>
where
    A: Copy + Into<f64>,
    B: Copy + Into<f64>,
{
    assert_eq!(ours.len(), reference.len(), "different numbers of values");
    let is_magnitude = |scale: f64| scale >= 0.0 && scale.is_finite();
    let given: &[f64] = match &scale {
        Scale::LargestOr(magnitude) | Scale::Of(magnitude) => std::slice::from_ref(magnitude),
        Scale::Terms(magnitudes) => {
            assert_eq!(ours.len(), magnitudes.len(), "different numbers of scales");
            magnitudes
        }
        Scale::One | Scale::Largest | Scale::EachOrOne => &[],
    };
    // A negative scale would make every difference negative, an infinite one zero.
    if let Some(bad) = given.iter().find(|it| !is_magnitude(**it)) {
        panic!("the scale {bad} is not a magnitude");
    }
    let largest = |min: f64| {
        let magnitudes = reference.iter().map(|it| (*it).into().abs());
        magnitudes.filter(|it| it.is_finite()).fold(min, f64::max)
    };
    let common = match scale {
        Scale::One | Scale::EachOrOne | Scale::Terms(_) => 1.0,
        Scale::Largest => largest(0.0),
        Scale::LargestOr(min) => largest(min),
        Scale::Of(magnitude) => magnitude,
    };
    let differences = ours.iter().zip(reference).enumerate();
    let differences = differences.map(|(index, (ours, reference))| {
        let (ours, reference) = ((*ours).into(), (*reference).into());
        let scale = match scale {
            Scale::EachOrOne => reference.abs().max(1.0),
            Scale::Terms(magnitudes) => magnitudes[index],
            _ => common,
        };
        Worst {
            index,
            ours,
            reference,
            difference: relative(ours, reference, scale),
        }
    });
    differences.reduce(|worst, it| match it.difference > worst.difference {
        true => it,
        false => worst,
    })
}

fn relative(ours: f64, reference: f64, scale: f64) -> f64 {
    if ours == reference {
        return 0.0;
    }
    let difference = (ours - reference).abs() / scale;
    match difference.is_nan() {
        true => f64::INFINITY,
        false => difference,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFINITY: f32 = f32::INFINITY;

    #[test]
    fn a_difference_is_relative_to_its_scale() {
        let (ours, reference) = ([1.0f32, -99.0], [2.0f32, -100.0]);
        for (scale, expected) in [
            (Scale::One, 1.0),
            (Scale::Largest, 0.01),
            (Scale::LargestOr(1.0), 0.01),
            (Scale::LargestOr(200.0), 0.005),
            (Scale::EachOrOne, 0.5),
            (Scale::Terms(&[4.0, 8.0]), 0.25),
            (Scale::Of(10.0), 0.1),
        ] {
            assert_eq!(difference(&ours, &reference, scale), expected, "{scale:?}");
        }
    }

    #[test]
    fn nan_and_unequal_infinities_are_an_infinite_difference() {
        for (ours, reference) in [
            (f32::NAN, 1.0),
            (1.0, f32::NAN),
            (f32::NAN, f32::NAN),
            (INFINITY, 1.0),
            (INFINITY, -INFINITY),
            (1.0, INFINITY),
        ] {
            for scale in [Scale::One, Scale::Largest, Scale::EachOrOne] {
                let found = difference(&[0.0, ours, 0.0], &[0.0, reference, 0.0], scale);
                assert_eq!(found, f64::INFINITY, "{ours} {reference} {scale:?}");
            }
        }
        assert_eq!(difference(&[INFINITY], &[INFINITY], Scale::Largest), 0.0);
    }

    #[test]
    fn the_margin_is_in_ulps_of_the_largest_magnitude() {
        let found = margin(&[f32::NEG_INFINITY, 1.0, -2.0, 1.0 - f32::EPSILON]);
        assert_eq!(found, 0.5);
        assert_eq!(margin(&[1.0, f32::NEG_INFINITY]), f64::INFINITY);
    }

    #[test]
    fn only_zeros_are_close_to_a_reference_of_zeros() {
        assert_eq!(difference(&[0.0f32], &[0.0f32], Scale::Largest), 0.0);
        let found = difference(&[1e-30f32], &[0.0f32], Scale::Largest);
        assert_eq!(found, f64::INFINITY);
    }

    #[test]
    fn a_scale_that_is_no_magnitude_is_refused() {
        for bad in [-1.0, f64::INFINITY, f64::NAN] {
            for scale in [
                Scale::Of(bad),
                Scale::LargestOr(bad),
                Scale::Terms(&[1.0, bad]),
            ] {
                // Equal values: the scale is checked, not only used.
                let call = || difference(&[1.0f32, 2.0], &[1.0f32, 2.0], scale);
                assert!(std::panic::catch_unwind(call).is_err(), "{scale:?}");
            }
        }
        assert_eq!(difference(&[0.0f32], &[0.0f32], Scale::Of(0.0)), 0.0);
        let found = difference(&[1e-30f32], &[0.0f32], Scale::Of(0.0));
        assert_eq!(found, f64::INFINITY);
    }

    #[test]
    fn values_that_differ_are_finite_and_differ_by_more_than_the_least() {
        let differs = |ours: f32, other: f32| {
            let check = || assert_differs("y", &[1.0f32, ours], &[1.0f32, other], Scale::One, 0.5);
            std::panic::catch_unwind(check).is_ok()
        };
        assert!(differs(2.0, 1.0) && differs(-1.0, 1.0));
        assert!(!differs(1.0, 1.0) && !differs(1.5, 1.0));
        for bad in [f32::NAN, INFINITY] {
            assert!(!differs(bad, 1.0) && !differs(1.0, bad) && !differs(bad, bad));
        }
    }

    #[test]
    #[should_panic(
        expected = "y: value 1 is 3 instead of 2: the error is 1.0e0 of the scale, above the tolerance 1.2e-7"
    )]
    fn the_error_names_the_value_that_differs_most() {
        assert_close("y", &[1.0f32, 3.0], &[1.0f32, 2.0], Scale::One, ulps(1));
    }
}
