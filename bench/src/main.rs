//! Our side of the benchmarks: `bench WORK…` prints one line of JSON per measurement, as `reference/torch_peer.py` does.
//!
//! `cargo xtask bench` runs both, each benchmark in its own process, so that the peak memory is that of the benchmark.

mod limits;
mod load;
mod models;
mod naive;
mod scaling;

use std::process::ExitCode;
use std::time::Instant;

use attentive::memory::BoundedAllocator;
use attentive::model::Mask;
use attentive::tensor::{Device, Scores, Tensor, attention};
use burn::tensor::Distribution;
use serde_json::json;

/// The same allocator as the `attentive` program.
#[global_allocator]
static ALLOCATOR: BoundedAllocator<mimalloc::MiMalloc> = BoundedAllocator(mimalloc::MiMalloc);

fn main() -> ExitCode {
    for work in std::env::args().skip(1) {
        match work.as_str() {
            "limits" => limits::measure(),
            "naive" => naive::measure(),
            "train_gpt" => models::train(&work, [6, 384, 6, 256, 8], 8),
            "train_tiny" => models::train(&work, [4, 128, 4, 64, 12], 60),
            "prefill" => models::prefill(&work),
            "decode" => models::decode(&work),
            "encoder" => models::encoder(&work),
            "load_gpt2" | "load_llama" => load::measure(&work),
            other if other.starts_with("make:") => load::create(&other["make:".len()..]),
            "scaling" => scaling::list(),
            other if other.starts_with("scaling:") => {
                let mut parts = other.split(':').skip(1);
                let (name, length) = (parts.next().unwrap_or_default(), parts.next());
                let length = length.and_then(|length| length.parse().ok());
                if !length.is_some_and(|length| scaling::measure(&work, name, length)) {
                    eprintln!("unknown benchmark {work}");
                    return ExitCode::from(2);
                }
            }
            other => match other
                .strip_prefix("attention_")
                .and_then(|n| n.parse().ok())
            {
                Some(length) => attentions(&work, length),
                None => {
                    eprintln!("unknown benchmark {work}");
                    return ExitCode::from(2);
                }
            },
        }
    }
    ExitCode::SUCCESS
}

/// Runs `step` a few times to warm up, then measures it, and prints the minimum and the median time, divided by `scale`.
fn report(work: &str, repeats: usize, warm_up: usize, scale: f64, mut step: impl FnMut()) {
    for _ in 0..warm_up {
        step();
    }
    let before = page_faults();
    let mut times: Vec<f64> = (0..repeats)
        .map(|_| {
            let started = Instant::now();
            step();
            started.elapsed().as_secs_f64() * 1e3 / scale
        })
        .collect();
    let faults = (page_faults() - before) as f64 / repeats as f64;
    times.sort_by(f64::total_cmp);
    let line = json!({
        "work": work, "min_ms": times[0], "median_ms": times[times.len() / 2], "peak_mb": peak_megabytes(),
        "page_faults": faults,
    });
    println!("{line}");
}

/// The peak resident memory of this process; zero where the system does not report it.
fn peak_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) / 1024
}

/// The minor page faults of this process so far; zero where the system does not report them.
fn page_faults() -> u64 {
    let status = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Fields are counted after the program's name, which is in parentheses and may contain spaces.
    let fields = status.rsplit(')').next().unwrap_or_default();
    let faults = fields.split_whitespace().nth(7);
    faults.and_then(|faults| faults.parse().ok()).unwrap_or(0)
}

/// Causal attention of 12 heads of width 64: forward, and forward with backward.
fn attentions(work: &str, length: usize) {
    let device = Device::flex();
    let heads =
        || Tensor::<4>::random([1, 12, length, 64], Distribution::Normal(0.0, 1.0), &device);
    let inputs = [heads(), heads(), heads()];
    let upstream = heads();
    let repeats = if length < 9000 { 5 } else { 2 };
    let scores = Scores::new(Mask::causal(), 0.125);
    let attend = |[q, k, v]: [Tensor<4>; 3]| attention(q, k, v, &scores, 0.0, None);
    report(&format!("{work}_forward"), repeats, 1, 1.0, || {
        attend(inputs.clone());
    });
    report(&format!("{work}_both"), repeats, 1, 1.0, || {
        let leaves = inputs
            .clone()
            .map(|it| Tensor::from_inner(it).require_grad());
        let output = attend(leaves.clone()) * Tensor::from_inner(upstream.clone());
        let gradients = output.sum().backward();
        for leaf in leaves {
            leaf.grad(&gradients).expect("every input has a gradient");
        }
    });
}
