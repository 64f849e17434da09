//! Why scores are divided by √width: the dot product of two random vectors has their width as its variance, and the softmax of
//! such scores saturates at one key, where its gradient vanishes. Vaswani et al. 2017, section 3.2.1.
//!
//! Run with `cargo run --release -p attentive --example variance [SVG]`.

#[path = "draw/curves.rs"]
mod curves;

use std::error::Error;
use std::path::Path;

use attentive::model::{Initializer, Mask};
use attentive::tensor::{Scores, Tensor, device, softmax};
use curves::{Mark, Series};

/// The number of queries and of keys.
const QUERIES: usize = 200;
const KEYS: usize = 64;

/// Statistics of the scores of one width.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Width of queries and keys.
    pub width: usize,
    /// Variance of the dot products, raw and scaled.
    pub variances: [f64; 2],
    /// Mean entropy of their softmax, in nats; at most the logarithm of the number of keys.
    pub entropies: [f64; 2],
}

/// Measures and plots the entropies.
pub fn run(path: &Path) -> Result<Vec<Row>, Box<dyn Error>> {
    let device = device("cpu")?;
    let mut initializer = Initializer::new(7, &device);
    let mut rows = Vec::new();
    for width in [1, 4, 16, 64, 256, 1024] {
        let query = initializer.normal([1, 1, QUERIES, width], 1.0).val();
        let key = initializer.normal([1, 1, KEYS, width], 1.0).val();
        let scales = [1.0, 1.0 / (width as f64).sqrt()];
        let scores =
            scales.map(|scale| Scores::new(Mask::none(), scale).of(query.clone(), key.clone()));
        rows.push(Row {
            width,
            variances: scores.clone().map(variance),
            entropies: scores.map(|scores| entropy(softmax(scores))),
        });
    }
    let series = ["products", "products / √width"].into_iter().enumerate();
    let series: Vec<Series> = series
        .map(|(i, name)| Series {
            name,
            points: (rows.iter())
                .map(|row| ((row.width as f64).log2(), row.entropies[i]))
                .collect(),
            mark: Mark::Line,
        })
        .collect();
    let axes = ["log2 of the width", "entropy of the softmax (nats)"];
    curves::draw(path, axes, &series)?;
    Ok(rows)
}

fn variance(scores: Tensor<4>) -> f64 {
    let mean = scores.clone().mean().into_scalar::<f32>();
    let deviations = scores - mean;
    f64::from(
        (deviations.clone() * deviations)
            .mean()
            .into_scalar::<f32>(),
    )
}

fn entropy(weights: Tensor<4>) -> f64 {
    // The clamp keeps the logarithm of zero finite; its weight of zero cancels it.
    let logarithms = weights.clone().clamp_min(f32::MIN_POSITIVE).log();
    -f64::from(
        (weights * logarithms)
            .sum_dim(3)
            .mean()
            .into_scalar::<f32>(),
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or("variance.svg".to_owned());
    let rows = run(Path::new(&path))?;
    println!("width   variance of q·k   of q·k/√width   entropy of q·k   of q·k/√width");
    for row in rows {
        let ([raw, scaled], [sharp, soft]) = (row.variances, row.entropies);
        println!(
            "{:5}   {raw:15.2}   {scaled:13.2}   {sharp:14.2}   {soft:13.2}",
            row.width
        );
    }
    println!(
        "{path} has the entropies; a softmax of equal scores has {:.2}",
        (KEYS as f64).ln()
    );
    Ok(())
}
