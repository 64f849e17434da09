//! Kernels beside their naive twins, in one process: what the vectors, tiles and threads are worth.

use std::hint::black_box;
use std::time::Instant;

use attentive_kernels::activation::{self, Activation};
use attentive_kernels::attention::{self, Heads, Masking, Options, Shape, Strides};
use attentive_kernels::gemm::Matrix;
use attentive_kernels::{cross_entropy, linear, norms, softmax};
use serde_json::json;

/// Prints one line per kernel: its least time and that of its twin, taken in turns.
pub fn measure() {
    linear_map();
    causal_attention();
    layer_norm();
    gelu();
    softmax_of_rows();
    cross_entropy_of_rows();
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count)
        .map(|i| (i * 7919 % 1009) as f32 / 504.5 - 1.0)
        .collect()
}

fn wide(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|it| f64::from(*it)).collect()
}

/// Takes both in turns, the kernel more often since it is shorter.
fn report(kernel: &str, mut ours: impl FnMut(), mut twin: impl FnMut()) {
    let time = |work: &mut dyn FnMut()| {
        let started = Instant::now();
        work();
        started.elapsed().as_secs_f64() * 1e3
    };
    let (mut least, mut twin_least) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..3 {
        for _ in 0..10 {
            least = least.min(time(&mut ours));
        }
        twin_least = twin_least.min(time(&mut twin));
    }
    let line =
        json!({ "work": format!("twin_{kernel}"), "min_ms": least, "twin_min_ms": twin_least });
    println!("{line}");
}

fn linear_map() {
    let shape = linear::Shape {
        rows: 256,
        input: 384,
        output: 384,
    };
    let (x, weight) = (numbers(256 * 384), numbers(384 * 384));
    let mut y = vec![0.0; 256 * 384];
    report(
        "linear",
        || {
            let map = linear::Forward {
                shape,
                weight: Matrix::new(&weight, 384, 384),
                bias: None,
                activation: None,
                before: None,
                y: &mut y,
            };
            linear::forward(&x, [map]);
        },
        || drop(black_box(linear::forward_naive(shape, &x, &weight, None))),
    );
}

fn causal_attention() {
    let (heads, length, width) = (4, 512, 64);
    let shape = Shape {
        batch: 1,
        heads,
        key_value_heads: heads,
        queries: length,
        keys: length,
        head_width: width,
        value_width: width,
    };
    let strides = Strides::heads_first(heads, length, width);
    let data = [1, 2, 3].map(|_| numbers(heads * length * width));
    let [query, key, value] = data.each_ref().map(|data| Heads { data, strides });
    let options = Options {
        scale: 0.125,
        mask: Masking {
            causal: true,
            ..Masking::default()
        },
        bias: None,
        dropout: None,
    };
    let mut context = vec![0.0; heads * length * width];
    let mut log_sums = vec![0.0; heads * length];
    report(
        "attention",
        || {
            let operands = [query, key, value];
            attention::forward(
                &shape,
                operands,
                &options,
                &mut context,
                strides,
                &mut log_sums,
            );
        },
        || {
            drop(black_box(attention::naive::forward(
                &shape, query, key, value, &options,
            )))
        },
    );
}

fn layer_norm() {
    let (rows, width) = (2048, 384);
    let (x, weight, bias) = (numbers(rows * width), numbers(width), numbers(width));
    let (x64, weight64, bias64) = (wide(&x), wide(&weight), wide(&bias));
    let (mut y, mut mean, mut inverse) = (x.clone(), vec![0.0; rows], vec![0.0; rows]);
    report(
        "layer_norm",
        || {
            norms::layer_norm(
                &x,
                &weight,
                Some(&bias),
                1e-5,
                &mut y,
                &mut mean,
                &mut inverse,
            )
        },
        || {
            drop(black_box(norms::naive::layer_norm(
                &x64,
                &weight64,
                Some(&bias64),
                1e-5,
            )))
        },
    );
}

fn gelu() {
    let x = numbers(1 << 20);
    let x64 = wide(&x);
    let mut y = x.clone();
    report(
        "gelu",
        || activation::activate(Activation::Gelu, &x, &mut y),
        || {
            let value = |x: &f64| activation::naive::value(Activation::Gelu, *x);
            drop(black_box(x64.iter().map(value).collect::<Vec<f64>>()));
        },
    );
}

fn softmax_of_rows() {
    let (rows, width) = (1024, 1024);
    let x = numbers(rows * width);
    let x64 = wide(&x);
    let mut y = x.clone();
    report(
        "softmax",
        || softmax::softmax(&x, width, &mut y),
        || drop(black_box(softmax::naive::softmax(&x64, width))),
    );
}

fn cross_entropy_of_rows() {
    let (rows, vocabulary) = (256, 8192);
    let logits = numbers(rows * vocabulary);
    let logits64 = wide(&logits);
    let targets: Vec<i64> = (0..rows as i64).collect();
    let [mut losses, mut largest, mut sums] = [0; 3].map(|_| vec![0.0; rows]);
    report(
        "cross_entropy",
        || {
            let outputs = (&mut losses, &mut largest, &mut sums);
            cross_entropy::cross_entropy(
                &logits, &targets, vocabulary, 0.1, outputs.0, outputs.1, outputs.2,
            );
        },
        || {
            let losses = cross_entropy::naive::cross_entropy(&logits64, &targets, vocabulary, 0.1);
            drop(black_box(losses));
        },
    );
}
