//! The `attentive` program: train, use and look at transformers from a terminal.
//!
//! Each command is a file of `commands/`. Only this crate knows JSON output, colours and exit codes.

mod arguments;
mod commands;
mod failure;
mod plot;
mod progress;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = arguments::Arguments::parse();
    match commands::run(arguments) {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    }
}
