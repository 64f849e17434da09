//! `attentive completions SHELL`

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;

use crate::arguments::{Arguments, Completions};

/// Prints the completion script for a shell.
pub fn run(arguments: Completions) -> Result<ExitCode> {
    let mut command = Arguments::command();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "attentive", &mut script);
    std::io::Write::write_all(&mut std::io::stdout(), &script)?;
    Ok(ExitCode::SUCCESS)
}
