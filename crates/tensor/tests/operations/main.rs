//! Every operation of this crate, on the CPU's kernels, against PyTorch (`fixtures/operations`) and against finite
//! differences of an f64 reference: values, and the gradient of every input. The composed operations of other backends are in
//! `composed.rs`.

mod aliasing;
mod case;
mod checks;
mod edge_cases;
mod generated;
mod golden;
mod partial_attention;
mod reference;
mod refused;
mod runner;

use std::collections::BTreeSet;

use case::{Array, Case, max_abs};
use golden::Golden;
use runner::{Layout, Outcome, Tracked};

/// Relative to the largest magnitude of the reference. Half a unit in the last place of an f32 is 6e-8 of it; sums of a few
/// hundred products, exponentials and their quotients stay within fifty of these.
const TOLERANCE: f64 = 3e-6;
/// The same for finite differences, over longer sums: cases past the kernels' blocks have thousands of terms.
const FINITE_DIFFERENCE_TOLERANCE: f64 = 1e-5;

fn name(golden: &Golden) -> &str {
    &golden.case.name
}

/// Operations that have another name in the golden file, where names seed the inputs.
const RENAMED: [(&str, &str); 6] = [
    ("three_linears", "linear_qkv"),
    ("norm_beside", "norm_with_input"),
    ("norm_beside_sum", "add_norm_with_sum"),
    ("norm_of_sum", "add_norm"),
    ("attention_with_log_sums", "attention_with_log_sum_exp"),
    ("merge_attended", "merge_partial_attention"),
];

/// The function that a golden case is of.
fn operation(golden: &Golden) -> &str {
    let operation = golden.case.name.split('.').next().unwrap();
    let renamed = RENAMED.iter().find(|(old, _)| *old == operation);
    renamed.map_or(operation, |(_, new)| new)
}

#[test]
fn values_and_gradients_are_those_of_pytorch() {
    for layout in [Layout::Contiguous, Layout::Transposed] {
        checks::all(&golden::cases(), name, |golden| {
            let ours = runner::run(&golden.case, layout, Tracked::All);
            let matches = checks::matches_golden(golden, &ours, TOLERANCE);
            matches.map_err(|error| format!("{layout:?}: {error}"))
        });
    }
}

#[test]
fn a_gradient_does_not_depend_on_which_other_inputs_have_one() {
    checks::all(&golden::cases(), name, |golden| {
        for input in golden.case.inputs.keys() {
            let ours = runner::run(&golden.case, Layout::Contiguous, Tracked::Only(input));
            if ours.gradients.keys().any(|other| other != input) {
                return Err(format!("more than {input} has a gradient"));
            }
            checks::gradient_matches(golden, input, &ours, TOLERANCE)?;
        }
        Ok(())
    });
}

#[test]
fn values_are_the_same_without_autodiff() {
    checks::all(&golden::cases(), name, |golden| {
        let tracked = runner::run(&golden.case, Layout::Contiguous, Tracked::All);
        let untracked = runner::run(&golden.case, Layout::Contiguous, Tracked::None);
        match tracked.outputs == untracked.outputs {
            true => Ok(()),
            false => Err("autodiff changes the outputs".to_owned()),
        }
    });
}

#[test]
fn gradients_are_the_finite_differences_of_the_reference() {
    let mut cases: Vec<Case> = smooth().into_iter().map(|golden| golden.case).collect();
    cases.extend(generated::cases());
    checks::all(
        &cases,
        |case| &case.name,
        |case| {
            let ours = runner::run(case, Layout::Contiguous, Tracked::All);
            checks::matches_differences(case, &ours.gradients, FINITE_DIFFERENCE_TOLERANCE)
        },
    );
}

/// The reference agrees with PyTorch as closely as values stored in f32 allow, and so do its finite differences.
#[test]
fn the_reference_is_right() {
    checks::all(&golden::cases(), name, |golden| {
        let outputs = reference::outputs(&golden.case, &golden.case.inputs);
        assert_eq!(
            outputs.len(),
            golden.outputs.len(),
            "outputs of {}",
            golden.case.name
        );
        for (i, (expected, theirs)) in outputs.into_iter().zip(&golden.outputs).enumerate() {
            let shape = theirs.shape.clone();
            let expected = Array {
                shape,
                values: expected,
            };
            checks::compare(&format!("output {i}"), &expected, theirs, 1.0, 1e-7)?;
        }
        Ok(())
    });
    checks::all(&smooth(), name, |golden| {
        checks::matches_differences(&golden.case, &golden.gradients, 1e-6)
    });
}

/// Values of the generated cases, which have no golden file.
#[test]
fn values_of_generated_cases_are_those_of_the_reference() {
    checks::all(
        &generated::cases(),
        |case| &case.name,
        |case| {
            let expected = reference::outputs(case, &case.inputs);
            for layout in [Layout::Contiguous, Layout::Transposed] {
                let ours = runner::run(case, layout, Tracked::None).outputs;
                assert_eq!(ours.len(), expected.len(), "outputs of {}", case.name);
                for (ours, values) in ours.iter().zip(&expected) {
                    let expected = Array {
                        shape: ours.shape.clone(),
                        values: values.clone(),
                    };
                    checks::compare("output", ours, &expected, 1.0, TOLERANCE)?;
                }
            }
            Ok(())
        },
    );
}

