//! Forward passes under Hugging Face's tensor names.

use attentive_checkpoint::{
    CheckpointError, NamedOutputs, RequestedOutputs, TensorFile, forward, input_names,
};

use super::{Pretrained, PretrainedError};

/// One forward pass on named tensors.
#[derive(Clone, Copy, Debug)]
#[must_use = "a request does nothing until it is run"]
pub struct Forward<'m> {
    model: &'m Pretrained,
    inputs: &'m TensorFile,
    requested: RequestedOutputs,
}

impl Pretrained {
    /// One forward pass on the tensors of a file (`input_ids`, `attention_mask`, …).
    pub fn forward<'m>(&'m self, inputs: &'m TensorFile) -> Forward<'m> {
        Forward {
            model: self,
            inputs,
            requested: RequestedOutputs::default(),
        }
    }
}

impl Forward<'_> {
    /// Returns the hidden states after the embedding and after each block.
    pub fn hidden_states(mut self) -> Self {
        self.requested.hidden_states = true;
        self
    }

    /// Returns the attention weights of every layer.
    pub fn attentions(mut self) -> Self {
        self.requested.attentions = true;
        self
    }

    /// Returns the keys and values of the KV cache.
    pub fn past_key_values(mut self) -> Self {
        self.requested.past_key_values = true;
        self
    }

    /// Sets all requested outputs at once.
    pub fn requested(mut self, outputs: RequestedOutputs) -> Self {
        self.requested = outputs;
        self
    }

    /// The outputs, by name.
    pub fn run(self) -> Result<NamedOutputs, PretrainedError> {
        let model = self.model.model_with_heads()?;
        let known = input_names(model.config());
        let is_unknown = |name: &String| !known.contains(&name.as_str());
        if let Some(name) = self.inputs.names().into_iter().find(is_unknown) {
            let problem = format!(
                "the model has no input `{}`; its inputs are {}",
                name.escape_debug(),
                known.join(", ")
            );
            let path = self.inputs.path().to_owned();
            return Err(CheckpointError::Input { path, problem }.into());
        }
        let description = &self.model.description;
        Ok(forward(
            model,
            description,
            self.inputs,
            "",
            self.requested,
        )?)
    }
}
