//! Runs the examples, and checks what they claim: those that write a plot, and an attention of one's own.

// Examples share the plotting code; each includes it as a module of its own.
#![allow(clippy::duplicate_mod)]

#[expect(dead_code, reason = "a program's own main")]
#[path = "../../../examples/content_and_position.rs"]
mod content_and_position;
#[expect(dead_code, reason = "a program's own main")]
#[path = "../../../examples/nadaraya_watson.rs"]
mod nadaraya_watson;
#[expect(dead_code, reason = "a program's own main")]
#[path = "../../../examples/own_attention.rs"]
mod own_attention;
#[expect(dead_code, reason = "a program's own main")]
#[path = "../../../examples/permutation.rs"]
mod permutation;
#[expect(dead_code, reason = "a program's own main")]
#[path = "../../../examples/variance.rs"]
mod variance;

use std::error::Error;
use std::path::Path;

use attentive_testing::{Scale, VALUES, assert_close};

/// Runs an example, checks that it wrote its plot, and returns its result.
fn run_example<T>(run: impl Fn(&Path) -> Result<T, Box<dyn Error>>) -> T {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plot.svg");
    let found = run(&path).unwrap();
    let svg = std::fs::read_to_string(path).unwrap();
    assert!(
        svg.starts_with("<svg") && svg.len() > 2000,
        "{} bytes",
        svg.len()
    );
    found
}

#[test]
fn the_variance_of_dot_products_grows_with_the_width_unless_they_are_scaled() {
    let rows = run_example(variance::run);
    for row in &rows {
        let [raw, scaled] = row.variances;
        assert!((0.6..1.5).contains(&(raw / row.width as f64)), "{row:?}");
        assert!((0.6..1.5).contains(&scaled), "{row:?}");
    }
    let entropies = rows.last().unwrap().entropies;
    assert!(entropies[0] < 0.3 && entropies[1] > 3.0, "{entropies:?}");
}

#[test]
fn attention_has_no_order_until_positions_are_added() {
    let found = run_example(permutation::run);
    let gaps = found.without_positions;
    let none = vec![0f32; gaps.len()];
    assert_close("without positions", &gaps, &none, Scale::One, VALUES);
    assert!(found.with_positions.iter().all(|gap| *gap > 1e-2));
}

#[test]
fn handmade_queries_attend_to_their_keys() {
    let found = run_example(content_and_position::run);
    for lookups in [found.by_content, found.by_position] {
        assert!(
            lookups.is_sorted_by(|a, b| a.error > b.error),
            "{lookups:?}"
        );
        let last = lookups.last().unwrap();
        assert!(last.min_weight > 0.999 && last.error < 0.1, "{last:?}");
    }
}

#[test]
fn a_learned_bandwidth_collapses_without_leave_one_out() {
    let fits = run_example(nadaraya_watson::run);
    let [.., included, left_out] = fits.as_slice() else {
        panic!("{fits:?}")
    };
    assert!(
        included.width < 0.02 && included.training_loss < 0.01,
        "{included:?}"
    );
    assert!((0.1..0.6).contains(&left_out.width), "{left_out:?}");
    assert!(left_out.held_out_loss < included.held_out_loss, "{fits:?}");
    assert!(left_out.held_out_loss < 0.4, "{fits:?}");
}

#[test]
fn an_attention_of_ones_own_is_trained_observed_saved_and_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let trained = own_attention::run(folder.path(), 40).unwrap();
    for it in &trained {
        let [before, after] = it.losses;
        assert!(after < before - 0.5, "{}: {before} to {after}", it.kind);
        let [trained, loaded] = &it.logits;
        assert_eq!(loaded, trained, "{}", it.kind);
        assert_eq!(it.weights, [1, 4, 32, 32], "{}", it.kind);
    }
    let [full, differential] = trained.as_slice() else {
        panic!("{trained:?}")
    };
    assert_eq!(differential.saved_as, "attentive");
    // In each of two layers, four vectors of one head's width and a norm of two heads.
    let own_parameters = 2 * (4 * 16 + 2 * 16);
    assert_eq!(differential.parameters, full.parameters + own_parameters);
    let lambdas = own_attention::lambdas(&folder.path().join("differential")).unwrap();
    assert!(
        lambdas.iter().all(|lambda| (0.0..1.0).contains(lambda)),
        "{lambdas:?}"
    );
}
