//! Kernel regression, the oldest attention: noisy points are averaged with weights that fall with the distance from the query.
//! And why its width cannot be learned on the points themselves: each point is nearest to itself, so the loss is least where
//! the width is zero. Without its own point in the average, it is not. Nadaraya 1964; Watson 1964.
//!
//! Run with `cargo run --release -p attentive --example nadaraya_watson [SVG]`.

#[path = "draw/curves.rs"]
mod curves;

use std::error::Error;
use std::path::Path;

use attentive::model::{
    Attention, AttentionConfig, AttentionInput, Initializer, Memory, Pass, Pattern, Place, Role,
    Widths,
};
use attentive::tensor::{Device, Tensor, TensorData, device};
use attentive::training::{AdamW, AdamWConfig, Gradients};
use curves::{Mark, Series};

const POINTS: usize = 60;
const STEPS: usize = 600;

/// How well a kernel of one width predicts.
#[derive(Clone, Debug)]
pub struct Fit {
    /// Which kernel, or how its width was learned.
    pub name: &'static str,
    /// The width, at the end of learning where it was learned.
    pub width: f64,
    /// Mean squared error at the points that are averaged.
    pub training_loss: f64,
    /// The same at other points.
    pub held_out_loss: f64,
}

/// Noisy points of a curve, `[1, points, 1]`.
struct Points {
    x: Tensor<3>,
    y: Tensor<3>,
}

/// Fits, and draws the curves.
pub fn run(path: &Path) -> Result<Vec<Fit>, Box<dyn Error>> {
    let device = device("cpu")?.autodiff();
    let (training, held_out) = (points(1, &device), points(2, &device));
    let grid: Vec<f64> = (0..=200).map(|i| 0.025 * f64::from(i)).collect();
    let queries = tensor(grid.clone(), &device);
    let truth = grid.iter().map(|x| (*x, curve(*x))).collect();
    let noisy = numbers(&training.x).into_iter().zip(numbers(&training.y));
    let mut drawn = vec![
        series("truth", truth, Mark::Line),
        series("points", noisy.collect(), Mark::Points),
    ];
    let mut fits = Vec::new();
    for (name, kernel, learn) in [
        ("gaussian", "gaussian", None),
        ("boxcar", "boxcar", None),
        ("epanechnikov", "epanechnikov", None),
        ("constant", "constant", None),
        ("learned, own point in", "gaussian", Some(Own::In)),
        ("learned, own point out", "gaussian", Some(Own::Out)),
    ] {
        let mut layer = layer(kernel, learn.is_some(), &device)?;
        if let Some(own) = learn {
            layer = learned(layer, &training, own);
        }
        let predicted = predict(&layer, queries.clone(), &training);
        let predicted = grid.iter().copied().zip(numbers(&predicted));
        drawn.push(series(name, predicted.collect(), Mark::Line));
        let loss = |other: &Points| {
            let predicted = predict(&layer, other.x.clone(), &training);
            f64::from(squared_error(predicted, other.y.clone()).into_scalar::<f32>())
        };
        let Attention::Unprojected(inside) = &layer else {
            unreachable!("the settings name no heads")
        };
        let Pattern::NadarayaWatson(inside) = inside.pattern() else {
            unreachable!("the settings are of this kind")
        };
        fits.push(Fit {
            name,
            width: inside.width(),
            training_loss: loss(&training),
            held_out_loss: loss(&held_out),
        });
    }
    curves::draw(path, ["x", "y"], &drawn)?;
    Ok(fits)
}

/// Whether a point helps to predict itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Own {
    In,
    Out,
}

fn layer(kernel: &str, learned: bool, device: &Device) -> Result<Attention, Box<dyn Error>> {
    let learn = if learned { "learned" } else { "fixed" };
    let config: AttentionConfig = serde_json::from_str(&format!(
        r#"{{ "kind": "nadaraya_watson", "kernel": "{kernel}", "width": 0.6, "learn_width": "{learn}" }}"#
    ))?;
    let place = Place::new(Role::Cross, Widths::all(1), POINTS);
    Ok(Attention::new(
        &config,
        &place,
        &mut Initializer::new(0, device),
    )?)
}

