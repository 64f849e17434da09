//! Kernels against their naive versions, in one process: the speed-up of SIMD, tiling and threads.

use std::hint::black_box;
use std::time::Instant;

use attentive_kernels::activation::{self, Activation};
use attentive_kernels::attention::{self, Heads, Masking, Options, Shape, Strides};
use attentive_kernels::gemm::Matrix;
use attentive_kernels::{cross_entropy, linear, norms, softmax};
use serde_json::json;

/// Prints one line per kernel: its minimum time and that of the naive version, measured alternately.
pub fn measure() {
    linear_layer();
    causal_attention();
    layer_norm();
    gelu();
    row_softmax();
    row_cross_entropy();
}

fn values(count: usize) -> Vec<f32> {
    (0..count)
        .map(|i| (i * 7919 % 1009) as f32 / 504.5 - 1.0)
        .collect()
}

fn to_f64(values: &[f32]) -> Vec<f64> {
    values.iter().map(|it| f64::from(*it)).collect()
}

/// Measures both alternately, the kernel more often since it is faster.
fn report(kernel: &str, mut ours: impl FnMut(), mut naive: impl FnMut()) {
    let time = |work: &mut dyn FnMut()| {
        let started = Instant::now();
        work();
        started.elapsed().as_secs_f64() * 1e3
    };
    let (mut min_ms, mut naive_min_ms) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..3 {
        for _ in 0..10 {
            min_ms = min_ms.min(time(&mut ours));
        }
        naive_min_ms = naive_min_ms.min(time(&mut naive));
    }
    let line = json!({ "work": format!("naive_{kernel}"), "min_ms": min_ms, "naive_min_ms": naive_min_ms });
    println!("{line}");
}

fn linear_layer() {
    let shape = linear::LinearShape {
        rows: 256,
        input: 384,
        output: 384,
    };
    let (x, weight) = (values(256 * 384), values(384 * 384));
    let mut y = vec![0.0; 256 * 384];
    report(
        "linear",
        || {
            let forward = linear::LinearForward {
                shape,
                weight: Matrix::new(&weight, 384, 384),
                bias: None,
                activation: None,
                pre_activation: None,
                y: &mut y,
            };
            linear::forward(&x, [forward]);
        },
        || drop(black_box(linear::naive::forward(shape, &x, &weight, None))),
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
    let data = [1, 2, 3].map(|_| values(heads * length * width));
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
    let mut log_sum_exp = vec![0.0; heads * length];
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
                &mut log_sum_exp,
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
    let (x, weight, bias) = (values(rows * width), values(width), values(width));
    let (x64, weight64, bias64) = (to_f64(&x), to_f64(&weight), to_f64(&bias));
    let (mut y, mut mean, mut rstd) = (x.clone(), vec![0.0; rows], vec![0.0; rows]);
    report(
        "layer_norm",
        || {
            norms::NormForward {
                x: &x,
                sum: None,
                weight: &weight,
                bias: Some(&bias),
                epsilon: 1e-5,
                y: &mut y,
                mean: Some(&mut mean),
                rstd: &mut rstd,
            }
            .run()
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
    let x = values(1 << 20);
    let x64 = to_f64(&x);
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

fn row_softmax() {
    let (rows, width) = (1024, 1024);
    let x = values(rows * width);
    let x64 = to_f64(&x);
    let mut y = x.clone();
    report(
        "softmax",
        || softmax::softmax(&x, width, &mut y),
        || drop(black_box(softmax::naive::softmax(&x64, width))),
    );
}

fn row_cross_entropy() {
    let (rows, vocabulary) = (256, 8192);
    let logits = values(rows * vocabulary);
    let logits64 = to_f64(&logits);
    let targets: Vec<i64> = (0..rows as i64).collect();
    let [mut losses, mut maxima, mut sums] = [0; 3].map(|_| vec![0.0; rows]);
    report(
        "cross_entropy",
        || {
            cross_entropy::CrossEntropyForward {
                logits: &logits,
                targets: &targets,
                vocabulary,
                label_smoothing: 0.1,
                losses: &mut losses,
                max: &mut maxima,
                exp_sums: &mut sums,
            }
            .run();
        },
        || {
            let losses = cross_entropy::naive::cross_entropy(&logits64, &targets, vocabulary, 0.1);
            drop(black_box(losses));
        },
    );
}
