//! Turns errors into a message and an exit code: 2 for a usage error, 1 for any other failure.

use std::io::ErrorKind;
use std::process::ExitCode;

use attentive::checkpoint::CheckpointError;
use attentive::data::DataError;
use attentive::generation::{GenerationError, SettingError};
use attentive::hub::HubError;
use attentive::tasks::TaskError;
use attentive::tensor::DeviceError;
use attentive::text::TextError;
use attentive::training::{RecipeError, TrainingError};

use crate::output::note;

/// A usage error: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Prints the error and returns its exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    // A closed pipe (`attentive … | head`) is not a failure.
    let closed = error.downcast_ref::<std::io::Error>();
    if closed.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    note(format_args!("error: {}", message(error)));
    ExitCode::from(if is_usage(error) { 2 } else { 1 })
}

/// The error and its causes, without causes that the error's own text already contains.
fn message(error: &anyhow::Error) -> String {
    if let Some(text) = error.downcast_ref().and_then(cli_advice) {
        return text;
    }
    let mut text = error.to_string();
    if let (Some(CheckpointError::Recurrent { .. }), Some((what, _))) =
        (error.downcast_ref(), text.rsplit_once("; "))
    {
        text = format!("{what}; only `attentive info` and `attentive forward` support it");
    }
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    if let Some(TaskError::TooLong { .. }) = error.downcast_ref() {
        text += ", or give --truncate";
    }
    if let Some(RecipeError::UnknownKey { place, .. }) = error.downcast_ref()
        && place == "data: "
    {
        text += "; to train on files use --data";
    }
    text
}

/// The error with advice in terms of command-line options, where there are any.
fn cli_advice(error: &TrainingError) -> Option<String> {
    let text = error.to_string();
    let (what, _) = text.rsplit_once("; ")?;
    let advice = match error {
        TrainingError::Occupied { .. } => {
            "give --resume to continue it, --overwrite to start over, or another --out"
        }
        TrainingError::Foreign { .. } | TrainingError::NotAFolder { .. } => "give another --out",
        TrainingError::Running { .. } => "wait until it ends, or give another --out",
        TrainingError::Changed { .. } => {
            "give --resume without changing it, or --overwrite to start over"
        }
        TrainingError::OtherData { .. } => "restore it, or give --overwrite to start over",
        TrainingError::Diverged { saved: true, .. } => {
            "give --resume and a lower optimizer.learning_rate (--set) to continue from the last save"
        }
        TrainingError::Diverged { saved: false, .. } => {
            "give --overwrite and a lower optimizer.learning_rate (--set) to start over"
        }
        TrainingError::Data(DataError::Text(TextError::MissingFile { .. })) => {
            "check the path, or name the text to train on with --data"
        }
        _ => return None,
    };
    Some(format!("{what}; {advice}"))
}

fn is_usage(error: &anyhow::Error) -> bool {
    error.is::<Usage>()
        || error.is::<RecipeError>()
        || error.is::<DeviceError>()
        || error.is::<SettingError>()
        || matches!(
            error.downcast_ref(),
            Some(
                TaskError::Empty { .. }
                    | TaskError::NoMask { .. }
                    | TaskError::NoHead { .. }
                    | TaskError::TooLong { .. }
            )
        )
        || matches!(error.downcast_ref(), Some(HubError::Setting { .. }))
        || matches!(
            error.downcast_ref(),
            Some(
                GenerationError::Setting(_)
                    | GenerationError::NoDecoder
                    | GenerationError::EmptyPrompt
                    | GenerationError::EmptySource
                    | GenerationError::LongPrompt { .. }
                    | GenerationError::LongSource { .. }
                    | GenerationError::UnknownId { .. }
            )
        )
        || matches!(
            error.downcast_ref(),
            Some(
                TrainingError::Recipe(_)
                    | TrainingError::Config(_)
                    | TrainingError::Occupied { .. }
                    | TrainingError::Foreign { .. }
                    | TrainingError::NotAFolder { .. }
                    | TrainingError::FewerSteps { .. }
                    | TrainingError::LongPrompt { .. }
                    | TrainingError::Changed { .. }
                    | TrainingError::SmallVocabulary { .. }
                    | TrainingError::Data(DataError::Text(TextError::Vocabulary { .. }))
            )
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_reported_once() {
        let missing = attentive::images::Image::open(std::path::Path::new("no/such.png"));
        let shown = message(&missing.unwrap_err().into());
        assert_eq!(shown.matches("os error").count(), 1, "{shown}");
        assert!(shown.ends_with("; check the path"), "{shown}");
    }
}
