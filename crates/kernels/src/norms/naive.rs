//! The specification of the norms: one number at a time.

/// A norm of each row, and what the backward pass needs.
#[derive(Clone, Debug)]
pub struct Normalised {
    /// The result.
    pub y: Vec<f64>,
    /// The mean of each row; zero for root-mean-square norms.
    pub mean: Vec<f64>,
    /// One over the deviation of each row.
    pub inverse: Vec<f64>,
}

/// The gradients of a norm.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// Of the input.
    pub dx: Vec<f64>,
    /// Of the weight.
    pub dweight: Vec<f64>,
    /// Of the bias.
    pub dbias: Vec<f64>,
}

/// Layer norm of rows as wide as the weight.
pub fn layer_norm(x: &[f64], weight: &[f64], bias: Option<&[f64]>, epsilon: f64) -> Normalised {
    let mean = |row: &[f64]| row.iter().sum::<f64>() / row.len() as f64;
    norm(x, weight, bias, epsilon, mean)
}

/// Root-mean-square norm of rows as wide as the weight.
pub fn rms_norm(x: &[f64], weight: &[f64], bias: Option<&[f64]>, epsilon: f64) -> Normalised {
    norm(x, weight, bias, epsilon, |_| 0.0)
}

fn norm(
    x: &[f64],
    weight: &[f64],
    bias: Option<&[f64]>,
    epsilon: f64,
    mean_of: impl Fn(&[f64]) -> f64,
) -> Normalised {
    let mut out = Normalised {
        y: Vec::new(),
        mean: Vec::new(),
        inverse: Vec::new(),
    };
    for row in x.chunks(weight.len().max(1)) {
        let mean = mean_of(row);
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / row.len() as f64;
        let inverse = 1.0 / (variance + epsilon).sqrt();
        for (column, x) in row.iter().enumerate() {
            let bias = bias.map_or(0.0, |bias| bias[column]);
            out.y.push((x - mean) * inverse * weight[column] + bias);
        }
        out.mean.push(mean);
        out.inverse.push(inverse);
    }
    out
}

/// The gradients of layer norm.
pub fn layer_norm_backward(
    dy: &[f64],
    x: &[f64],
    weight: &[f64],
    mean: &[f64],
    inverse: &[f64],
) -> Gradients {
    let mean_gradient = |row: &[f64]| row.iter().sum::<f64>() / row.len() as f64;
    backward(dy, x, weight, mean, inverse, mean_gradient)
}

/// The gradients of root-mean-square norm.
pub fn rms_norm_backward(dy: &[f64], x: &[f64], weight: &[f64], inverse: &[f64]) -> Gradients {
    let mean = vec![0.0; inverse.len()];
    backward(dy, x, weight, &mean, inverse, |_| 0.0)
}

fn backward(
    dy: &[f64],
    x: &[f64],
    weight: &[f64],
    mean: &[f64],
    inverse: &[f64],
    mean_gradient: impl Fn(&[f64]) -> f64,
) -> Gradients {
    let width = weight.len();
    let mut out = Gradients {
        dx: Vec::new(),
        dweight: vec![0.0; width],
        dbias: vec![0.0; width],
    };
    for row in 0..inverse.len() {
        let at = |column| row * width + column;
        let normal: Vec<f64> = (0..width)
            .map(|column| (x[at(column)] - mean[row]) * inverse[row])
            .collect();
        let dnormal: Vec<f64> = (0..width)
            .map(|column| dy[at(column)] * weight[column])
            .collect();
        let product = (0..width)
            .map(|column| dnormal[column] * normal[column])
            .sum::<f64>()
            / width as f64;
        let mean = mean_gradient(&dnormal);
        for column in 0..width {
            let dx = (dnormal[column] - mean - normal[column] * product) * inverse[row];
            out.dx.push(dx);
            out.dweight[column] += dy[at(column)] * normal[column];
            out.dbias[column] += dy[at(column)];
        }
    }
    out
}
