//! Mixtures of experts: a router sends each token through a few of many feed-forward layers, so that the model grows and the
//! work per token does not. Shazeer et al. 2017; Fedus et al. 2021 (Switch); Jiang et al. 2024 (Mixtral).
//!
//! ```text
//!  tokens  t0 t1 t2 t3      each token's 2 likeliest of 3 experts, and the rows that each expert gets:
//!  router  01 02 01 20      expert 0: t0 t1 t2 t3    expert 1: t0 t2    expert 2: t1 t3
//!                           the results, weighted, are added up where their tokens stand
//! ```

use attentive_tensor::{Activation, softmax};
use burn::module::Module;
use burn::tensor::{Device, IndexingUpdateOp, Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use super::dense::Form;
use super::{Dense, Routes};
use crate::checks::{not_negative, positive, refuse, within};
use crate::{ConfigError, Initializer, Linear, Pass};

/// Settings of a mixture of experts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpertsConfig {
    /// How many experts there are.
    pub experts: usize,
    /// How many of them each token goes through.
    pub active: usize,
    /// Width between the maps of one expert.
    pub hidden_width: usize,
    /// Whether an expert is gated.
    #[serde(default = "gated")]
    pub form: ExpertForm,
    /// Of the gate, or between the two maps of a plain expert.
    #[serde(default = "super::default_gate_activation")]
    pub activation: Activation,
    /// Whether the experts' maps have biases; the router has none.
    #[serde(default)]
    pub bias: bool,
    /// What the results of a token's experts are multiplied by: `renormalized` for several experts, `probabilities` for one,
    /// unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weighting: Option<ExpertWeighting>,
    /// While training, an expert takes at most `ceil(capacity · tokens · active / experts)` tokens of a pass; later ones go
    /// past it. All are taken unless said, and outside training always, so that decoding does not depend on who else is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<f64>,
    /// Weight of the loss that asks for experts to be chosen equally often.
    #[serde(default = "default_balance")]
    pub balance_loss: f64,
    /// Weight of the loss that asks the router for small logits. Zoph et al. 2022.
    #[serde(default)]
    pub z_loss: f64,
}

/// Whether a layer is gated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpertForm {
    /// `down(activation(up(x)))`
    Plain,
    /// `down(activation(gate(x)) · up(x))`
    Gated,
}

/// What the results of a token's experts are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpertWeighting {
    /// The router's probabilities, divided by their sum over the chosen experts, as Mixtral does. With a single expert that
    /// is always one, and the router learns from the balance alone.
    Renormalized,
    /// The router's probabilities as they are, as the Switch Transformer does.
    Probabilities,
}

fn gated() -> ExpertForm {
    ExpertForm::Gated
}

fn default_balance() -> f64 {
    0.01
}

/// Far above the largest mixtures.
const MOST_EXPERTS: usize = 1 << 16;

impl ExpertsConfig {
    /// Whether the settings can work; `path` is where they stand.
    pub(super) fn validate(&self, path: &str) -> Result<(), ConfigError> {
        let at = |field: &str| format!("{path}.{field}");
        within(&at("experts"), self.experts, MOST_EXPERTS)?;
        if !(1..=self.experts).contains(&self.active) {
            return refuse(
                &at("active"),
                format!(
                    "{} is out of range; use 1 to {}, the number of experts",
                    self.active, self.experts
                ),
            );
        }
        if let Some(capacity) = self.capacity {
            positive(&at("capacity"), capacity)?;
        }
        not_negative(&at("balance_loss"), self.balance_loss)?;
        not_negative(&at("z_loss"), self.z_loss)
    }

    /// What results are multiplied by, said or implied.
    pub fn weighting(&self) -> ExpertWeighting {
        let implied = match self.active {
            1 => ExpertWeighting::Probabilities,
            _ => ExpertWeighting::Renormalized,
        };
        self.weighting.unwrap_or(implied)
    }

    pub(super) fn canonical(&self) -> Self {
        Self {
            weighting: Some(self.weighting()),
            ..self.clone()
        }
    }

    pub(super) fn expert(&self) -> Form {
        Form {
            gated: self.form,
            hidden_width: self.hidden_width,
            activation: self.activation,
            bias: self.bias,
        }
    }

    pub(super) fn operations(&self, width: u64) -> u64 {
        let active = (self.active as u64).saturating_mul(self.expert().operations(width));
        active.saturating_add(2 * width * self.experts as u64)
    }

    pub(super) fn describe(&self) -> String {
        let (active, experts) = (self.active, self.experts);
        format!(
            "{active} of {experts} experts, each a {}",
            self.expert().describe()
        )
    }
}

/// Feed-forward layers of which each token takes a few.
#[derive(Module, Debug)]
pub struct Experts {
    router: Linear,
    experts: Vec<Dense>,
    #[module(skip)]
    config: ExpertsConfig,
}

impl Experts {
    /// A router, drawn from `initial`, before `experts`.
    pub(super) fn new(
        config: &ExpertsConfig,
        experts: Vec<Dense>,
        width: usize,
        deviation: f64,
        initial: &mut Initializer,
    ) -> Self {
        Self {
            router: Linear::new(width, config.experts, false, deviation, initial),
            experts,
            config: config.clone(),
        }
    }

