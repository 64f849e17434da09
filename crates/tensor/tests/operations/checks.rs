//! The checkers: against a reference array, and against finite differences of the f64 twin. They return what is wrong as a
//! sentence, so that a test can also ask for one.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::case::{Array, Arrays, Case, largest};
use crate::golden::Golden;
use crate::ours::Outcome;
use crate::twin;

/// How far inputs move, each way. The error of a central difference grows with its square, and matters for a norm of zeros,
/// which bends within the root of epsilon; rounding in f64 adds about 1e-9.
const STEP: f64 = 1e-6;
/// Numbers of one input that are moved alone; the rest are moved all at once, along two directions.
pub const MOVED_ALONE: usize = 64;

/// Refuses outputs and gradients that are not PyTorch's.
pub fn matches_golden(golden: &Golden, ours: &Outcome, tolerance: f64) -> Result<(), String> {
    for (i, (ours, theirs)) in ours.outputs.iter().zip(&golden.outputs).enumerate() {
        compare(&format!("output {i}"), ours, theirs, 1.0, tolerance)?;
    }
    if ours.outputs.len() != golden.outputs.len() {
        return Err(format!("{} outputs", ours.outputs.len()));
    }
    for name in golden.gradients.keys() {
        gradient_matches(golden, name, ours, tolerance)?;
    }
    Ok(())
}

/// Refuses a gradient of one input that is not PyTorch's.
pub fn gradient_matches(
    golden: &Golden,
    input: &str,
    ours: &Outcome,
    tolerance: f64,
) -> Result<(), String> {
    let theirs = &golden.gradients[input];
    let ours = gradient_or_zeros(&golden.case, input, &ours.gradients);
    let size = golden.case.upstream_size();
    compare(
        &format!("gradient of {input}"),
        &ours,
        theirs,
        size,
        tolerance,
    )
}

/// An input that nothing read depends on may have no gradient at all; anything else is then found to be wrong.
fn gradient_or_zeros(case: &Case, input: &str, gradients: &Arrays) -> Array {
    let zeros = || {
        let shape = case.inputs[input].shape.clone();
        let numbers = vec![0.0; shape.iter().product()];
        Array { shape, numbers }
    };
    gradients.get(input).cloned().unwrap_or_else(zeros)
}

/// Refuses numbers further from the reference than `tolerance` times the reference's largest. A reference of zeros has no
/// size; then `size` stands for it.
pub fn compare(
    what: &str,
    ours: &Array,
    reference: &Array,
    size: f64,
    tolerance: f64,
) -> Result<(), String> {
    if ours.shape != reference.shape {
        let shapes = (&ours.shape, &reference.shape);
        return Err(format!(
            "{what} is {:?} instead of {:?}",
            shapes.0, shapes.1
        ));
    }
    let largest = largest(&reference.numbers);
    let size = if largest > 0.0 { largest } else { size };
    for (i, (ours, reference)) in ours.numbers.iter().zip(&reference.numbers).enumerate() {
        let apart = (ours - reference).abs() / size;
        if apart > tolerance || apart.is_nan() {
            return Err(format!(
                "{what}: number {i} is {ours} instead of {reference}, {apart:.1e} of the largest"
            ));
        }
    }
    Ok(())
}

/// Refuses gradients that are not the slopes of the twin.
pub fn matches_differences(case: &Case, gradients: &Arrays, tolerance: f64) -> Result<(), String> {
    let mut inputs = case.inputs.keys();
    inputs.try_for_each(|input| gradient_matches_differences(case, input, gradients, tolerance))
}

/// Refuses a gradient of one input that is not the twin's slope.
pub fn gradient_matches_differences(
    case: &Case,
    input: &str,
    gradients: &Arrays,
    tolerance: f64,
) -> Result<(), String> {
    let gradient = gradient_or_zeros(case, input, gradients).numbers;
    let places = places(&gradient);
    let alone = |place: &usize| slope(case, input, |i| f64::from(i == *place));
    let slopes: Vec<f64> = places.iter().map(alone).collect();
    // What rounding in f64 leaves of a slope of zero is no size.
    let size = Some(largest(&slopes)).filter(|size| *size > 1e-7);
    let size = size.unwrap_or(case.upstream_size());
    for (i, slope) in places.iter().zip(slopes) {
        let what = format!("gradient {i} of {input}");
        refuse_apart(&what, gradient[*i], slope, tolerance * size)?;
    }
    for seed in [1, 2] {
        let direction = |i: usize| sign(seed, i);
        let terms = gradient.iter().enumerate();
        let moved = terms.map(|(i, slope)| slope * direction(i)).sum();
        // Errors of many numbers add up like a walk of random steps.
        let room = tolerance * size * (gradient.len() as f64).sqrt();
        let what = format!("gradient of {input} along direction {seed}");
        refuse_apart(&what, moved, slope(case, input, direction), room)?;
    }
    Ok(())
}

fn refuse_apart(what: &str, ours: f64, reference: f64, room: f64) -> Result<(), String> {
    let apart = (ours - reference).abs();
    if apart <= room {
        return Ok(());
    }
    Err(format!(
        "{what} is {ours} instead of {reference}, {apart:.1e} apart where {room:.1e} is allowed"
    ))
}

/// All numbers of an input, or some from all over it (the factor is prime, so that no size has it as a period) and the one
/// with the largest gradient, which says how large the others' errors may be.
fn places(gradient: &[f64]) -> Vec<usize> {
    let count = gradient.len();
    let spread = (0..count.min(MOVED_ALONE)).map(|i| i * 7919 % count);
    let steepest = (0..count).max_by(|a, b| gradient[*a].abs().total_cmp(&gradient[*b].abs()));
    spread.chain(steepest).collect()
}

/// How fast what is read of the outputs grows along a direction of one input.
fn slope(case: &Case, input: &str, direction: impl Fn(usize) -> f64) -> f64 {
    let read = |step: f64| -> f64 {
        let mut inputs = case.inputs.clone();
        let numbers = &mut inputs.get_mut(input).unwrap().numbers;
        for (i, number) in numbers.iter_mut().enumerate() {
            *number += step * direction(i);
        }
        let outputs = twin::outputs(case, &inputs);
        let pairs = outputs.iter().flatten().zip(case.upstream.iter().flatten());
        pairs.map(|(output, upstream)| output * upstream).sum()
    };
    (read(STEP) - read(-STEP)) / (2.0 * STEP)
}

/// Plus or minus one, without a pattern.
fn sign(seed: u64, index: usize) -> f64 {
    match crate::drawn::scrambled((seed << 32) | index as u64) & 1 {
        0 => 1.0,
        _ => -1.0,
    }
}

/// Runs a check on each of many cases, and tells all that is wrong at once.
pub fn all<T>(cases: &[T], name: impl Fn(&T) -> &str, check: impl Fn(&T) -> Result<(), String>) {
    let wrong = |case: &T| {
        let checked = catch_unwind(AssertUnwindSafe(|| check(case)));
        let error = checked.unwrap_or(Err("it panics".to_owned())).err()?;
        Some(format!("{}: {error}", name(case)))
    };
    let wrong: Vec<String> = cases.iter().filter_map(wrong).collect();
    assert!(
        wrong.is_empty(),
        "{} of {} cases are wrong:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}
