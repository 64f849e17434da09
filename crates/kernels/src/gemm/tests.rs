use super::piece::{DEEP, KC, MC, NC};
use super::*;
use crate::checks::{close, wide};
use crate::simd::{self, with_instructions};
use proptest::prelude::*;

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count)
        .map(|i| ((i * 7919 + seed * 104_729) % 1009) as f32 / 504.5 - 1.0)
        .collect()
}

fn check(rows: usize, depth: usize, columns: usize, a_turned: bool, b_turned: bool, onto: Onto) {
    let (a_data, b_data) = (numbers(rows * depth, 1), numbers(depth * columns, 2));
    let matrix = |data, rows, columns, turned| match turned {
        true => Matrix::new(data, columns, rows).transposed(),
        false => Matrix::new(data, rows, columns),
    };
    let a = matrix(&a_data, rows, depth, a_turned);
    let b = matrix(&b_data, depth, columns, b_turned);
    let mut expected = numbers(rows * columns, 3);
    let before = expected.clone();
    gemm_naive(a, b, &mut expected, onto);
    for &instructions in simd::available() {
        let mut c = before.clone();
        with_instructions(instructions, || {
            gemm(a, b, &mut c, onto, |row, column, values| {
                for (i, value) in values.iter_mut().enumerate() {
                    *value += (row * 1000 + column + i) as f32;
                }
            });
        });
        for (i, (ours, theirs)) in c.iter().zip(&expected).enumerate() {
            let finished = theirs + (i / columns * 1000 + i % columns) as f32;
            let tolerance = 1e-5 * (depth as f32).sqrt().max(1.0) + 1e-6 * finished.abs();
            assert!(
                (ours - finished).abs() <= tolerance,
                "{instructions:?} {rows}×{depth}×{columns} at {i}: {ours} for {finished}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn equals_its_twin(
        rows in prop_oneof![Just(0), Just(1), Just(5), Just(6), Just(7), Just(8), Just(11), Just(12), Just(13), 1usize..40, Just(97), Just(MC + 1)],
        depth in prop_oneof![Just(0), Just(1), 1usize..40, Just(255), Just(256), Just(257), Just(KC - 1), Just(KC), Just(KC + 1)],
        columns in prop_oneof![Just(0), Just(1), Just(15), Just(16), Just(17), Just(31), Just(32), Just(33), 1usize..70],
        a_turned: bool,
        b_turned: bool,
        add: bool,
    ) {
        let onto = if add { Onto::Add } else { Onto::Replace };
        check(rows, depth, columns, a_turned, b_turned, onto);
    }
}

#[test]
fn wide_products_take_several_blocks() {
    check(13, 300, NC + 33, false, true, Onto::Add);
}

#[test]
fn rows_that_meet_many_columns_give_the_same_bits_packed_or_not() {
    // Narrow tiles: one thread packs them, many have too few columns each; the last takes several blocks of columns.
    // Of depth KC, rows of a tile stay in the first cache where panels are wide; of a quarter of it, panels do.
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
        let (a, b) = (numbers(rows * depth, 1), numbers(columns * depth, 2));
        let a = Matrix::new(&a, rows, depth);
        let b = Matrix::new(&b, columns, depth).transposed();
        let bias = numbers(columns, 3);
        let mut expected: Vec<f32> = bias.repeat(rows);
        gemm_naive(a, b, &mut expected, Onto::Add);
        for &instructions in simd::available() {
            let mut first: Option<Vec<f32>> = None;
            for threads in 1..9 {
                let mut c = vec![f32::NAN; rows * columns];
                with_instructions(instructions, || {
                    let base = Base::Row(&bias);
                    let product = Product::with_threads([(a, b)], &mut c, base, NOTHING, threads);
                    threads::together(&[&product]);
                });
                for (ours, theirs) in c.iter().zip(&expected) {
                    assert!((ours - theirs).abs() < 1e-5 * (depth as f32).sqrt());
                }
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
fn deep_products_walk_the_depth_for_some_rows_at_a_time() {
    // Up to two threads, more results than `FEW_RESULTS` in each piece, and more depth than is packed at a time.
    check(1100, DEEP + KC + 5, 265, false, true, Onto::Replace);
    check(MC + 7, KC + 5, 33, true, true, Onto::Add);
    check(97, DEEP + 1, 33, true, false, Onto::Add);
}

#[test]
fn halves_equal_the_twin_for_any_depth_and_number_of_threads() {
    // Some odd depths lie where one half alone would be cut otherwise than the other.
    for (rows, depth, columns) in [
        (32, 256, 32),
        (32, 383, 32),
        (40, 263, 25),
        (7, 300, 5),
        (1, 1031, 1),
        (131, 512, 70),
        // One half is packed in its whole depth, the other is not, and both are cut downwards.
        (130, 2049, 70),
    ] {
        assert!(Halves::fit(rows, depth, columns));
        let (a, b) = (numbers(depth * rows, 1), numbers(depth * columns, 2));
        let a = Matrix::new(&a, depth, rows).transposed();
        let b = Matrix::new(&b, depth, columns);
        let mut expected = vec![0.0; rows * columns];
        gemm_naive(a, b, &mut expected, Onto::Replace);
        for &instructions in simd::available() {
            let mut first: Option<Vec<f32>> = None;
            for threads in 1..9 {
                // What an earlier product left in the buffer must not show.
                let mut c = vec![f32::NAN; rows * columns];
                with_instructions(instructions, || {
                    let mut halves = Halves::with_threads(a, b, &mut c, threads);
                    halves.spoil();
                    threads::together(&[&halves]);
                });
                for (i, (ours, theirs)) in c.iter().zip(&expected).enumerate() {
                    assert!(
                        (ours - theirs).abs() < 1e-5 * (depth as f32).sqrt(),
                        "{rows}×{depth}×{columns}, {threads} threads, at {i}: {ours} for {theirs}"
                    );
                }
                let same = first.get_or_insert_with(|| c.clone()) == &c;
                assert!(same, "{instructions:?}, {threads} threads");
            }
        }
    }
}

#[test]
fn pieces_of_one_thread_share_what_it_packed_and_products_do_not() {
    // Pieces lie below each other, so that each product begins with the columns with which the last one ended.
    let (rows, columns) = (2200, 440);
    for depth in [KC - 1, KC + 1] {
        let a = numbers(rows * depth, 1);
        let a = Matrix::new(&a, rows, depth);
        for seed in [2, 3] {
            let b = numbers(columns * depth, seed);
            let b = Matrix::new(&b, columns, depth).transposed();
            // Not one number at a time, which would take minutes.
            let fast = simd::available()
                .split_last()
                .expect("scalar is the last")
                .1;
            for &instructions in fast {
                let results = [1, 2, 8].map(|threads| {
                    let mut c = vec![f32::NAN; rows * columns];
                    with_instructions(instructions, || {
                        let base = Base::Nothing;
                        let product =
                            Product::with_threads([(a, b)], &mut c, base, NOTHING, threads);
                        assert_eq!(product.grid.across(), 1);
                        assert!(product.grid.pieces() > 1 || depth > KC);
                        threads::alone(|| threads::together(&[&product]));
                    });
                    c
                });
                for (place, ours) in results[0].iter().enumerate().step_by(211) {
                    let (row, column) = (place / columns, place % columns);
                    let mut theirs = [0.0];
                    let a = a.split_rows(row)[1].split_rows(1)[0];
                    let b = b.split_columns(column)[1].split_columns(1)[0];
                    gemm_naive(a, b, &mut theirs, Onto::Replace);
                    assert!((ours - theirs[0]).abs() < 1e-5 * (depth as f32).sqrt());
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
fn what_finishes_a_row_may_be_a_product() {
    // Two pieces: the second comes after products inside the first.
    let (rows, depth, columns) = (1200, 100, 90);
    let (a, b) = (numbers(rows * depth, 1), numbers(depth * columns, 2));
    let (a, b) = (
        Matrix::new(&a, rows, depth),
        Matrix::new(&b, depth, columns),
    );
    let inner = numbers(columns * columns, 3);
    let inner = Matrix::new(&inner, columns, columns);
    let mut middle = vec![0.0; rows * columns];
    gemm_naive(a, b, &mut middle, Onto::Replace);
    let mut expected = vec![0.0; rows * columns];
    let whole = Matrix::new(&middle, rows, columns);
    gemm_naive(whole, inner, &mut expected, Onto::Replace);
    for &instructions in simd::available() {
        let mut c = vec![f32::NAN; rows * columns];
        with_instructions(instructions, || {
            let finish = |_: usize, _: usize, values: &mut [f32]| {
                let row = values.to_vec();
                let row = Matrix::new(&row, 1, columns);
                gemm(row, inner, values, Onto::Replace, NOTHING);
            };
            let product = Product::with_threads([(a, b)], &mut c, Onto::Replace, finish, 1);
            assert!(product.grid.pieces() > 1);
            threads::alone(|| threads::together(&[&product]));
        });
        close("product", &c, &wide(&expected), 1e-5);
    }
}

#[test]
fn rows_that_lie_transposed_are_read_in_place_or_packed() {
    for rows in [384, 385, 512, 513] {
        for columns in [70, 140] {
            check(rows, 41, columns, true, false, Onto::Replace);
        }
    }
}

#[test]
fn pieces_of_the_last_band_may_be_empty() {
    // Two threads have a band each, and the second has fewer rows.
    let (rows, depth, columns) = (14, 600, 1100);
    let (a, b) = (numbers(rows * depth, 1), numbers(depth * columns, 2));
    let (a, b) = (
        Matrix::new(&a, rows, depth),
        Matrix::new(&b, depth, columns),
    );
    let mut expected = vec![0.0; rows * columns];
    gemm_naive(a, b, &mut expected, Onto::Replace);
    for &instructions in simd::available() {
        let mut c = vec![f32::NAN; rows * columns];
        with_instructions(instructions, || {
            let mut product = Product::with_threads([(a, b)], &mut c, Onto::Replace, NOTHING, 1);
            product.grid = Grid::of([rows, columns], 2, 1, product.tile).finer(2);
            let empty = |piece| product.grid.rows(piece).is_empty();
            assert!((0..product.grid.pieces()).any(empty));
            threads::alone(|| threads::together(&[&product]));
        });
        close("product", &c, &wide(&expected), 1e-5);
    }
}
