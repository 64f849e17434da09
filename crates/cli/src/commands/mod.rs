//! The commands, one file each.

mod answer;
mod classify;
mod completions;
mod convert;
mod embed;
mod fill;
mod forward;
mod generate;
mod info;
mod man;
mod reading;
mod recipes;
mod tokenize;
mod train;
mod translate;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;

use crate::arguments::{Arguments, Command};

/// Runs the given command.
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.command {
        None => {
            write!(std::io::stdout(), "{FIRST_STEPS}")?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Train(arguments)) => train::run(arguments),
        Some(Command::Generate(arguments)) => generate::run(arguments),
        Some(Command::Translate(arguments)) => translate::run(arguments),
        Some(Command::Info(arguments)) => info::run(arguments),
        Some(Command::Forward(arguments)) => forward::run(arguments),
        Some(Command::Fill(arguments)) => fill::run(arguments),
        Some(Command::Classify(arguments)) => classify::run(arguments),
        Some(Command::Answer(arguments)) => answer::run(arguments),
        Some(Command::Embed(arguments)) => embed::run(arguments),
        Some(Command::Tokenize(arguments)) => tokenize::run(arguments),
        Some(Command::Convert(arguments)) => convert::run(arguments),
        Some(Command::Recipes(arguments)) => recipes::run(arguments),
        Some(Command::Completions(arguments)) => completions::run(arguments),
        Some(Command::Man(arguments)) => man::run(arguments),
    }
}

const FIRST_STEPS: &str = "\
attentive: the whole transformer family, from a terminal.

Try first:
  attentive train                      train a small model on built-in stories (about a minute)
  attentive generate runs/stories      generate text with it
  attentive info runs/stories          its architecture, parameters and memory

Then:
  attentive train shakespeare-char --data FILE.txt     your own text
  attentive recipes                                    what else can be trained
  attentive --help                                     all commands
";
