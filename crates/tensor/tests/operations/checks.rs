//! The checkers: against an expected array, and against finite differences of the f64 reference. They return errors, so that
//! a test can also expect one.

use std::panic::{AssertUnwindSafe, catch_unwind};

use attentive_testing::{Scale, check_close};

use crate::case::{Array, Arrays, Case, max_abs};
use crate::golden::Golden;
use crate::reference;
use crate::runner::Outcome;

/// The step of the central differences. Their error grows with its square, which matters for a norm of zeros, whose
/// curvature is large within the root of epsilon; rounding in f64 adds about 1e-9.
const STEP: f64 = 1e-6;
/// How many elements of an input are perturbed one by one; all of them are perturbed together, along two directions.
pub const MAX_PERTURBED_ALONE: usize = 64;

/// Checks outputs and gradients against PyTorch's.
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

/// Checks the gradient of one input against PyTorch's.
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

/// An input that the loss does not depend on may have no gradient, which stands for zeros.
fn gradient_or_zeros(case: &Case, input: &str, gradients: &Arrays) -> Array {
    let zeros = || {
        let shape = case.inputs[input].shape.clone();
        let values = vec![0.0; shape.iter().product()];
        Array { shape, values }
    };
    gradients.get(input).cloned().unwrap_or_else(zeros)
}

/// Checks values to within `tolerance` times the largest magnitude of the reference, or times `size` if that is all zeros.
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
    let (ours, reference) = (&ours.values, &reference.values);
    let scale = match reference.iter().all(|it| *it == 0.0) {
        true => Scale::Of(size),
        false => Scale::Largest,
    };
    check_close(what, ours, reference, scale, tolerance)
}

/// Checks gradients against finite differences of the reference.
pub fn matches_differences(case: &Case, gradients: &Arrays, tolerance: f64) -> Result<(), String> {
    let mut inputs = case.inputs.keys();
    inputs.try_for_each(|input| gradient_matches_differences(case, input, gradients, tolerance))
}

/// Checks the gradient of one input against finite differences of the reference.
pub fn gradient_matches_differences(
    case: &Case,
    input: &str,
    gradients: &Arrays,
    tolerance: f64,
) -> Result<(), String> {
    let gradient = gradient_or_zeros(case, input, gradients).values;
    let indices = indices(&gradient);
    let alone = |index: &usize| finite_difference(case, input, |i| f64::from(i == *index));
    let differences: Vec<f64> = indices.iter().map(alone).collect();
    // Rounding in f64 leaves noise of a derivative that is zero.
    let size = Some(max_abs(&differences)).filter(|size| *size > 1e-7);
    let size = size.unwrap_or(case.upstream_size());
    for (i, difference) in indices.iter().zip(differences) {
        let what = format!("gradient {i} of {input}");
        check_close(
            what,
            &[gradient[*i]],
            &[difference],
            Scale::Of(size),
            tolerance,
        )?;
    }
    for seed in [1, 2] {
        let direction = |i: usize| sign(seed, i);
        let terms = gradient.iter().enumerate();
        let derivative: f64 = terms.map(|(i, gradient)| gradient * direction(i)).sum();
        // Errors of many elements add up like a random walk.
        let scale = Scale::Of(size * (gradient.len() as f64).sqrt());
        let what = format!("gradient of {input} along direction {seed}");
        let expected = finite_difference(case, input, direction);
        check_close(what, &[derivative], &[expected], scale, tolerance)?;
    }
    Ok(())
}

/// All indices of an input, or a scattered sample (the stride is prime, so it has no common period with a size) and the index
/// of the largest gradient, which sets the scale of the tolerance.
fn indices(gradient: &[f64]) -> Vec<usize> {
    let count = gradient.len();
    let scattered = (0..count.min(MAX_PERTURBED_ALONE)).map(|i| i * 7919 % count);
    let steepest = (0..count).max_by(|a, b| gradient[*a].abs().total_cmp(&gradient[*b].abs()));
    scattered.chain(steepest).collect()
}

/// The central difference of the loss along a direction of one input.
fn finite_difference(case: &Case, input: &str, direction: impl Fn(usize) -> f64) -> f64 {
    let loss = |step: f64| -> f64 {
        let mut inputs = case.inputs.clone();
        let values = &mut inputs.get_mut(input).unwrap().values;
        for (i, number) in values.iter_mut().enumerate() {
            *number += step * direction(i);
        }
        let outputs = reference::outputs(case, &inputs);
        let pairs = outputs.iter().flatten().zip(case.upstream.iter().flatten());
        pairs.map(|(output, upstream)| output * upstream).sum()
    };
    (loss(STEP) - loss(-STEP)) / (2.0 * STEP)
}

/// Plus or minus one, pseudo-random.
fn sign(seed: u64, index: usize) -> f64 {
    match crate::generated::split_mix((seed << 32) | index as u64) & 1 {
        0 => 1.0,
        _ => -1.0,
    }
}

/// Runs a check on each case, and reports all failures at once.
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
