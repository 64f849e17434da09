//! Events of a training run.

/// An event of a training run.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The loop is about to start.
    Started {
        /// Steps done before; zero unless the run is resumed.
        step: u64,
        /// Total steps.
        steps: u64,
        /// Number of trainable parameters.
        parameters: usize,
        /// Tokens to train on.
        training_tokens: usize,
        /// Tokens to evaluate on.
        held_out_tokens: usize,
        /// Unigram entropy of the held-out tokens in nats: the loss of a model without context.
        unigram_entropy: f64,
    },
    /// A step is done.
    Stepped {
        /// Steps done.
        step: u64,
        /// The loss before the step, in nats per token.
        loss: f64,
        /// The learning rate of the step.
        learning_rate: f64,
        /// The norm of the gradient before clipping.
        gradient_norm: f64,
        /// Tokens processed in the step.
        tokens: usize,
    },
    /// The model was evaluated on the held-out tokens.
    Evaluated {
        /// Steps done.
        step: u64,
        /// The loss on the held-out tokens.
        held_out_loss: f64,
        /// Whether it is the lowest so far.
        best: bool,
    },
    /// The state for resuming was saved.
    Saved {
        /// Steps done.
        step: u64,
    },
    /// The loop has ended.
    Ended {
        /// Steps done.
        step: u64,
        /// Why.
        outcome: Outcome,
    },
}

/// Why a training loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All steps are done.
    Finished,
    /// The caller asked to stop.
    Interrupted,
}

/// A callback for events: a progress bar, a log, a plot.
pub trait Listener {
    /// Handles an event.
    fn on(&mut self, event: &Event);
}
