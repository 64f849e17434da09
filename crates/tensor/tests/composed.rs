//! The composed operations, which run where there are no kernels, against PyTorch and against finite differences.
//!
//! Kernels are for f32, so a device with default dtype f64 runs the composed form, in f64. The default dtype is set per
//! process: hence a separate test binary.

#[path = "operations/case.rs"]
mod case;
#[path = "operations/checks.rs"]
mod checks;
#[path = "operations/generated.rs"]
mod generated;
#[path = "operations/golden.rs"]
mod golden;
#[path = "operations/reference.rs"]
mod reference;
#[expect(dead_code, reason = "shared with the operations' own tests")]
#[path = "operations/refused/mod.rs"]
mod refused;
#[expect(dead_code, reason = "shared with the operations' own tests")]
#[path = "operations/runner.rs"]
mod runner;

use std::sync::Once;

use attentive_tensor::{Device, Tensor, cross_entropy};
use burn::tensor::FloatDType;
use runner::{Layout, Tracked};

/// Everything is f64 except the golden file and rotary's frequencies, which are f32: an angle of 8 is 5e-7 off.
const TOLERANCE: f64 = 1e-6;

/// Sets the device's default dtype to f64, once.
fn configure() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| Device::flex().configure(FloatDType::F64).unwrap());
}

#[test]
fn the_composed_operations_are_those_of_pytorch() {
    configure();
    checks::all(
        &golden::cases(),
        |golden| &golden.case.name,
        |golden| {
            let ours = runner::run(&golden.case, Layout::Contiguous, Tracked::All);
            checks::matches_golden(golden, &ours, TOLERANCE)?;
            if !golden.smooth {
                return Ok(());
            }
            checks::matches_differences(&golden.case, &ours.gradients, TOLERANCE)
        },
    );
    checks::all(
        &generated::cases(),
        |case| &case.name,
        |case| {
            let ours = runner::run(case, Layout::Contiguous, Tracked::All);
            checks::matches_differences(case, &ours.gradients, TOLERANCE)
        },
    );
}

#[test]
fn an_ignored_row_may_hold_anything() {
    configure();
    let device = Device::flex().autodiff();
    for anything in [f64::NEG_INFINITY, f64::INFINITY, f64::NAN] {
        for smoothing in [0.0, 0.1] {
            let logits = [[0.5, 0.25], [anything, 1.0], [anything, anything]];
            let logits = Tensor::<2>::from_data(logits, &device).require_grad();
            let targets = Tensor::from_ints([0, -100, -100], &device);
            let loss = cross_entropy(logits.clone(), targets, smoothing);
            let gradient = runner::values(logits.grad(&loss.clone().backward()).unwrap());
            assert!(runner::values(loss)[0].is_finite());
            assert!(gradient[..2].iter().all(|it| it.is_finite()));
            assert_eq!(gradient[2..], [0.0; 4]);
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    configure();
    refused::shapes().iter().for_each(refused::Refusal::check);
}
