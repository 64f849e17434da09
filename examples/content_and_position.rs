//! Attention built by hand, two ways. By content: keys at right angles, and a query that is one of them finds its value. By
//! position: each position asks for the one before it, because a rotation turns the sinusoids of any position into those of its
//! neighbour. Vaswani et al. 2017, section 3.5.
//!
//! Run with `cargo run --release -p attentive --example content_and_position [SVG]`.

#[path = "draw/heatmap.rs"]
mod heatmap;

use std::error::Error;
use std::path::Path;

use attentive::model::{
    Attention, AttentionConfig, AttentionInput, Initializer, Memory, Pass, Place, Recorder, Role,
    SinusoidLayout, Widths, sinusoid, sinusoid_shift,
};
use attentive::tensor::{Device, Int, Tensor, TensorData, device};
use heatmap::Matrix;

/// Keys at right angles, each with one value.
const KEYS: usize = 8;
/// Positions, and the width of their sinusoids.
const LENGTH: usize = 12;
const WIDTH: usize = 64;

/// What was looked for, and what was found.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// What the queries are multiplied with.
    pub scale: f64,
    /// The least weight that a query gives to the key it is looking for.
    pub least_weight: f32,
    /// The largest difference of the value found from the one looked for.
    pub error: f32,
}

/// Both ways, each with queries of several sizes.
#[derive(Clone, Debug)]
pub struct Found {
    /// Queries that are keys.
    pub by_content: Vec<Lookup>,
    /// Queries that are positions turned back by one.
    pub by_position: Vec<Lookup>,
}

/// A lookup, and the weights of each of its queries.
struct Looked {
    lookup: Lookup,
    rows: Vec<Vec<f32>>,
}

/// Looks up, and draws all weights.
pub fn run(path: &Path) -> Result<Found, Box<dyn Error>> {
    let device = device("cpu")?;
    // Rows of the Hadamard matrix, over the root of their number, are at right angles and of length one.
    let sign = |row: usize, column: usize| 1.0 - 2.0 * ((row & column).count_ones() % 2) as f32;
    let keys = (0..KEYS * KEYS).map(|i| sign(i / KEYS, i % KEYS) / (KEYS as f32).sqrt());
    let keys = tensor(keys.collect(), [1, KEYS, KEYS], &device);
    let same: Vec<usize> = (0..KEYS).collect();
    let contents = [2.0, 6.0, 18.0].map(|scale| lookup(keys.clone(), keys.clone(), &same, scale));

    let ordinals = Tensor::<1, Int>::arange(0..LENGTH as i64, &device).reshape([1, LENGTH]);
    let positions = sinusoid(ordinals, WIDTH, SinusoidLayout::Interleaved);
    // Rows are turned, so the rotation stands on their right, on its side.
    let back = sinusoid_shift(-1, WIDTH, SinusoidLayout::Interleaved, &device);
    let queries = positions.clone().matmul(back.transpose().unsqueeze());
    // There is none before the first.
    let queries = queries.narrow(1, 1, LENGTH - 1);
    let before: Vec<usize> = (0..LENGTH - 1).collect();
    let places =
        [1.0, 4.0, 16.0].map(|scale| lookup(queries.clone(), positions.clone(), &before, scale));

    let mut found = Found {
        by_content: Vec::new(),
        by_position: Vec::new(),
    };
    let mut drawn = Vec::new();
    for (name, first_query, looked, list) in [
        ("by content", 0, contents, &mut found.by_content),
        ("the one before", 1, places, &mut found.by_position),
    ] {
        for looked in looked {
            let Looked { lookup, rows } = looked?;
            list.push(lookup);
            drawn.push(Matrix {
                name,
                first_query,
                rows,
            });
        }
    }
    heatmap::draw(path, &drawn)?;
    Ok(found)
}

fn tensor(numbers: Vec<f32>, shape: [usize; 3], device: &Device) -> Tensor<3> {
    Tensor::from_data(TensorData::new(numbers, shape), device)
}

/// Gathers one number per key, and compares with the number of the key that each query wants.
fn lookup(
    queries: Tensor<3>,
    keys: Tensor<3>,
    wanted: &[usize],
    scale: f64,
) -> Result<Looked, Box<dyn Error>> {
    let [_, count, width] = keys.dims();
    let device = keys.device();
    let config: AttentionConfig =
        serde_json::from_str(r#"{ "kind": "scored", "score": { "kind": "dot" } }"#)?;
    let widths = Widths {
        queries: width,
        keys: width,
        values: 1,
        output: 1,
    };
    let place = Place::new(Role::Cross, widths, count);
    let attention = Attention::new(&config, &place, &mut Initializer::new(0, &device))?;
    let numbers: Vec<f32> = (0..count).map(|i| 10.0 * i as f32).collect();
    let input = AttentionInput {
        memory: Some(Memory {
            keys,
            values: tensor(numbers.clone(), [1, count, 1], &device),
            real: None,
        }),
        ..AttentionInput::own(queries * scale, 0)
    };
    let mut recorder = Recorder {
        keep_weights: true,
        ..Recorder::default()
    };
    let mut pass = Pass {
        observer: Some(&mut recorder),
        ..Pass::default()
    };
    let output = attention.forward(input, &mut pass).output;
    let read = |data: TensorData| {
        let read: Result<Vec<f32>, _> = data.try_to_vec();
        read.map_err(|error| format!("{error:?}"))
    };
    let weights = read(recorder.weights[0].1.to_data())?;
    let rows: Vec<Vec<f32>> = weights.chunks(count).map(<[f32]>::to_vec).collect();
    let given = wanted.iter().zip(&rows).map(|(wanted, row)| row[*wanted]);
    let output = read(output.into_data())?;
    let errors =
        (wanted.iter().zip(output)).map(|(wanted, found)| (found - numbers[*wanted]).abs());
    let lookup = Lookup {
        scale,
        least_weight: given.fold(1.0, f32::min),
        error: errors.fold(0.0, f32::max),
    };
    Ok(Looked { lookup, rows })
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args()
        .nth(1)
        .unwrap_or("content_and_position.svg".to_owned());
    let found = run(Path::new(&path))?;
    println!(
        "looked up        scale   least weight of the right key   largest error of values 0, 10, 20, …"
    );
    for (name, lookups) in [
        ("by content", found.by_content),
        ("the one before", found.by_position),
    ] {
        for Lookup {
            scale,
            least_weight,
            error,
        } in lookups
        {
            println!("{name:14}   {scale:5}   {least_weight:29.6}   {error:.6}");
        }
    }
    println!("{path} has the weights at each scale");
    Ok(())
}
