//! One block of a transformer: attention, in a decoder attention to another sequence, then feed-forward, each with its
//! residual connection.

use burn::module::Module;
use serde::{Deserialize, Serialize};

use crate::{
    Attention, AttentionConfig, AttentionInput, FeedForward, FeedForwardConfig, Initializer,
    ModelConfig, NormConfig, Pass, Residual, Role, Site, Sublayer,
};

/// Where the norms stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormPlacement {
    /// On the way into each sublayer, as GPT-2 and Llama do: `x + body(norm(x))`.
    Before,
    /// After each residual sum, as the original Transformer and BERT do: `norm(x + body(x))`.
    After,
    /// On the way into each sublayer and on what it gives, before that is added, as Gemma 2 does: `x + norm(body(norm(x)))`.
    Both,
}

/// Settings of one block, or of `repeat` equal ones in a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockConfig {
    /// How many blocks in a row have these settings.
    #[serde(default = "once")]
    pub repeat: usize,
    /// Dropout on what each sublayer adds to the residual stream.
    #[serde(default)]
    pub dropout: f64,
    /// Where the norms stand.
    #[serde(default = "before")]
    pub placement: NormPlacement,
    /// The norms of both sublayers.
    pub norm: NormConfig,
    /// The first sublayer.
    pub attention: AttentionConfig,
    /// The second sublayer of a decoder: attention to the sequence that it is given beside its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross: Option<AttentionConfig>,
    /// The last sublayer.
    pub feed_forward: FeedForwardConfig,
}

fn once() -> usize {
    1
}

fn before() -> NormPlacement {
    NormPlacement::Before
}

/// Attention and feed-forward with their residual connections.
#[derive(Module, Debug)]
pub struct Block {
    attention: Sublayer<Attention>,
    cross: Option<Sublayer<Attention>>,
    feed_forward: Sublayer<FeedForward>,
}

impl Block {
    /// Builds one block of `model`, whose attention has this role.
    pub fn new(
        config: &BlockConfig,
        model: &ModelConfig,
        role: Role,
        initial: &mut Initializer,
    ) -> Self {
        let width = model.width;
        let place = model.place(role);
        let wrapped = |attention: &AttentionConfig, role: Role, initial: &mut Initializer| {
            let attention = attention.settings().build(&model.place(role), initial);
            Sublayer::new(attention, config, width, initial)
        };
        Self {
            attention: wrapped(&config.attention, role, initial),
            cross: config
                .cross
                .as_ref()
                .map(|cross| wrapped(cross, Role::Cross, initial)),
            feed_forward: {
                let layer = FeedForward::new(
                    &config.feed_forward,
                    width,
                    place.deviation,
                    place.residual_deviation,
                    initial,
                );
                Sublayer::new(layer, config, width, initial)
            },
        }
    }

    /// Draws anew what is drawn anew at this step.
    pub(crate) fn redraw(self, step: u64) -> Self {
        Self {
            attention: self.attention.map_body(|it| it.redraw(step)),
            ..self
        }
    }

    /// Adds to the residual streams, as layer number `layer`.
    pub fn forward(&self, residual: Residual, layer: usize, pass: &mut Pass) -> Residual {
        let attend = |attention: &Attention, x, pass: &mut Pass| {
            let input = AttentionInput::own(x, layer);
            attention.forward(input, pass).output
        };
        let feed = |feed_forward: &FeedForward, x, pass: &mut Pass| feed_forward.forward(x, pass);
        let stream = match residual {
            Residual::One(stream) => self.attention.forward(stream, pass, attend),
            Residual::Two { attended, fed } => {
                let attended = (self.attention).forward_across(attended, fed.clone(), pass, attend);
                let fed = (self.feed_forward).forward_across(fed, attended.clone(), pass, feed);
                let fed = pass.observe(Site::Block { layer }, fed);
                return Residual::Two { attended, fed };
            }
        };
        // Without another sequence there is nothing to add, and no norm of it.
        let stream = match (&self.cross, pass.memory.clone()) {
            (Some(cross), Some(memory)) => cross.forward(stream, pass, |attention, x, pass| {
                let input = AttentionInput {
                    memory: Some(memory),
                    ..AttentionInput::own(x, layer)
                };
                attention.forward(input, pass).output
            }),
            _ => stream,
        };
        let stream = self.feed_forward.forward(stream, pass, feed);
        Residual::One(stream.observed(Site::Block { layer }, pass))
    }
}
