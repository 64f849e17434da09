//! Products against the naive version, bitwise equality for any partition, split-K, and the packed-B cache.

use super::macrokernel::{KC, MAX_PACKED_DEPTH, MC, NC};
use super::*;
use crate::checks::{assert_sums_close, to_f64, unit_values};
use crate::simd::{self, with_instructions};
use proptest::prelude::*;

/// A power of two, so that an epilogue that multiplies by it rounds nothing.
fn factor(row: usize, column: usize) -> f32 {
    2f32.powi(((7 * row + column) % 61) as i32 - 30)
}

fn check(
    rows: usize,
    depth: usize,
    columns: usize,
    a_transposed: bool,
    b_transposed: bool,
    init: Init,
) {
    let (a_data, b_data) = (
        unit_values(1, rows * depth),
        unit_values(2, depth * columns),
    );
    let matrix = |data, rows, columns, is_transposed| match is_transposed {
        true => Matrix::new(data, columns, rows).transposed(),
        false => Matrix::new(data, rows, columns),
    };
    let a = matrix(&a_data, rows, depth, a_transposed);
    let b = matrix(&b_data, depth, columns, b_transposed);
    let mut expected = unit_values(3, rows * columns);
    let before = expected.clone();
    naive::gemm(a, b, &mut expected, init);
    let expected = to_f64(&expected);
    for &instructions in simd::available() {
        let mut c = before.clone();
        with_instructions(instructions, || {
            gemm(a, b, &mut c, init, |row, column, values| {
                for (i, value) in values.iter_mut().enumerate() {
                    *value *= factor(row, column + i);
                }
            });
        });
        for (i, value) in c.iter_mut().enumerate() {
            *value /= factor(i / columns, i % columns);
        }
        let what = format!("{instructions:?} {rows}×{depth}×{columns}");
        assert_sums_close(&what, &c, &expected, depth);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn matches_the_naive_version(
        rows in prop_oneof![Just(0), Just(1), Just(5), Just(6), Just(7), Just(8), Just(11), Just(12), Just(13), 1usize..40, Just(97), Just(MC + 1)],
        depth in prop_oneof![Just(0), Just(1), 1usize..40, Just(255), Just(256), Just(257), Just(KC - 1), Just(KC), Just(KC + 1)],
        columns in prop_oneof![Just(0), Just(1), Just(15), Just(16), Just(17), Just(31), Just(32), Just(33), 1usize..70],
        a_transposed: bool,
        b_transposed: bool,
        add: bool,
    ) {
        let init = if add { Init::Accumulate } else { Init::Zero };
        check(rows, depth, columns, a_transposed, b_transposed, init);
    }
}

#[test]
fn products_with_many_columns_take_several_blocks() {
    check(13, 300, NC + 33, false, true, Init::Accumulate);
}

#[test]
fn results_are_bitwise_equal_whether_a_is_packed_or_not() {
    // Narrow tiles: one thread packs A, many have too few columns each; the last takes several blocks of columns.
    // At depth KC, rows of a tile stay in L1 where panels are wide; at a quarter of it, panels do.
    let sizes = [
        (5, 255),
        (6, 256),
        (7, 600),
        (25, 300),
        (MC + 1, 257),
        (8, NC + 33),
    ];
    for ((rows, columns), depth) in sizes
        .into_iter()
        .flat_map(|it| [(it, KC / 4), (it, KC), (it, KC + 3)])
    {
        let (a, b) = (
            unit_values(1, rows * depth),
            unit_values(2, columns * depth),
        );
        let a = Matrix::new(&a, rows, depth);
        let b = Matrix::new(&b, columns, depth).transposed();
        let bias = unit_values(3, columns);
        let mut expected: Vec<f32> = bias.repeat(rows);
        naive::gemm(a, b, &mut expected, Init::Accumulate);
        let expected = to_f64(&expected);
        for &instructions in simd::available() {
            let mut first: Option<Vec<f32>> = None;
            for threads in 1..9 {
                let mut c = vec![f32::NAN; rows * columns];
                with_instructions(instructions, || {
                    let init = Init::Bias(&bias);
                    let gemm = Gemm::with_threads([(a, b)], &mut c, init, NO_EPILOGUE, threads);
                    threads::run_all(&[&gemm]);
                });
                assert_sums_close("product", &c, &expected, depth);
                let same = first.get_or_insert_with(|| c.clone()) == &c;
                assert!(
                    same,
                    "{instructions:?}, {rows}×{columns}, {threads} threads"
                );
            }
        }
    }
}

#[test]
fn deep_products_pack_several_blocks_of_depth() {
    // With up to two threads, blocks have more than `L2_OUTPUTS` outputs; the depth is more than is packed at a time.
    check(
        1100,
        MAX_PACKED_DEPTH + KC + 5,
        265,
        false,
        true,
        Init::Zero,
    );
    check(MC + 7, KC + 5, 33, true, true, Init::Accumulate);
    check(97, MAX_PACKED_DEPTH + 1, 33, true, false, Init::Accumulate);
}

#[test]
fn split_k_matches_the_naive_version_for_any_depth_and_number_of_threads() {
    // At some of the odd depths, each half alone would get a different grid.
    for (rows, depth, columns) in [
        (32, 256, 32),
        (32, 383, 32),
        (40, 263, 25),
        (7, 300, 5),
        (1, 1031, 1),
        (131, 512, 70),
        // One half is packed in its full depth, the other is not, and both are split by rows.
        (130, 2049, 70),
    ] {
        assert!(SplitK::applies(rows, depth, columns));
        let (a, b) = (
            unit_values(1, depth * rows),
            unit_values(2, depth * columns),
        );
        let a = Matrix::new(&a, depth, rows).transposed();
        let b = Matrix::new(&b, depth, columns);
        let mut expected = vec![0.0; rows * columns];
        naive::gemm(a, b, &mut expected, Init::Zero);
        let expected = to_f64(&expected);
        for &instructions in simd::available() {
            let mut first: Option<Vec<f32>> = None;
            for threads in 1..9 {
                // Stale values in the reused buffer must not affect the result.
                let mut c = vec![f32::NAN; rows * columns];
                with_instructions(instructions, || {
                    let mut split = SplitK::with_threads(a, b, &mut c, threads);
                    split.poison();
                    threads::run_all(&[&split]);
                });
                let what = format!("{rows}×{depth}×{columns}, {threads} threads");
                assert_sums_close(&what, &c, &expected, depth);
                let same = first.get_or_insert_with(|| c.clone()) == &c;
                assert!(same, "{instructions:?}, {threads} threads");
            }
        }
    }
}

#[test]
fn blocks_share_packed_b_and_products_do_not() {
    // All blocks have the same columns, so each product starts with those that the previous one ended with.
    let (rows, columns) = (2200, 440);
    for depth in [KC - 1, KC + 1] {
        let a = unit_values(1, rows * depth);
        let a = Matrix::new(&a, rows, depth);
        for seed in [2, 3] {
            let b = unit_values(seed, columns * depth);
            let b = Matrix::new(&b, columns, depth).transposed();
            // Not scalar, which would take minutes.
            let vectorized = simd::available()
                .split_last()
                .expect("scalar is the last")
                .1;
            for &instructions in vectorized {
                let results = [1, 2, 8].map(|threads| {
                    let mut c = vec![f32::NAN; rows * columns];
                    with_instructions(instructions, || {
                        let gemm =
                            Gemm::with_threads([(a, b)], &mut c, Init::Zero, NO_EPILOGUE, threads);
                        assert_eq!(gemm.grid.across(), 1);
                        assert!(gemm.grid.tasks() > 1 || depth > KC);
                        threads::single_threaded(|| threads::run_all(&[&gemm]));
                    });
                    c
                });
                for (index, ours) in results[0].iter().enumerate().step_by(211) {
                    let (row, column) = (index / columns, index % columns);
                    let mut theirs = [0.0];
                    let a = a.split_rows(row)[1].split_rows(1)[0];
                    let b = b.split_columns(column)[1].split_columns(1)[0];
                    naive::gemm(a, b, &mut theirs, Init::Zero);
                    assert_sums_close("product", &[*ours], &to_f64(&theirs), depth);
                }
                assert!(
                    results.iter().all(|it| *it == results[0]),
                    "{instructions:?}"
                );
            }
        }
    }
}

#[test]
fn an_epilogue_may_be_a_product() {
    // Two blocks: the second runs after the products inside the epilogue of the first.
    let (rows, depth, columns) = (1200, 100, 90);
    let (a, b) = (
        unit_values(1, rows * depth),
        unit_values(2, depth * columns),
    );
    let (a, b) = (
        Matrix::new(&a, rows, depth),
        Matrix::new(&b, depth, columns),
    );
    let inner = unit_values(3, columns * columns);
    let inner = Matrix::new(&inner, columns, columns);
    for &instructions in simd::available() {
        let mut expected = vec![f32::NAN; rows * columns];
        let mut c = expected.clone();
        with_instructions(instructions, || {
            let epilogue = |_: usize, _: usize, values: &mut [f32]| {
                let row = values.to_vec();
                let row = Matrix::new(&row, 1, columns);
                gemm(row, inner, values, Init::Zero, NO_EPILOGUE);
            };
            gemm(a, b, &mut expected, Init::Zero, NO_EPILOGUE);
            for row in expected.chunks_mut(columns) {
                epilogue(0, 0, row);
            }
            let gemm = Gemm::with_threads([(a, b)], &mut c, Init::Zero, epilogue, 1);
            assert!(gemm.grid.tasks() > 1);
            threads::single_threaded(|| threads::run_all(&[&gemm]));
        });
        assert!(c == expected, "{instructions:?}");
    }
}

#[test]
fn a_transposed_a_is_read_in_place_or_packed() {
    for rows in [384, 385, 512, 513] {
        for columns in [70, 140] {
            check(rows, 41, columns, true, false, Init::Zero);
        }
    }
}

#[test]
fn blocks_of_the_last_band_may_be_empty() {
    // Two threads have a band each, and the second has fewer rows.
    let (rows, depth, columns) = (14, 600, 1100);
    let (a, b) = (
        unit_values(1, rows * depth),
        unit_values(2, depth * columns),
    );
    let (a, b) = (
        Matrix::new(&a, rows, depth),
        Matrix::new(&b, depth, columns),
    );
    for &instructions in simd::available() {
        let mut expected = vec![f32::NAN; rows * columns];
        let mut c = expected.clone();
        with_instructions(instructions, || {
            gemm(a, b, &mut expected, Init::Zero, NO_EPILOGUE);
            let mut gemm = Gemm::with_threads([(a, b)], &mut c, Init::Zero, NO_EPILOGUE, 1);
            gemm.grid = Grid::of([rows, columns], 2, 1, gemm.tile).split_bands(2);
            let empty = |task| gemm.grid.rows(task).is_empty();
            assert!((0..gemm.grid.tasks()).any(empty));
            threads::single_threaded(|| threads::run_all(&[&gemm]));
        });
        assert!(c == expected, "{instructions:?}");
    }
}
