//! Mixtures of experts: a router sends each token through a few of many feed-forward layers, so that the parameters grow and
//! the flops per token do not. Shazeer et al. 2017; Fedus et al. 2021 (Switch); Jiang et al. 2024 (Mixtral).
//!
//! ```text
//!  tokens  t0 t1 t2 t3      each token's top 2 of 3 experts, and the rows dispatched to each expert:
//!  router  01 02 01 20      expert 0: t0 t1 t2 t3    expert 1: t0 t2    expert 2: t1 t3
//!                           the weighted results are scatter-added to their tokens
//! ```

use attentive_tensor::{Activation, softmax};
use burn::module::Module;
use burn::tensor::{Device, IndexingUpdateOp, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use super::dense::LayerShape;
use super::{Dense, Routing};
use crate::checks::{not_negative, positive, refuse, within};
use crate::indices::indices;
use crate::setters;
use crate::{ConfigError, ForwardContext, Initializer, Linear};

/// Settings of a mixture of experts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpertsConfig {
    /// The number of experts.
    pub experts: usize,
    /// The number of experts per token (top-k).
    pub active: usize,
    /// Width of each expert's hidden layer.
    pub hidden_width: usize,
    /// Whether the experts are gated.
    #[serde(default = "gated")]
    pub form: ExpertForm,
    /// The activation of the gate, or of a plain expert's hidden layer.
    #[serde(default = "super::default_gate_activation")]
    pub activation: Activation,
    /// Whether the experts' projections have biases; the router has none.
    #[serde(default)]
    pub bias: bool,
    /// How the results of a token's experts are weighted; by default `renormalized` for several active experts,
    /// `probabilities` for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weighting: Option<ExpertWeighting>,
    /// In training, an expert takes at most `ceil(capacity_factor · tokens · active / experts)` tokens of a
    /// batch and drops later ones. Without it, and always in inference, no token is dropped, so that decoding does not depend
    /// on the rest of the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_factor: Option<f64>,
    /// Weight of the load-balancing loss.
    #[serde(default = "default_balance")]
    pub balance_loss_weight: f64,
    /// Weight of the router z-loss, which keeps its logits small. Zoph et al. 2022.
    #[serde(default)]
    pub z_loss_weight: f64,
}

/// Whether an expert is gated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpertForm {
    /// `down(activation(up(x)))`
    Plain,
    /// `down(activation(gate(x)) · up(x))`
    Gated,
}

/// How the results of a token's experts are weighted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpertWeighting {
    /// The router's probabilities, renormalized over the chosen experts, as Mixtral does. With a single active expert the
    /// weight is always one, and the router learns from the balancing loss alone.
    Renormalized,
    /// The router's probabilities, not renormalized, as the Switch Transformer does.
    Probabilities,
}

fn gated() -> ExpertForm {
    ExpertForm::Gated
}

fn default_balance() -> f64 {
    0.01
}

/// Far above the largest mixtures.
const MAX_EXPERTS: usize = 1 << 16;

impl ExpertsConfig {
    /// As many experts, of which a token takes `active`, with hidden layers of this width.
    pub fn new(experts: usize, active: usize, hidden_width: usize) -> Self {
        Self {
            experts,
            active,
            hidden_width,
            form: gated(),
            activation: super::default_gate_activation(),
            bias: false,
            weighting: None,
            capacity_factor: None,
            balance_loss_weight: default_balance(),
            z_loss_weight: 0.0,
        }
    }

    setters! {
        with_form(form: ExpertForm);
        with_activation(activation: Activation);
        with_bias(bias: bool);
        with_weighting(weighting: ExpertWeighting => Some);
        with_capacity_factor(capacity_factor: f64 => Some);
        with_balance_loss_weight(balance_loss_weight: f64);
        with_z_loss_weight(z_loss_weight: f64);
    }

    /// Whether the settings are valid; `path` names them in errors.
    pub(super) fn validate(&self, path: &str) -> Result<(), ConfigError> {
        let at = |field: &str| format!("{path}.{field}");
        within(&at("experts"), self.experts, MAX_EXPERTS)?;
        if !(1..=self.experts).contains(&self.active) {
            return refuse(
                &at("active"),
                format!(
                    "{} is out of range; use 1 to {}, the number of experts",
                    self.active, self.experts
                ),
            );
        }
        if let Some(factor) = self.capacity_factor {
            positive(&at("capacity_factor"), factor)?;
        }
        not_negative(&at("balance_loss_weight"), self.balance_loss_weight)?;
        not_negative(&at("z_loss_weight"), self.z_loss_weight)
    }

    /// The weighting, given or default.
    pub fn weighting(&self) -> ExpertWeighting {
        let default = match self.active {
            1 => ExpertWeighting::Probabilities,
            _ => ExpertWeighting::Renormalized,
        };
        self.weighting.unwrap_or(default)
    }

    pub(super) fn canonical(&self) -> Self {
        Self {
            weighting: Some(self.weighting()),
            ..self.clone()
        }
    }

    pub(super) fn expert(&self) -> LayerShape {
        LayerShape {
            form: self.form,
            hidden_width: self.hidden_width,
            activation: self.activation,
            bias: self.bias,
        }
    }

