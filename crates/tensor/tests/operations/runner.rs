//! Runs a case with the operations of this crate.

#[path = "../../src/exact_dims.rs"]
mod exact_dims;

use std::collections::BTreeMap;

use attentive_tensor::{
    Device, Int, LinearParameters, LinearState, NormParameters, PartialAttention, RotaryAngles,
    ScoreBias, Scores, Tensor, TensorData, activate, activated_linear, add, add_norm,
    add_norm_with_sum, apply_weights, attention, attention_weights, attention_with_log_sum_exp,
    cross_entropy, dropout, embedding, feed_forward, gated, linear, linear_attention, linear_qkv,
    masked_softmax, merge_partial_attention, norm, norm_with_input, positive_features,
    random_features, rotary, softmax,
};

use crate::case::{Array, Arrays, Case, LinearAttention, Norm, Operation, randomness};
use exact_dims::ExactDims;

/// The memory layout of the inputs and the upstream gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Contiguous.
    Contiguous,
    /// Two axes swapped, as heads are views of a projection.
    Transposed,
}

/// Which inputs require a gradient.
#[derive(Clone, Copy, Debug)]
pub enum Tracked<'a> {
    All,
    Only(&'a str),
    /// None: the device has no autodiff.
    None,
}

/// The outputs of an operation, and the gradients of its inputs.
pub struct Outcome {
    pub outputs: Vec<Array>,
    /// The gradients of the inputs that have one.
    pub gradients: Arrays,
}

pub fn run(case: &Case, layout: Layout, tracked: Tracked) -> Outcome {
    let device = match tracked {
        Tracked::None => Device::flex(),
        _ => Device::flex().autodiff(),
    };
    let leaf = |(name, array): (&String, &Array)| {
        let data = TensorData::new(array.values.clone(), [array.values.len()]);
        let leaf = Tensor::<1>::from_data(data, &device);
        let leaf = match tracked {
            Tracked::All => leaf.require_grad(),
            Tracked::Only(only) if only == name => leaf.require_grad(),
            Tracked::Only(_) | Tracked::None => leaf,
        };
        (name.clone(), leaf)
    };
    let mut run = CaseRun {
        case,
        layout,
        leaves: case.inputs.iter().map(leaf).collect(),
        device,
        outputs: Vec::new(),
        loss: None,
    };
    run.run();
    let mut gradients = Arrays::new();
    if let (Tracked::All | Tracked::Only(_), Some(loss)) = (tracked, run.loss) {
        let all = loss.backward();
        for (name, leaf) in &run.leaves {
            if let Some(gradient) = leaf.grad(&all) {
                let shape = case.inputs[name].shape.clone();
                let values = values(gradient);
                gradients.insert(name.clone(), Array { shape, values });
            }
        }
    }
    Outcome {
        outputs: run.outputs,
        gradients,
    }
}

struct CaseRun<'a> {
    case: &'a Case,
    layout: Layout,
    device: Device,
    /// The inputs, flat, so that their gradients have one type.
    leaves: BTreeMap<String, Tensor<1>>,
    outputs: Vec<Array>,
    /// The sum of all outputs that have upstream gradients, times these.
    loss: Option<Tensor<1>>,
}

