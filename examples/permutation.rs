//! Self-attention is permutation-equivariant: permuting its input permutes its output. Position embeddings break that.
//!
//! Run with `cargo run --release -p attentive --example permutation [SVG]`.

#[path = "draw/curves.rs"]
mod curves;

use std::error::Error;
use std::path::Path;

use attentive::model::attention::{
    Attention, AttentionInput, AttentionSpec, FullAttentionConfig, Role, Widths,
};
use attentive::model::positions::{SinusoidLayout, sinusoid};
use attentive::model::{ForwardContext, Initializer};
use attentive::tensor::{Int, Tensor, TensorData, device};
use curves::{Mark, Series};

const LENGTH: usize = 12;
const WIDTH: usize = 32;
const HEADS: usize = 4;

/// The largest difference at each position between permuting before attention and after it.
#[derive(Clone, Debug)]
pub struct Differences {
    /// Without position embeddings.
    pub without_positions: Vec<f32>,
    /// With sinusoidal position embeddings.
    pub with_positions: Vec<f32>,
}

/// Measures and plots the differences.
pub fn run(path: &Path) -> Result<Differences, Box<dyn Error>> {
    let device = device("cpu")?;
    let mut initializer = Initializer::new(3, &device);
    let config = FullAttentionConfig::new(HEADS).into();
    let spec = AttentionSpec {
        init_std: 0.3,
        residual_std: 0.3,
        ..AttentionSpec::new(Role::Bidirectional, Widths::all(WIDTH), LENGTH)
    };
    let attention = Attention::new(&config, &spec, &mut initializer)?;
    let tokens = initializer.normal([1, LENGTH, WIDTH], 1.0).val();
    let ordinals = Tensor::<1, Int>::arange(0..LENGTH as i64, &device).reshape([1, LENGTH]);
    let positions = sinusoid(ordinals, WIDTH, SinusoidLayout::Interleaved);

    // Five and twelve are coprime, so this is a permutation.
    let order: Vec<i64> = (0..LENGTH as i64)
        .map(|i| (5 * i + 2) % LENGTH as i64)
        .collect();
    let order = Tensor::<1, Int>::from_data(TensorData::new(order, [LENGTH]), &device);
    let permute = |x: Tensor<3>| x.select(1, order.clone());
    let attend = |x: Tensor<3>| {
        let input = AttentionInput::self_attention(x, 0);
        attention.forward(input, &mut ForwardContext::default())
    };
    let differences = |positions: Tensor<3>| -> Result<Vec<f32>, Box<dyn Error>> {
        let before = attend(permute(tokens.clone()) + positions.clone());
        let after = permute(attend(tokens.clone() + positions));
        let gaps = (before - after).abs().max_dim(2);
        gaps.into_data()
            .try_to_vec()
            .map_err(|error| format!("{error:?}").into())
    };
    let found = Differences {
        without_positions: differences(positions.zeros_like())?,
        with_positions: differences(positions)?,
    };
    let series = |name, gaps: &[f32]| Series {
        name,
        points: (gaps.iter().enumerate())
            .map(|(i, gap)| (i as f64, f64::from(gap.max(1e-9)).log10()))
            .collect(),
        mark: Mark::Line,
    };
    let all = [
        series("with positions", &found.with_positions),
        series("without", &found.without_positions),
    ];
    curves::draw(path, ["position", "log10 of the difference"], &all)?;
    Ok(found)
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args()
        .nth(1)
        .unwrap_or("permutation.svg".to_owned());
    let found = run(Path::new(&path))?;
    let largest = |gaps: &[f32]| gaps.iter().copied().fold(0.0, f32::max);
    println!("attention(permute(x)) - permute(attention(x))   largest difference");
    println!(
        "without positions   {:.1e}",
        largest(&found.without_positions)
    );
    println!("with positions      {:.1e}", largest(&found.with_positions));
    println!("{path} has the differences at each position");
    Ok(())
}
