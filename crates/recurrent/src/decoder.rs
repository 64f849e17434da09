//! The decoder: at each step it attends to the source with its previous state as the query.

use attentive_model::attention::{Additive, AttendContext, Role};
use attentive_model::embeddings::Embedding;
use attentive_model::{AttentionSite, ForwardContext, Initializer, Linear};
use attentive_tensor::dropout;
use burn::module::Module;
use burn::tensor::Tensor;

use crate::steps::by_step;
use crate::{Cell, CellState, Encoded, RecurrentConfig, Sequences};

/// Embedding, attention and recurrent layers.
#[derive(Module, Debug)]
pub(crate) struct Decoder {
    tokens: Embedding,
    pub(crate) attention: Additive,
    /// The first layer's input projection of the context, apart from that of the tokens: the tokens of all steps are known in
    /// advance, and a context only at its step.
    context: Linear,
    layers: Vec<Cell>,
    #[module(skip)]
    dropout: f64,
}

/// The output of the decoder's layers.
pub(crate) struct DecoderOutput {
    /// The outputs of the last layer, `[batch, length, hidden_width]`; zeros at padding.
    pub outputs: Tensor<3>,
    /// The state after the last step.
    pub state: Vec<CellState>,
    /// The attention weights, `[batch, 1, length, source length]`, if the observer requests them.
    pub weights: Option<Tensor<4>>,
}

impl Decoder {
    pub fn new(config: &RecurrentConfig, initializer: &mut Initializer) -> Self {
        let (hidden, std) = (config.hidden_width, config.init_std);
        let shape = [config.target_vocabulary, config.width];
        let memory = config.memory_width();
        let widths = [hidden, memory];
        let gates = config.cell.gates() * hidden;
        Self {
            tokens: Embedding::new(shape, std, initializer),
            attention: Additive::new(widths, config.attention_width, std, initializer),
            // The bias is that of the cell's input projection.
            context: Linear::new(memory, gates, false, std, initializer),
            layers: (0..config.layers)
                .map(|layer| {
                    let input = if layer == 0 { config.width } else { hidden };
                    Cell::new(input, config, initializer)
                })
                .collect(),
            dropout: config.dropout,
        }
    }

    pub fn forward(
        &self,
        target: &Sequences,
        encoded: &Encoded,
        mut state: Vec<CellState>,
        pass: &mut ForwardContext,
    ) -> DecoderOutput {
        let padding = target.padding();
        let embeddings = self.tokens.forward(target.ids.clone());
        let embeddings = dropout(embeddings, self.dropout, pass.randomness.as_deref_mut());
        let (first, others) = self.layers.split_first().expect("there is a layer");
        let (mut outputs, mut weights) = (Vec::new(), Vec::new());
        let projected = by_step(first.project_inputs(embeddings));
        for (step, projected) in projected.into_iter().enumerate() {
            let last = state.last().expect("there is a layer").hidden.clone();
            let (context, step_weights) = self.attend(last, encoded, pass);
            weights.extend(step_weights);
            let padded = padding.at(step);
            let mut advance = |cell: &Cell, projected: Tensor<2>, layer: usize| {
                let previous = state[layer].clone();
                let next = cell.step(projected, previous.clone());
                let next = next.keep_at_padding(padded, previous);
                state[layer] = next.clone();
                next.hidden
            };
            let mut hidden = advance(first, projected + self.context.forward(context), 0);
            for (layer, cell) in others.iter().enumerate() {
                let input = dropout(hidden, self.dropout, pass.randomness.as_deref_mut());
                hidden = advance(cell, cell.project_inputs(input), layer + 1);
            }
            outputs.push(padding.clear(step, hidden));
        }
        DecoderOutput {
            outputs: Tensor::stack(outputs, 1),
            state,
            weights: (!weights.is_empty()).then(|| Tensor::cat(weights, 2)),
        }
    }

    /// Attention of a state `[batch, hidden_width]` to the source: the context `[batch, memory width]` and the weights.
    fn attend(
        &self,
        state: Tensor<2>,
        encoded: &Encoded,
        pass: &mut ForwardContext,
    ) -> (Tensor<2>, Option<Tensor<4>>) {
        let query = self.attention.project_queries(state);
        let [batch, width] = query.dims();
        let query = query.reshape([batch, 1, 1, width]);
        let mut context = AttendContext {
            site: AttentionSite {
                layer: 0,
                role: Role::Cross,
            },
            non_padding: encoded.non_padding.clone(),
            dropout: 0.0,
            pass,
        };
        let scores = self
            .attention
            .scores(query, encoded.keys.clone().unsqueeze_dim(1));
        let mask = context.mask(0);
        let attended =
            context.attend_with_scores(scores, &mask, encoded.states.clone().unsqueeze_dim(1));
        let [_, _, _, width] = attended.output.dims();
        (attended.output.reshape([batch, width]), attended.weights)
    }
}
