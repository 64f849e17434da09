//! Attention by hand, with content and with position. By content: keys are orthogonal, and a query that equals one of them
//! retrieves its value. By position: each position attends to the one before it, because a rotation turns the sinusoids of any
//! position into those of its neighbour. Vaswani et al. 2017, section 3.5.
//!
//! Run with `cargo run --release -p attentive --example content_and_position [SVG]`.

#[path = "draw/heatmap.rs"]
mod heatmap;

use std::error::Error;
use std::path::Path;

use attentive::model::attention::{
    Attention, AttentionInput, AttentionSpec, Memory, Role, ScoreConfig, ScoredConfig, Widths,
};
use attentive::model::positions::{SinusoidLayout, sinusoid, sinusoid_shift};
use attentive::model::{ForwardContext, Initializer, Recorder};
use attentive::tensor::{Device, Int, Tensor, TensorData, device};
use heatmap::Matrix;

/// The number of orthogonal keys, each with one value.
const KEYS: usize = 8;
/// Positions, and the width of their sinusoids.
const LENGTH: usize = 12;
const WIDTH: usize = 64;

/// How well a lookup retrieves its values.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// The scale of the queries.
    pub scale: f64,
    /// The smallest weight that a query gives to its key.
    pub min_weight: f32,
    /// The largest error of a retrieved value.
    pub error: f32,
}

/// Lookups with queries of several scales.
#[derive(Clone, Debug)]
pub struct Found {
    /// Queries that equal keys.
    pub by_content: Vec<Lookup>,
    /// Queries that are positions rotated back by one.
    pub by_position: Vec<Lookup>,
}

/// A lookup, and the attention weights of each query.
struct LookupWeights {
    lookup: Lookup,
    rows: Vec<Vec<f32>>,
}

/// Runs the lookups and plots all weights.
pub fn run(path: &Path) -> Result<Found, Box<dyn Error>> {
    let device = device("cpu")?;
    // The rows of a Hadamard matrix, over the root of their number, are orthonormal.
    let sign = |row: usize, column: usize| 1.0 - 2.0 * ((row & column).count_ones() % 2) as f32;
    let keys = (0..KEYS * KEYS).map(|i| sign(i / KEYS, i % KEYS) / (KEYS as f32).sqrt());
    let keys = tensor(keys.collect(), [1, KEYS, KEYS], &device);
    let same: Vec<usize> = (0..KEYS).collect();
    let by_content = [2.0, 6.0, 18.0].map(|scale| lookup(keys.clone(), keys.clone(), &same, scale));

    let ordinals = Tensor::<1, Int>::arange(0..LENGTH as i64, &device).reshape([1, LENGTH]);
    let positions = sinusoid(ordinals, WIDTH, SinusoidLayout::Interleaved);
    // Positions are row vectors, so the transposed rotation multiplies them from the right.
    let back = sinusoid_shift(-1, WIDTH, SinusoidLayout::Interleaved, &device);
    let queries = positions.clone().matmul(back.transpose().unsqueeze());
    // No position is before the first.
    let queries = queries.narrow(1, 1, LENGTH - 1);
    let before: Vec<usize> = (0..LENGTH - 1).collect();
    let by_position =
        [1.0, 4.0, 16.0].map(|scale| lookup(queries.clone(), positions.clone(), &before, scale));

    let mut found = Found {
        by_content: Vec::new(),
        by_position: Vec::new(),
    };
    let mut matrices = Vec::new();
    for (name, first_query, lookups, list) in [
        ("by content", 0, by_content, &mut found.by_content),
        ("previous position", 1, by_position, &mut found.by_position),
    ] {
        for found in lookups {
            let LookupWeights { lookup, rows } = found?;
            list.push(lookup);
            matrices.push(Matrix {
                name,
                first_query,
                rows,
            });
        }
    }
    heatmap::draw(path, &matrices)?;
    Ok(found)
}

fn tensor(values: Vec<f32>, shape: [usize; 3], device: &Device) -> Tensor<3> {
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Retrieves one value per query, and compares it with the value of the key that the query is meant to match.
fn lookup(
    queries: Tensor<3>,
    keys: Tensor<3>,
    targets: &[usize],
    scale: f64,
) -> Result<LookupWeights, Box<dyn Error>> {
    let [_, count, width] = keys.dims();
    let device = keys.device();
    let config = ScoredConfig::new(ScoreConfig::Dot {}).into();
    let widths = Widths {
        queries: width,
        keys: width,
        values: 1,
        output: 1,
    };
    let spec = AttentionSpec::new(Role::Cross, widths, count);
    let attention = Attention::new(&config, &spec, &mut Initializer::new(0, &device))?;
    let values: Vec<f32> = (0..count).map(|i| 10.0 * i as f32).collect();
    let input = AttentionInput {
        memory: Some(Memory {
            keys,
            values: tensor(values.clone(), [1, count, 1], &device),
            non_padding: None,
        }),
        ..AttentionInput::self_attention(queries * scale, 0)
    };
    let mut recorder = Recorder {
        record_weights: true,
        ..Recorder::default()
    };
    let mut pass = ForwardContext {
        observer: Some(&mut recorder),
        ..ForwardContext::default()
    };
    let output = attention.forward(input, &mut pass);
    let read = |data: TensorData| {
        let read: Result<Vec<f32>, _> = data.try_to_vec();
        read.map_err(|error| format!("{error:?}"))
    };
    let weights = read(recorder.weights[0].1.to_data())?;
    let rows: Vec<Vec<f32>> = weights.chunks(count).map(<[f32]>::to_vec).collect();
    let target_weights = targets.iter().zip(&rows).map(|(target, row)| row[*target]);
    let output = read(output.into_data())?;
    let errors =
        (targets.iter().zip(output)).map(|(target, found)| (found - values[*target]).abs());
    let lookup = Lookup {
        scale,
        min_weight: target_weights.fold(1.0, f32::min),
        error: errors.fold(0.0, f32::max),
    };
    Ok(LookupWeights { lookup, rows })
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args()
        .nth(1)
        .unwrap_or("content_and_position.svg".to_owned());
    let found = run(Path::new(&path))?;
    println!(
        "lookup              scale   smallest weight of the key      largest error of values 0, 10, 20, …"
    );
    for (name, lookups) in [
        ("by content", found.by_content),
        ("previous position", found.by_position),
    ] {
        for Lookup {
            scale,
            min_weight,
            error,
        } in lookups
        {
            println!("{name:17}   {scale:5}   {min_weight:29.6}   {error:.6}");
        }
    }
    println!("{path} has the weights at each scale");
    Ok(())
}
