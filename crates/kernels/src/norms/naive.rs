//! The specification of the norms: one element at a time.

/// The norm of each row, and the statistics that the backward pass needs.
#[derive(Clone, Debug)]
pub struct NormOutput {
    /// The result.
    pub y: Vec<f64>,
    /// The mean of each row; zero for RMS norm.
    pub mean: Vec<f64>,
    /// The reciprocal standard deviation of each row.
    pub rstd: Vec<f64>,
}

/// The gradients of a norm.
#[derive(Clone, Debug)]
pub struct NormGradients {
    /// The gradient of the input.
    pub dx: Vec<f64>,
    /// The gradient of the weight.
    pub dweight: Vec<f64>,
    /// The gradient of the bias.
    pub dbias: Vec<f64>,
}

/// Layer norm of rows as wide as the weight.
pub fn layer_norm(x: &[f64], weight: &[f64], bias: Option<&[f64]>, epsilon: f64) -> NormOutput {
    let mean = |row: &[f64]| row.iter().sum::<f64>() / row.len() as f64;
    norm(x, weight, bias, epsilon, mean)
}

/// RMS norm of rows as wide as the weight.
pub fn rms_norm(x: &[f64], weight: &[f64], bias: Option<&[f64]>, epsilon: f64) -> NormOutput {
    norm(x, weight, bias, epsilon, |_| 0.0)
}

fn norm(
    x: &[f64],
    weight: &[f64],
    bias: Option<&[f64]>,
    epsilon: f64,
    mean_of: impl Fn(&[f64]) -> f64,
) -> NormOutput {
    let mut out = NormOutput {
        y: Vec::new(),
        mean: Vec::new(),
        rstd: Vec::new(),
    };
    for row in x.chunks(weight.len().max(1)) {
        let mean = mean_of(row);
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / row.len() as f64;
        let rstd = 1.0 / (variance + epsilon).sqrt();
        for (column, x) in row.iter().enumerate() {
            let bias = bias.map_or(0.0, |bias| bias[column]);
            out.y.push((x - mean) * rstd * weight[column] + bias);
        }
        out.mean.push(mean);
        out.rstd.push(rstd);
    }
    out
}

/// The gradients of layer norm.
pub fn layer_norm_backward(
    dy: &[f64],
    x: &[f64],
    weight: &[f64],
    mean: &[f64],
    rstd: &[f64],
) -> NormGradients {
    let mean_gradient = |row: &[f64]| row.iter().sum::<f64>() / row.len() as f64;
    backward(dy, x, weight, mean, rstd, mean_gradient)
}

/// The gradients of RMS norm.
pub fn rms_norm_backward(dy: &[f64], x: &[f64], weight: &[f64], rstd: &[f64]) -> NormGradients {
    let mean = vec![0.0; rstd.len()];
    backward(dy, x, weight, &mean, rstd, |_| 0.0)
}

fn backward(
    dy: &[f64],
    x: &[f64],
    weight: &[f64],
    mean: &[f64],
    rstd: &[f64],
    mean_gradient: impl Fn(&[f64]) -> f64,
) -> NormGradients {
    let width = weight.len();
    let mut out = NormGradients {
        dx: Vec::new(),
        dweight: vec![0.0; width],
        dbias: vec![0.0; width],
    };
    for row in 0..rstd.len() {
        let at = |column| row * width + column;
        let normalized: Vec<f64> = (0..width)
            .map(|column| (x[at(column)] - mean[row]) * rstd[row])
            .collect();
        let dnormalized: Vec<f64> = (0..width)
            .map(|column| dy[at(column)] * weight[column])
            .collect();
        let product = (0..width)
            .map(|column| dnormalized[column] * normalized[column])
            .sum::<f64>()
            / width as f64;
        let mean = mean_gradient(&dnormalized);
        for column in 0..width {
            let dx = (dnormalized[column] - mean - normalized[column] * product) * rstd[row];
            out.dx.push(dx);
            out.dweight[column] += dy[at(column)] * normalized[column];
            out.dbias[column] += dy[at(column)];
        }
    }
    out
}
