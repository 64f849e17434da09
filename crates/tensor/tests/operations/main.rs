//! Every operation of this crate, on the CPU's kernels, against PyTorch (`fixtures/operations`) and against finite
//! differences of its f64 twin: values, and the gradient of every input. What the operations compose on other backends is
//! in `composed.rs`.

mod case;
mod checks;
mod drawn;
mod edges;
mod golden;
mod merged;
mod ours;
mod refused;
mod shared;
mod twin;

use std::collections::BTreeSet;

use case::{Array, Case, largest};
use golden::Golden;
use ours::{Layout, Outcome, Tracked};

/// Relative to the largest number of the reference. Half a unit in the last place of an f32 is 6e-8 of it; sums of a few
/// hundred products, exponentials and their quotients stay within fifty of these.
const TOLERANCE: f64 = 3e-6;
/// The same for finite differences, over longer sums: cases past the kernels' blocks have thousands of terms.
const TOLERANCE_OF_DIFFERENCES: f64 = 1e-5;

fn name(golden: &Golden) -> &str {
    &golden.case.name
}

#[test]
fn values_and_gradients_are_those_of_pytorch() {
    for layout in [Layout::Dense, Layout::View] {
        checks::all(&golden::cases(), name, |golden| {
            let ours = ours::run(&golden.case, layout, Tracked::All);
            let matches = checks::matches_golden(golden, &ours, TOLERANCE);
            matches.map_err(|error| format!("{layout:?}: {error}"))
        });
    }
}