    pub(super) fn flops(&self, width: u64) -> u64 {
        let active = (self.active as u64).saturating_mul(self.expert().flops(width));
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

/// A mixture of experts.
#[derive(Module, Debug)]
pub struct Experts {
    router: Linear,
    experts: Vec<Dense>,
    #[module(skip)]
    config: ExpertsConfig,
}

impl Experts {
    /// Builds the router in front of `experts`.
    pub(super) fn new(
        config: &ExpertsConfig,
        experts: Vec<Dense>,
        width: usize,
        std: f64,
        initializer: &mut Initializer,
    ) -> Self {
        Self {
            router: Linear::new(width, config.experts, false, std, initializer),
            experts,
            config: config.clone(),
        }
    }

    pub(super) fn device(&self) -> Device {
        self.router.weight.lazy_device()
    }

    /// `[batch, length, width]` to the same; zeros for dropped tokens and padding.
    pub fn forward(&self, x: Tensor<3>, pass: &mut ForwardContext) -> Tensor<3> {
        let [batch, length, width] = x.dims();
        let x = x.reshape([batch * length, width]);
        let logits = self.router.forward(x.clone());
        let probabilities = softmax(logits.clone());
        // Randomness is present in training only.
        let training = pass.randomness.is_some();
        let routing = self.routing(
            &probabilities,
            self.config.capacity_factor.filter(|_| training),
            pass.token_mask.as_deref(),
        );
        if training && !routing.tokens.is_empty() {
            let losses = self.losses(logits, &probabilities, &routing);
            pass.auxiliary_losses.extend(losses);
        }
        let weights = self.weights(probabilities, &routing);
        self.dispatch(x, weights, &routing)
            .reshape([batch, length, width])
    }

    fn routing(
        &self,
        probabilities: &Tensor<2>,
        capacity: Option<f64>,
        token_mask: Option<&[bool]>,
    ) -> Routing {
        let probabilities = probabilities.clone().into_data();
        let probabilities = probabilities.try_to_vec::<f32>();
        let probabilities = probabilities.expect("probabilities are f32");
        Routing::new(&probabilities, self.sizes(), capacity, token_mask)
    }

    fn sizes(&self) -> [usize; 2] {
        [self.config.experts, self.config.active]
    }

    /// The weight of each entry, `[tokens · active, 1]`.
    fn weights(&self, probabilities: Tensor<2>, routing: &Routing) -> Tensor<2> {
        let (count, active) = (probabilities.dims()[0], self.config.active);
        let device = probabilities.device();
        let chosen = indices(routing.experts.iter().copied(), &device).reshape([count, active]);
        let weights = probabilities.gather(1, chosen);
        let weights = match self.config.weighting() {
            ExpertWeighting::Probabilities => weights,
            ExpertWeighting::Renormalized => weights.clone() / weights.sum_dim(1),
        };
        weights.reshape([count * active, 1])
    }

    /// Runs each expert on its rows, and scatter-adds the weighted results to their tokens.
    fn dispatch(&self, x: Tensor<2>, weights: Tensor<2>, routing: &Routing) -> Tensor<2> {
        let (dims, device) = (x.dims(), x.device());
        let active = self.config.active;
        let mut results = Vec::new();
        for (expert, entries) in self.experts.iter().zip(&routing.dispatched) {
            if entries.is_empty() {
                continue;
            }
            // A gather per expert: its backward pass allocates a gradient of all tokens, but that of a slice of one gather would
            // be larger still, all tokens times the active experts.
            let rows = entries.iter().map(|entry| entry / active);
            let rows = x.clone().select(0, indices(rows, &device));
            results.push(expert.forward(rows));
        }
        let zeros = Tensor::zeros(dims, &device);
        if results.is_empty() {
            return zeros;
        }
        let entries = || routing.dispatched.iter().flatten().copied();
        let weights = weights.select(0, indices(entries(), &device));
        let tokens = indices(entries().map(|entry| entry / active), &device);
        let results = Tensor::cat(results, 0) * weights;
        zeros.select_assign(0, tokens, results, IndexingUpdateOp::Add)
    }

    /// The auxiliary losses, each weighted.
    fn losses(
        &self,
        logits: Tensor<2>,
        probabilities: &Tensor<2>,
        routing: &Routing,
    ) -> Vec<Tensor<1>> {
        let device = logits.device();
        let without_padding = |x: Tensor<2>| match routing.tokens.len() == x.dims()[0] {
            true => x,
            false => x.select(0, indices(routing.tokens.iter().copied(), &device)),
        };
        let mut losses = Vec::new();
        if self.config.balance_loss_weight > 0.0 {
            let experts = self.config.experts;
            let shares = TensorData::new(routing.shares(self.sizes()), [1, experts]);
            let shares = Tensor::<2>::from_data(shares, &device);
            losses.push(
                balance_loss(shares, without_padding(probabilities.clone()))
                    * self.config.balance_loss_weight,
            );
        }
        if self.config.z_loss_weight > 0.0 {
            losses.push(z_loss(without_padding(logits)) * self.config.z_loss_weight);
        }
        losses
    }
}

/// The load-balancing loss, `experts · Σ share · mean probability`, minimal where all experts are chosen equally often. Fedus
/// et al. 2021; with several active experts as in Hugging Face's `load_balancing_loss_func`, which pools the layers of a model
/// where we sum the layers' losses as the paper does.
fn balance_loss(shares: Tensor<2>, probabilities: Tensor<2>) -> Tensor<1> {
    let experts = shares.dims()[1] as f64;
    (shares * probabilities.mean_dim(0)).sum() * experts
}

/// The router z-loss: the mean of the squared log-sum-exp. Zoph et al. 2022.
fn z_loss(logits: Tensor<2>) -> Tensor<1> {
    let largest = logits.clone().detach().max_dim(1);
    let sums = (logits - largest.clone()).exp().sum_dim(1);
    (sums.log() + largest).square().mean()
}
