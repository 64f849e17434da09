//! `attentive man [COMMAND]`

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use clap_mangen::Man;

use crate::arguments::{self, Arguments};
use crate::failure::Usage;

/// Prints a manual page.
pub fn run(arguments: arguments::Man) -> Result<ExitCode> {
    let mut program = Arguments::command();
    program.build();
    let page = match &arguments.command {
        None => Man::new(program),
        Some(name) => {
            let Some(command) = program.find_subcommand(name) else {
                let known: Vec<&str> = program.get_subcommands().map(|it| it.get_name()).collect();
                let message = format!(
                    "there is no command {name:?}; there are {}",
                    known.join(", ")
                );
                return Err(Usage(message).into());
            };
            let title = format!("attentive-{name}");
            Man::new(command.clone().display_name(&title)).title(title)
        }
    };
    let mut roff = Vec::new();
    page.render(&mut roff)?;
    std::io::stdout().write_all(&roff)?;
    Ok(ExitCode::SUCCESS)
}