/// The layer after its width was trained to predict the points.
fn learned(mut layer: Attention, points: &Points, own: Own) -> Attention {
    let mut optimizer = AdamW::new(&AdamWConfig {
        learning_rate: 0.02,
        decay: 0.0,
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        clip: 1.0,
    });
    let Points { x, y } = points;
    // Without its own, each point is a sequence of one query and all other points.
    let others = Points {
        x: others(x),
        y: others(y),
    };
    for _ in 0..STEPS {
        let predicted = match own {
            Own::In => predict(&layer, x.clone(), points),
            Own::Out => {
                let alone = x.clone().reshape([POINTS, 1, 1]);
                predict(&layer, alone, &others).reshape([1, POINTS, 1])
            }
        };
        let loss = squared_error(predicted, y.clone());
        let gradients = Gradients::of(&loss, &layer);
        layer = optimizer.update(layer, gradients, 1.0);
    }
    layer
}

/// `[1, points, 1]` to `[points, points - 1, 1]`: for each point, all but itself.
fn others(x: &Tensor<3>) -> Tensor<3> {
    let without = |point: usize| {
        let before = x.clone().narrow(1, 0, point.max(1));
        let after = x
            .clone()
            .narrow(1, (point + 1).min(POINTS - 1), (POINTS - 1 - point).max(1));
        match point {
            0 => after,
            _ if point == POINTS - 1 => before,
            _ => Tensor::cat(vec![before, after], 1),
        }
    };
    Tensor::cat((0..POINTS).map(without).collect(), 0)
}

fn predict(layer: &Attention, x: Tensor<3>, points: &Points) -> Tensor<3> {
    let input = AttentionInput {
        memory: Some(Memory {
            keys: points.x.clone(),
            values: points.y.clone(),
            real: None,
        }),
        ..AttentionInput::own(x, 0)
    };
    layer.forward(input, &mut Pass::default()).output
}

fn squared_error(predicted: Tensor<3>, y: Tensor<3>) -> Tensor<1> {
    let errors = predicted - y;
    (errors.clone() * errors).mean()
}

fn curve(x: f64) -> f64 {
    2.0 * x.sin() + x
}

/// Points between 0 and 5 with noise of deviation 0.5, of a generator of our own: Marsaglia 2003.
fn points(seed: u64, device: &Device) -> Points {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let x: Vec<f64> = (0..POINTS).map(|_| 5.0 * uniform()).collect();
    let y = x.iter().map(|x| {
        // Twelve uniform numbers add up to a variance of one.
        let noise = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
        curve(*x) + 0.5 * noise
    });
    let y = y.collect();
    Points {
        x: tensor(x, device),
        y: tensor(y, device),
    }
}

fn tensor(numbers: Vec<f64>, device: &Device) -> Tensor<3> {
    let count = numbers.len();
    Tensor::from_data(TensorData::new(numbers, [1, count, 1]), device)
}

fn numbers(x: &Tensor<3>) -> Vec<f64> {
    let numbers: Vec<f32> = x.to_data().try_to_vec().expect("numbers of the CPU");
    numbers.into_iter().map(f64::from).collect()
}

fn series(name: &str, points: Vec<(f64, f64)>, mark: Mark) -> Series<'_> {
    Series { name, points, mark }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args()
        .nth(1)
        .unwrap_or("nadaraya_watson.svg".to_owned());
    println!("kernel                    width   training loss   held-out loss");
    for fit in run(Path::new(&path))? {
        println!(
            "{:22}   {:6.4}   {:13.3}   {:13.3}",
            fit.name, fit.width, fit.training_loss, fit.held_out_loss
        );
    }
    println!("{path} has the curves; the noise alone has a loss of 0.25");
    Ok(())
}
