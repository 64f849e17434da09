//! Nadaraya-Watson kernel regression, the oldest attention: noisy points are averaged with weights that decay with the distance
//! to the query. Its width cannot be learned on the training points themselves: each point is nearest to itself, so the loss is
//! minimal at width zero. Leaving each point out of its own average fixes that. Nadaraya 1964; Watson 1964.
//!
//! Run with `cargo run --release -p attentive --example nadaraya_watson [SVG]`.

#[path = "draw/curves.rs"]
mod curves;

use std::error::Error;
use std::path::Path;

use attentive::model::attention::{
    Attention, AttentionInput, AttentionSpec, KernelShape, LearnWidth, Memory,
    NadarayaWatsonConfig, Pattern, Role, Widths,
};
use attentive::model::{ForwardContext, Initializer};
use attentive::tensor::{Device, Tensor, TensorData, device};
use attentive::training::{AdamW, AdamWConfig, Gradients};
use curves::{Mark, Series};

const POINTS: usize = 60;
const STEPS: usize = 600;

/// The fit of a kernel of one width.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The kernel, or how its width was learned.
    pub name: &'static str,
    /// The width, after training where it is learned.
    pub width: f64,
    /// Mean squared error on the training points.
    pub training_loss: f64,
    /// Mean squared error on other points.
    pub held_out_loss: f64,
}

/// Noisy points of a curve, `[1, points, 1]`.
struct Points {
    x: Tensor<3>,
    y: Tensor<3>,
}

/// Fits and plots the curves.
pub fn run(path: &Path) -> Result<Vec<Fit>, Box<dyn Error>> {
    let device = device("cpu")?.autodiff();
    let (training, held_out) = (points(1, &device), points(2, &device));
    let grid: Vec<f64> = (0..=200).map(|i| 0.025 * f64::from(i)).collect();
    let queries = tensor(grid.clone(), &device);
    let truth = grid.iter().map(|x| (*x, curve(*x))).collect();
    let noisy = values(&training.x).into_iter().zip(values(&training.y));
    let mut plotted = vec![
        series("truth", truth, Mark::Line),
        series("points", noisy.collect(), Mark::Points),
    ];
    let mut fits = Vec::new();
    for (name, kernel, learn) in [
        ("gaussian", KernelShape::Gaussian, None),
        ("boxcar", KernelShape::Boxcar, None),
        ("epanechnikov", KernelShape::Epanechnikov, None),
        ("constant", KernelShape::Constant, None),
        ("learned", KernelShape::Gaussian, Some(OwnPoint::Included)),
        (
            "learned, leave-one-out",
            KernelShape::Gaussian,
            Some(OwnPoint::LeftOut),
        ),
    ] {
        let learn_width = match learn {
            Some(_) => LearnWidth::Learned,
            None => LearnWidth::Fixed,
        };
        let mut layer = layer(kernel, learn_width, &device)?;
        if let Some(own) = learn {
            layer = train(layer, &training, own);
        }
        let predicted = predict(&layer, queries.clone(), &training);
        let predicted = grid.iter().copied().zip(values(&predicted));
        plotted.push(series(name, predicted.collect(), Mark::Line));
        let loss = |other: &Points| {
            let predicted = predict(&layer, other.x.clone(), &training);
            f64::from(squared_error(predicted, other.y.clone()).into_scalar::<f32>())
        };
        let Attention::Unprojected(inside) = &layer else {
            unreachable!("the config has no heads")
        };
        let Pattern::NadarayaWatson(inside) = inside.pattern() else {
            unreachable!("the config is of this kind")
        };
        fits.push(Fit {
            name,
            width: inside.width(),
            training_loss: loss(&training),
            held_out_loss: loss(&held_out),
        });
    }
    curves::draw(path, ["x", "y"], &plotted)?;
    Ok(fits)
}

/// Whether a point takes part in its own prediction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnPoint {
    Included,
    LeftOut,
}

fn layer(
    kernel: KernelShape,
    learn_width: LearnWidth,
    device: &Device,
) -> Result<Attention, Box<dyn Error>> {
    let config = NadarayaWatsonConfig::new(kernel)
        .with_width(0.6)
        .with_learn_width(learn_width);
    let spec = AttentionSpec::new(Role::Cross, Widths::all(1), POINTS);
    Ok(Attention::new(
        &config.into(),
        &spec,
        &mut Initializer::new(0, device),
    )?)
}

/// Trains the width of the kernel to predict the points.
fn train(mut layer: Attention, points: &Points, own: OwnPoint) -> Attention {
    let mut optimizer = AdamW::new(&AdamWConfig {
        learning_rate: 0.02,
        weight_decay: 0.0,
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        max_grad_norm: 1.0,
    });
    let Points { x, y } = points;
    // Leave-one-out: each point is a batch row of one query and all other points.
    let others = Points {
        x: others(x),
        y: others(y),
    };
    for _ in 0..STEPS {
        let predicted = match own {
            OwnPoint::Included => predict(&layer, x.clone(), points),
            OwnPoint::LeftOut => {
                let alone = x.clone().reshape([POINTS, 1, 1]);
                predict(&layer, alone, &others).reshape([1, POINTS, 1])
            }
        };
        let loss = squared_error(predicted, y.clone());
        let gradients = Gradients::backward(&loss, &layer);
        layer = optimizer.update(layer, gradients, 1.0);
    }
    layer
}

/// `[1, points, 1]` to `[points, points - 1, 1]`: for each point, all others.
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
            non_padding: None,
        }),
        ..AttentionInput::self_attention(x, 0)
    };
    layer.forward(input, &mut ForwardContext::default())
}

fn squared_error(predicted: Tensor<3>, y: Tensor<3>) -> Tensor<1> {
    let errors = predicted - y;
    (errors.clone() * errors).mean()
}

fn curve(x: f64) -> f64 {
    2.0 * x.sin() + x
}

/// Points between 0 and 5 with noise of standard deviation 0.5, from a xorshift generator (Marsaglia 2003).
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
        // The sum of twelve uniform values has variance one.
        let noise = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
        curve(*x) + 0.5 * noise
    });
    let y = y.collect();
    Points {
        x: tensor(x, device),
        y: tensor(y, device),
    }
}

fn tensor(values: Vec<f64>, device: &Device) -> Tensor<3> {
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [1, count, 1]), device)
}

fn values(x: &Tensor<3>) -> Vec<f64> {
    let values: Vec<f32> = x.to_data().try_to_vec().expect("values are f32");
    values.into_iter().map(f64::from).collect()
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