#[test]
fn a_gradient_does_not_depend_on_which_other_inputs_have_one() {
    checks::all(&golden::cases(), name, |golden| {
        for input in golden.case.inputs.keys() {
            let ours = ours::run(&golden.case, Layout::Dense, Tracked::Only(input));
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
        let tracked = ours::run(&golden.case, Layout::Dense, Tracked::All);
        let untracked = ours::run(&golden.case, Layout::Dense, Tracked::None);
        match tracked.outputs == untracked.outputs {
            true => Ok(()),
            false => Err("autodiff changes the outputs".to_owned()),
        }
    });
}

#[test]
fn gradients_are_the_slopes_of_the_twin() {
    let mut cases: Vec<Case> = smooth().into_iter().map(|golden| golden.case).collect();
    cases.extend(drawn::cases());
    checks::all(
        &cases,
        |case| &case.name,
        |case| {
            let ours = ours::run(case, Layout::Dense, Tracked::All);
            checks::matches_differences(case, &ours.gradients, TOLERANCE_OF_DIFFERENCES)
        },
    );
}

/// The twin is held to PyTorch as strictly as numbers stored in f32 allow, and so are finite differences of it.
#[test]
fn the_twin_is_right() {
    checks::all(&golden::cases(), name, |golden| {
        let outputs = twin::outputs(&golden.case, &golden.case.inputs);
        for (i, (twin, theirs)) in outputs.into_iter().zip(&golden.outputs).enumerate() {
            let shape = theirs.shape.clone();
            let twin = Array {
                shape,
                numbers: twin,
            };
            checks::compare(&format!("output {i}"), &twin, theirs, 1.0, 1e-7)?;
        }
        Ok(())
    });
    checks::all(&smooth(), name, |golden| {
        checks::matches_differences(&golden.case, &golden.gradients, 1e-6)
    });
}

/// The cases that no file holds have the twin's values too.
#[test]
fn values_of_drawn_cases_are_those_of_the_twin() {
    checks::all(
        &drawn::cases(),
        |case| &case.name,
        |case| {
            let twin = twin::outputs(case, &case.inputs);
            for layout in [Layout::Dense, Layout::View] {
                let ours = ours::run(case, layout, Tracked::None).outputs;
                for (ours, numbers) in ours.iter().zip(&twin) {
                    let twin = Array {
                        shape: ours.shape.clone(),
                        numbers: numbers.clone(),
                    };
                    checks::compare("output", ours, &twin, 1.0, TOLERANCE)?;
                }
            }
            Ok(())
        },
    );
}

/// Spoils one gradient at a time, and expects both checkers to see it: neither passes because it looks at nothing.
#[test]
fn a_wrong_gradient_is_refused() {
    type Spoil = fn(&mut [f64], f64);
    let spoils: [(&str, Spoil); 3] = [
        ("one number a little off", |numbers, size| {
            numbers[numbers.len() / 2] += 1e-4 * size;
        }),
        ("one number is none", |numbers, _| numbers[0] = f64::NAN),
        ("the wrong sign", |numbers, size| {
            for number in numbers {
                *number = -*number - 1e-4 * size;
            }
        }),
    ];
    for golden in smooth() {
        let case = &golden.case;
        for (input, reference) in &golden.gradients {
            let own_size = Some(largest(&reference.numbers)).filter(|size| *size > 0.0);
            let size = own_size.unwrap_or(case.upstream_size());
            for (how, spoil) in spoils {
                let mut ours = ours::run(case, Layout::Dense, Tracked::All);
                let gradients = &mut ours.gradients;
                let gradient = gradients.entry(input.clone()).or_insert(reference.clone());
                spoil(&mut gradient.numbers, size);
                expect_refusal(&golden, input, &ours, how);
            }
            if own_size.is_some() {
                let mut ours = ours::run(case, Layout::Dense, Tracked::All);
                ours.gradients.remove(input);
                expect_refusal(&golden, input, &ours, "forgotten");
            }
        }
    }
}

fn expect_refusal(golden: &Golden, input: &str, ours: &Outcome, how: &str) {
    let what = format!("{}: gradient of {input}, {how}", golden.case.name);
    let seen = checks::gradient_matches(golden, input, ours, TOLERANCE);
    assert!(seen.is_err(), "{what}: passes for PyTorch's");
    // In larger inputs, not every number is moved alone.
    if golden.gradients[input].numbers.len() <= checks::MOVED_ALONE {
        let (case, gradients) = (&golden.case, &ours.gradients);
        let tolerance = TOLERANCE_OF_DIFFERENCES;
        let seen = checks::gradient_matches_differences(case, input, gradients, tolerance);
        assert!(seen.is_err(), "{what}: passes for the twin's");
    }
}

/// A gradient a thousandth too large everywhere is seen in inputs of which only some numbers are moved alone.
#[test]
fn a_wrong_gradient_of_a_large_input_is_refused() {
    for case in drawn::cases() {
        let ours = ours::run(&case, Layout::Dense, Tracked::All);
        for (input, gradient) in &ours.gradients {
            if largest(&gradient.numbers) < 1e-6 {
                continue;
            }
            let mut spoiled = ours.gradients.clone();
            for number in &mut spoiled.get_mut(input).unwrap().numbers {
                *number *= 1.001;
            }
            let seen = checks::gradient_matches_differences(
                &case,
                input,
                &spoiled,
                TOLERANCE_OF_DIFFERENCES,
            );
            assert!(seen.is_err(), "{}: gradient of {input}", case.name);
        }
    }
}

/// What `lib.rs` exports has golden cases, unless it is known to have no gradient, or no PyTorch to compare with.
/// (That no case of the file is left out is asserted where it is read.)
#[test]
fn every_operation_has_golden_cases() {
    let exempt = [
        "adamw",
        "sum_of_squares",
        "device",
        "device_names",
        "check_environment",
        "dropout",
        "orthogonal_features",
    ];
    let mut exported = exported();
    exported.retain(|name| !exempt.contains(&name.as_str()));
    let golden: BTreeSet<String> = golden::cases()
        .iter()
        .map(|golden| golden.case.name.split('.').next().unwrap().to_owned())
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
    // These take one tensor, or a table and ids of which any shapes fit.
    let exempt = [
        "activate",
        "device",
        "device_names",
        "check_environment",
        "dropout",
        "embedding",
        "orthogonal_features",
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
    refused::numbers().iter().for_each(refused::Refusal::check);
}
