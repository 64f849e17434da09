//! Turns errors into a message and an exit code: 2 for a usage error, 1 for any other failure.

use std::error::Error;
use std::io::ErrorKind;
use std::process::ExitCode;

use attentive::PretrainedError;
use attentive::checkpoint::CheckpointError;
use attentive::data::DataError;
use attentive::generation::{GenerationError, SettingError};
use attentive::hub::HubError;
use attentive::tasks::TaskError;
use attentive::tensor::DeviceError;
use attentive::text::TextError;
use attentive::training::{RecipeError, TrainingError};

use crate::output::error_line;

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
    error_line(format_args!("error: {}", message(error)));
    ExitCode::from(if is_usage(error) { 2 } else { 1 })
}

/// The error and its causes, without causes that the error's own text already contains.
fn message(error: &anyhow::Error) -> String {
    if let Some(text) = find(error).and_then(cli_advice) {
        return text;
    }
    let mut text = error.to_string();
    if let (Some(CheckpointError::Recurrent { .. }), Some((what, _))) =
        (find(error), text.rsplit_once("; "))
    {
        text = format!("{what}; only `attentive info` and `attentive forward` support it");
    }
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    if error.is::<PretrainedError>() {
        text = text
            .replace("give a plain prompt", "leave --chat out")
            .replace(
                "to continue a text, generate",
                "to continue a text use attentive generate",
            );
    }
    if let Some(TaskError::TruncatedMask { .. }) = find(error) {
        text = text.replace("allow more tokens, or", "leave --truncate out, or");
    }
    if let Some(TaskError::TooLong { .. }) = find(error) {
        text += ", or give --truncate";
    }
    if let Some(RecipeError::UnknownKey { place, .. }) = find(error)
        && place == "data: "
    {
        text += "; to train on files use --data";
    }
    if let Some(CheckpointError::NoType { .. }) = find(error) {
        text = text.replace("name it when loading", "give --model-type");
    }
    if let Some(TextError::AmbiguousTokenizer { cause, .. }) = find(error)
        && cause.contains("do_lower_case")
    {
        text += ", or give --lower-case";
    }
    let is_option = matches!(find(error), Some(TextError::NoLowerCase { .. }))
        || find::<SettingError>(error).is_some()
        || find::<GenerationError>(error).is_some()
        || find::<CheckpointError>(error).is_some();
    if is_option { with_options(&text) } else { text }
}

/// The options of generation, by their names in the library.
const OPTIONS: [(&str, &str); 13] = [
    ("do_lower_case", "--lower-case"),
    ("num_return_sequences", "--return"),
    ("num_beams", "--beams"),
    ("max_new_tokens", "--max-new-tokens"),
    ("temperature", "--temperature"),
    ("top_k", "--top-k"),
    ("top_p", "--top-p"),
    ("repetition_penalty", "--repetition-penalty"),
    ("length_penalty", "--length-penalty"),
    ("early_stopping", "--early-stopping"),
    ("stop", "--stop"),
    ("seed", "--seed"),
    ("model_type and config", "--model-type and --config"),
];

/// A message in which an option that is refused, or that the advice names, is called as on the command line.
fn with_options(text: &str) -> String {
    let mut text = text.to_owned();
    for (name, option) in OPTIONS {
        if let Some(rest) = text.strip_prefix(&format!("{name}: ")) {
            text = format!("{option}: {rest}");
        }
        text = text.replace(&format!("give {name}"), &format!("give {option}"));
        text = text.replace(&format!("leave {name}"), &format!("leave {option}"));
        text = text.replace(&format!("and {name} asks"), &format!("and {option} asks"));
    }
    text
}

/// The error of a type: itself, or the part of the library that failed.
fn find<T: Error + Send + Sync + 'static>(error: &anyhow::Error) -> Option<&T> {
    let part = || {
        error
            .downcast_ref::<PretrainedError>()?
            .inner()
            .downcast_ref()
    };
    error.downcast_ref().or_else(part)
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
    let task = |error: &TaskError| {
        matches!(
            error,
            TaskError::Empty { .. }
                | TaskError::NoMask { .. }
                | TaskError::NoHead { .. }
                | TaskError::TooLong { .. }
                | TaskError::TruncatedMask { .. }
        )
    };
    let generation = |error: &GenerationError| {
        matches!(
            error,
            GenerationError::Setting(_)
                | GenerationError::Conflict { .. }
                | GenerationError::EmptyStopString
                | GenerationError::NoDecoder
                | GenerationError::EmptyPrompt
                | GenerationError::EmptySource
                | GenerationError::LongPrompt { .. }
                | GenerationError::LongSource { .. }
                | GenerationError::UnknownId { .. }
        )
    };
    let training = |error: &TrainingError| {
        matches!(
            error,
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
    };
    let pretrained = |error: &PretrainedError| {
        matches!(
            error,
            PretrainedError::Cannot { .. }
                | PretrainedError::NoTokenizer { .. }
                | PretrainedError::NoChatTemplate { .. }
                | PretrainedError::NoEncoder { .. }
                | PretrainedError::ReadsImages
                | PretrainedError::ReadsTexts
                | PretrainedError::EncoderDecoder
        )
    };
    error.is::<Usage>()
        || error.is::<RecipeError>()
        || find::<DeviceError>(error).is_some()
        || find::<SettingError>(error).is_some()
        || matches!(find(error), Some(TextError::NoLowerCase { .. }))
        || matches!(find(error), Some(HubError::Setting { .. }))
        || find(error).is_some_and(task)
        || find(error).is_some_and(generation)
        || find(error).is_some_and(training)
        || error.downcast_ref().is_some_and(pretrained)
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
