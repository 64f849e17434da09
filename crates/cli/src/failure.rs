//! From errors to a sentence and an exit code: 2 for a wrong call, 1 for a failure.

use std::io::ErrorKind;
use std::process::ExitCode;

use attentive::generation::{GenerationError, SamplingError};
use attentive::tensor::DeviceError;
use attentive::text::TextError;
use attentive::training::{RecipeError, TrainingError};

/// A call that cannot mean anything: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Prints the error and gives its exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    // Whoever reads our output has gone away (`attentive … | head`): nothing failed.
    let closed = error.downcast_ref::<std::io::Error>();
    if closed.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {}", sentence(error));
    ExitCode::from(if is_usage(error) { 2 } else { 1 })
}

/// The error and its causes, leaving out causes that the message already tells.
fn sentence(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn is_usage(error: &anyhow::Error) -> bool {
    error.is::<Usage>()
        || error.is::<RecipeError>()
        || error.is::<DeviceError>()
        || error.is::<SamplingError>()
        || matches!(
            error.downcast_ref(),
            Some(GenerationError::Sampling(_) | GenerationError::EmptyPrompt)
        )
        || matches!(
            error.downcast_ref(),
            Some(
                TrainingError::Recipe(_)
                    | TrainingError::Config(_)
                    | TrainingError::Occupied { .. }
                    | TrainingError::Changed { .. }
                    | TrainingError::SmallVocabulary { .. }
                    | TrainingError::Text(TextError::Vocabulary { .. })
            )
        )
}