/// Corrupts one gradient at a time, which both checkers must detect.
#[test]
fn a_wrong_gradient_is_detected() {
    type Corruption = fn(&mut [f64], f64);
    let corruptions: [(&str, Corruption); 3] = [
        ("one element slightly off", |values, size| {
            values[values.len() / 2] += 1e-4 * size;
        }),
        ("one element is NaN", |values, _| values[0] = f64::NAN),
        ("the wrong sign", |values, size| {
            for value in values {
                *value = -*value - 1e-4 * size;
            }
        }),
    ];
    for golden in smooth() {
        let case = &golden.case;
        for (input, reference) in &golden.gradients {
            let own_size = Some(max_abs(&reference.values)).filter(|size| *size > 0.0);
            let size = own_size.unwrap_or(case.upstream_size());
            for (how, corrupt) in corruptions {
                let mut ours = runner::run(case, Layout::Contiguous, Tracked::All);
                let gradients = &mut ours.gradients;
                let gradient = gradients.entry(input.clone()).or_insert(reference.clone());
                corrupt(&mut gradient.values, size);
                expect_detected(&golden, input, &ours, how);
            }
            if own_size.is_some() {
                let mut ours = runner::run(case, Layout::Contiguous, Tracked::All);
                ours.gradients.remove(input);
                expect_detected(&golden, input, &ours, "missing");
            }
        }
    }
}

fn expect_detected(golden: &Golden, input: &str, ours: &Outcome, how: &str) {
    let what = format!("{}: gradient of {input}, {how}", golden.case.name);
    let seen = checks::gradient_matches(golden, input, ours, TOLERANCE);
    assert!(seen.is_err(), "{what}: passes the check against PyTorch");
    // In larger inputs, not every element is perturbed alone.
    if golden.gradients[input].values.len() <= checks::MAX_PERTURBED_ALONE {
        let (case, gradients) = (&golden.case, &ours.gradients);
        let tolerance = FINITE_DIFFERENCE_TOLERANCE;
        let seen = checks::gradient_matches_differences(case, input, gradients, tolerance);
        assert!(
            seen.is_err(),
            "{what}: passes the check against finite differences"
        );
    }
}

/// A gradient a thousandth too large everywhere is detected also in inputs of which only some elements are perturbed alone.
#[test]
fn a_wrong_gradient_of_a_large_input_is_detected() {
    for case in generated::cases() {
        let ours = runner::run(&case, Layout::Contiguous, Tracked::All);
        for (input, gradient) in &ours.gradients {
            if max_abs(&gradient.values) < 1e-6 {
                continue;
            }
            let mut corrupted = ours.gradients.clone();
            for value in &mut corrupted.get_mut(input).unwrap().values {
                *value *= 1.001;
            }
            let seen = checks::gradient_matches_differences(
                &case,
                input,
                &corrupted,
                FINITE_DIFFERENCE_TOLERANCE,
            );
            assert!(seen.is_err(), "{}: gradient of {input}", case.name);
        }
    }
}

/// Every exported operation has golden cases, unless it has no gradient or no counterpart in PyTorch.
/// (That no case of the file is left out is asserted where it is read.)
#[test]
fn every_operation_has_golden_cases() {
    let exempt = [
        "adamw",
        "sum_of_squares",
        "device",
        "device_names",
        "check_environment",
        "set_threads",
        "dropout",
        "orthogonal_features",
        "torch_normal",
    ];
    let mut exported = exported();
    exported.retain(|name| !exempt.contains(&name.as_str()));
    let golden: BTreeSet<String> = golden::cases()
        .iter()
        .map(|golden| operation(golden).to_owned())
        .collect();
    assert_eq!(exported, golden);
}

/// The names of the functions that `lib.rs` exports.
fn exported() -> BTreeSet<String> {
    let exported: BTreeSet<String> = include_str!("../../src/lib.rs")
        .split("pub use ")
        .skip(1)
        .flat_map(|line| {
            line.split(';')
                .next()
                .unwrap()
                .split([':', '{', '}', ','])
                .skip(1)
        })
        .map(|name| name.trim().to_owned())
        .filter(|name| name.starts_with(|first: char| first.is_ascii_lowercase()))
        .filter(|name| name != "tensor")
        .collect();
    assert!(exported.len() > 10, "{exported:?}");
    exported
}

fn smooth() -> Vec<Golden> {
    let cases = golden::cases().into_iter();
    cases.filter(|golden| golden.smooth).collect()
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let refusals = refused::shapes();
    refusals.iter().for_each(refused::Refusal::check);
    // These take one tensor, a table and ids, or no tensor: shapes cannot mismatch.
    let exempt = [
        "activate",
        "device",
        "device_names",
        "check_environment",
        "set_threads",
        "dropout",
        "embedding",
        "orthogonal_features",
        "torch_normal",
        "positive_features",
        "softmax",
        "sum_of_squares",
    ];
    let mut exported = exported();
    exported.retain(|name| !exempt.contains(&name.as_str()));
    let refusing: BTreeSet<String> = (refusals.iter().map(|it| it.operation.to_owned())).collect();
    assert_eq!(exported, refusing);
}

#[test]
fn numbers_out_of_range_are_refused() {
    refused::values().iter().for_each(refused::Refusal::check);
}
