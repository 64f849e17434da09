//! What a training run tells its listeners.

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The loop is about to start.
    Started {
        /// Steps already done by the run that is resumed; zero for a new one.
        step: u64,
        /// Steps in all.
        steps: u64,
        /// Numbers that are trained.
        parameters: usize,
        /// Tokens to train on.
        training_tokens: usize,
        /// Tokens to judge by.
        held_out_tokens: usize,
        /// Entropy of the tokens taken one by one, in nats: what a model must beat.
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
        /// The length of the gradient before it was shortened.
        gradient_norm: f64,
        /// Tokens read by the step.
        tokens: usize,
    },
    /// The model was judged by the held-out tokens.
    Evaluated {
        /// Steps done.
        step: u64,
        /// The loss on the held-out tokens.
        held_out_loss: f64,
        /// Whether it is the lowest so far.
        best: bool,
    },
    /// All that is needed to resume is on disk.
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

/// Is told what happens: a progress bar, a log, a plot.
pub trait Listener {
    /// Something happened.
    fn on(&mut self, event: &Event);
}