impl CaseRun<'_> {
    fn run(&mut self) {
        match &self.case.operation {
            Operation::Rotary { theta, positions } => {
                let x = self.input::<4>("x");
                let width = x.dims()[3];
                let frequencies: Vec<f64> = (0..width / 2)
                    .map(|i| theta.powf(-2.0 * i as f64 / width as f64))
                    .collect();
                let positions = self.integers(positions);
                let angles = RotaryAngles::from_frequencies(positions, &frequencies, 1.0);
                self.output(rotary(x, &angles));
            }
            Operation::Embedding { ids } => {
                self.output(embedding(self.input("table"), self.integers(ids)));
            }
            Operation::CrossEntropy {
                targets,
                label_smoothing,
            } => {
                let data = TensorData::new(targets.clone(), [targets.len()]);
                let targets = Tensor::<1, Int>::from_data(data, &self.device);
                self.output(cross_entropy(
                    self.input("logits"),
                    targets,
                    *label_smoothing,
                ));
            }
            Operation::Attention(settings) => {
                let scores = self.scores(settings.scale, settings.mask());
                let [query, key, value] = ["query", "key", "value"].map(|it| self.input(it));
                let randomness = &mut randomness();
                let context = attention(
                    query,
                    key,
                    value,
                    &scores,
                    settings.dropout,
                    Some(randomness),
                );
                self.output(context);
            }
            Operation::AttentionWithLogSumExp(settings) => {
                let scores = self.scores(settings.scale, settings.mask());
                let [query, key, value] = ["query", "key", "value"].map(|it| self.input(it));
                let (dropout, randomness) = (settings.dropout, Some(&mut randomness()));
                let attended =
                    attention_with_log_sum_exp(query, key, value, &scores, dropout, randomness);
                self.output(attended.context);
                self.output(attended.log_sum_exp);
            }
            Operation::MergePartialAttention => {
                let part = |index: usize| {
                    Some(PartialAttention {
                        context: self.optional(&format!("context{index}"))?,
                        log_sum_exp: self.input(&format!("log_sum_exp{index}")),
                    })
                };
                let merged = merge_partial_attention((0..).map_while(part).collect());
                self.output(merged.context);
                self.output(merged.log_sum_exp);
            }
            Operation::AttentionWeights(settings) => {
                let scores = self.scores(settings.scale, settings.mask());
                let weights = attention_weights(self.input("query"), self.input("key"), &scores);
                self.output(weights);
            }
            Operation::ApplyWeights => {
                self.output(apply_weights(self.input("weights"), self.input("value")));
            }
            Operation::MaskedSoftmax(settings) => {
                self.output(masked_softmax(self.input("scores"), &settings.mask()));
            }
            Operation::LinearAttention(settings) => self.linear_attention(settings),
            Operation::PositiveFeatures { map } => {
                self.output(positive_features(self.input("x"), *map));
            }
            Operation::RandomFeatures { stabilizer } => {
                let (x, projection) = (self.input("x"), self.input("projection"));
                self.output(random_features(x, projection, *stabilizer, 1e-4));
            }
            _ => self.run_at_any_rank(),
        }
    }

    fn linear_attention(&mut self, settings: &LinearAttention) {
        let [query, key, value] = ["query", "key", "value"].map(|it| self.input::<4>(it));
        let [batch, heads, _, features] = key.dims();
        let width = value.dims()[3];
        let state = settings.start.as_ref().map(|start| {
            let kv_sums = TensorData::new(start.kv_sums.clone(), [batch, heads, features, width]);
            let key_sums = TensorData::new(start.key_sums.clone(), [batch, heads, features]);
            LinearState {
                kv_sums: Tensor::from_data(kv_sums, &self.device),
                key_sums: Tensor::from_data(key_sums, &self.device),
            }
        });
        let attended = linear_attention(query, key, value, &settings.mask(), state);
        self.output(attended.context);
        self.output(attended.state.kv_sums);
        self.output(attended.state.key_sums);
    }

    /// The operations of any rank, with the rank of the case.
    fn run_at_any_rank(&mut self) {
        let first = self.case.inputs.get("x").or(self.case.inputs.get("gate"));
        match first.unwrap().shape.len() {
            2 => self.run_at::<2>(),
            3 => self.run_at::<3>(),
            rank => panic!("{}: no case has {rank} axes yet", self.case.name),
        }
    }

    fn run_at<const D: usize>(&mut self) {
        let x = |run: &Self| run.input::<D>("x");
        match &self.case.operation {
            Operation::Linear => {
                let (weight, bias) = self.layer("weight", "bias");
                self.output(linear(x(self), weight, bias));
            }
            Operation::ActivatedLinear { activation } => {
                let (weight, bias) = self.layer("weight", "bias");
                self.output(activated_linear(*activation, x(self), weight, bias));
            }
            Operation::FeedForward { activation } => {
                let gated = self.case.inputs.contains_key("gate");
                let gate = gated.then(|| self.layer("gate", "gate_bias"));
                let (up, down) = (self.layer("up", "up_bias"), self.layer("down", "down_bias"));
                self.output(feed_forward(*activation, x(self), gate, up, down));
            }
            Operation::LinearQkv => {
                let projections =
                    [0, 1, 2].map(|i| self.layer(&format!("weight{i}"), &format!("bias{i}")));
                for output in linear_qkv(x(self), projections) {
                    self.output(output);
                }
            }
            Operation::Add => self.output(add(x(self), self.input("y"))),
            Operation::Norm(settings) => self.output(norm(x(self), self.operands(settings))),
            Operation::NormWithInput(settings) => {
                for output in norm_with_input(x(self), self.operands(settings)) {
                    self.output(output);
                }
            }
            Operation::AddNormWithSum(settings) => {
                let (branch, operands) = (self.input("branch"), self.operands(settings));
                for output in add_norm_with_sum(x(self), branch, operands) {
                    self.output(output);
                }
            }
            Operation::AddNorm(settings) => {
                let operands = self.operands(settings);
                self.output(add_norm(x(self), self.input("branch"), operands));
            }
            Operation::Activate { activation } => self.output(activate(*activation, x(self))),
            Operation::Gated { activation } => {
                let (gate, up) = (self.input::<D>("gate"), self.input("up"));
                self.output(gated(*activation, gate, up));
            }
            Operation::Softmax => self.output(softmax(x(self))),
            Operation::Dropout { probability } => {
                self.output(dropout(x(self), *probability, Some(&mut randomness())));
            }
            other => panic!("{other:?} has a fixed number of axes"),
        }
    }

    fn layer(&self, weight: &str, bias: &str) -> LinearParameters {
        (self.input(weight), self.optional(bias))
    }

    fn operands(&self, settings: &Norm) -> NormParameters {
        NormParameters {
            kind: settings.kind(),
            weight: self.input("weight"),
            bias: self.optional("bias"),
            epsilon: settings.epsilon,
        }
    }

    fn scores(&self, scale: f64, mask: attentive_tensor::Mask) -> Scores {
        let axes = self.case.inputs.get("bias").map(|it| it.shape.len());
        let bias = axes.map(|axes| match axes {
            4 => ScoreBias::Pairs(self.input("bias")),
            3 => ScoreBias::Keys(self.input("bias")),
            2 => ScoreBias::Distances(self.input("bias")),
            _ => panic!("{}: a bias of {axes} axes", self.case.name),
        });
        Scores {
            bias,
            ..Scores::new(mask, scale)
        }
    }

    fn input<const D: usize>(&self, name: &str) -> Tensor<D> {
        self.optional(name)
            .unwrap_or_else(|| panic!("{} has no input {name}", self.case.name))
    }

    fn optional<const D: usize>(&self, name: &str) -> Option<Tensor<D>> {
        let leaf = self.leaves.get(name)?.clone();
        let dims = self.case.inputs[name].dims::<D>();
        Some(with_layout(leaf.reshape(ExactDims(dims)), self.layout))
    }

    fn integers(&self, rows: &[Vec<i64>]) -> Tensor<2, Int> {
        let data = TensorData::new(
            rows.concat(),
            [rows.len(), rows.first().map_or(0, Vec::len)],
        );
        Tensor::from_data(data, &self.device)
    }

    /// Records an output, and adds its product with the upstream gradient to the loss.
    fn output<const D: usize>(&mut self, output: Tensor<D>) {
        let upstream = &self.case.upstream[self.outputs.len()];
        let dims = output.dims();
        self.outputs.push(Array {
            shape: dims.to_vec(),
            values: values(output.clone()),
        });
        if !upstream.is_empty() && upstream.iter().all(|it| *it == 0.0) {
            return;
        }
        let upstream =
            Tensor::<D>::from_data(TensorData::new(upstream.clone(), dims), &self.device);
        let loss = match (self.layout, swapped_axes::<D>()) {
            (Layout::Transposed, Some([a, b])) => output.swap_dims(a, b) * upstream.swap_dims(a, b),
            _ => output * upstream,
        };
        let loss = loss.sum();
        self.loss = Some(match self.loss.take() {
            Some(sum) => sum + loss,
            None => loss,
        });
    }
}

/// The same values in the given memory layout.
fn with_layout<const D: usize>(x: Tensor<D>, layout: Layout) -> Tensor<D> {
    match (layout, swapped_axes::<D>()) {
        (Layout::Transposed, Some([a, b])) => {
            let x = x.swap_dims(a, b);
            let (dims, count) = (x.dims(), x.shape().num_elements());
            // Flattening copies into the swapped order; swapping back is only a view.
            x.reshape(ExactDims([count]))
                .reshape(ExactDims(dims))
                .swap_dims(a, b)
        }
        _ => x,
    }
}

/// The axes that a view swaps: heads and positions, or else the last two.
fn swapped_axes<const D: usize>() -> Option<[usize; 2]> {
    match D {
        0 | 1 => None,
        4 => Some([1, 2]),
        _ => Some([D - 2, D - 1]),
    }
}

pub fn values<const D: usize>(x: Tensor<D>) -> Vec<f64> {
    x.into_data().iter::<f64>().collect()
}