    /// `[batch, length, width]` to the same; tokens that no expert takes, and padding, get zeros.
    pub fn forward(&self, x: Tensor<3>, pass: &mut Pass) -> Tensor<3> {
        let [batch, length, width] = x.dims();
        let x = x.reshape([batch * length, width]);
        let logits = self.router.forward(x.clone());
        let probabilities = softmax(logits.clone());
        // Dropout's source is there in training only.
        let training = pass.randomness.is_some();
        let routes = self.routes(
            &probabilities,
            self.config.capacity.filter(|_| training),
            pass.real_tokens.as_deref(),
        );
        if training && !routes.tokens.is_empty() {
            let losses = self.losses(logits, &probabilities, &routes);
            pass.auxiliary_losses.extend(losses);
        }
        let weights = self.weights(probabilities, &routes);
        self.mixed(x, weights, &routes)
            .reshape([batch, length, width])
    }

    fn routes(
        &self,
        probabilities: &Tensor<2>,
        capacity: Option<f64>,
        real: Option<&[bool]>,
    ) -> Routes {
        let numbers = probabilities.clone().into_data();
        let numbers = numbers.try_to_vec::<f32>().expect("probabilities are f32");
        Routes::choose(&numbers, self.sizes(), capacity, real)
    }

    fn sizes(&self) -> [usize; 2] {
        [self.config.experts, self.config.active]
    }

    /// What the result of each entry is multiplied by, `[tokens · active, 1]`.
    fn weights(&self, probabilities: Tensor<2>, routes: &Routes) -> Tensor<2> {
        let (count, active) = (probabilities.dims()[0], self.config.active);
        let device = probabilities.device();
        let chosen = indices(routes.chosen.iter().copied(), &device).reshape([count, active]);
        let weights = probabilities.gather(1, chosen);
        let weights = match self.config.weighting() {
            ExpertWeighting::Probabilities => weights,
            ExpertWeighting::Renormalized => weights.clone() / weights.sum_dim(1),
        };
        weights.reshape([count * active, 1])
    }

    /// Each expert's rows through it, weighted and added up where their tokens stand.
    fn mixed(&self, x: Tensor<2>, weights: Tensor<2>, routes: &Routes) -> Tensor<2> {
        let (dims, device) = (x.dims(), x.device());
        let active = self.config.active;
        let mut results = Vec::new();
        for (expert, entries) in self.experts.iter().zip(&routes.taken) {
            if entries.is_empty() {
                continue;
            }
            // A gather per expert: its backward pass makes a gradient of all tokens, but so would that of a slice of one
            // gather, of all tokens times the active experts.
            let rows = entries.iter().map(|entry| entry / active);
            let taken = x.clone().select(0, indices(rows, &device));
            results.push(expert.forward(taken));
        }
        let nothing = Tensor::zeros(dims, &device);
        if results.is_empty() {
            return nothing;
        }
        let entries = || routes.taken.iter().flatten().copied();
        let weights = weights.select(0, indices(entries(), &device));
        let tokens = indices(entries().map(|entry| entry / active), &device);
        let results = Tensor::cat(results, 0) * weights;
        nothing.select_assign(0, tokens, results, IndexingUpdateOp::Add)
    }

    /// What training adds to its loss, each weighted.
    fn losses(
        &self,
        logits: Tensor<2>,
        probabilities: &Tensor<2>,
        routes: &Routes,
    ) -> Vec<Tensor<1>> {
        let device = logits.device();
        let real = |x: Tensor<2>| match routes.tokens.len() == x.dims()[0] {
            true => x,
            false => x.select(0, indices(routes.tokens.iter().copied(), &device)),
        };
        let mut losses = Vec::new();
        if self.config.balance_loss > 0.0 {
            let experts = self.config.experts;
            let shares = TensorData::new(routes.shares(self.sizes()), [1, experts]);
            let shares = Tensor::<2>::from_data(shares, &device);
            losses.push(balance(shares, real(probabilities.clone())) * self.config.balance_loss);
        }
        if self.config.z_loss > 0.0 {
            losses.push(z(real(logits)) * self.config.z_loss);
        }
        losses
    }
}

/// `experts · Σ share · mean probability`: least where all experts are chosen equally often. Fedus et al. 2021, for several
/// choices as in Hugging Face's `load_balancing_loss_func`, which pools the layers of a model where we add up the layers'
/// losses as the paper does.
fn balance(shares: Tensor<2>, probabilities: Tensor<2>) -> Tensor<1> {
    let experts = shares.dims()[1] as f64;
    (shares * probabilities.mean_dim(0)).sum() * experts
}

/// The mean square of the logarithm of the sum of exponentials. Zoph et al. 2022.
fn z(logits: Tensor<2>) -> Tensor<1> {
    let largest = logits.clone().detach().max_dim(1);
    let sums = (logits - largest.clone()).exp().sum_dim(1);
    (sums.log() + largest).square().mean()
}

fn indices(numbers: impl Iterator<Item = usize>, device: &Device) -> Tensor<1, Int> {
    let numbers: Vec<i64> = numbers.map(|it| it as i64).collect();
    let count = numbers.len();
    Tensor::from_data(TensorData::new(numbers, [count]), device)
}
