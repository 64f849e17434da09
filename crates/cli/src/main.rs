//! The `attentive` program: train, use and inspect transformers from a terminal.
//!
//! Each command is a file of `commands/`. Only this crate knows JSON output, colours and exit codes.

mod arguments;
mod commands;
mod downloads;
mod failure;
mod input;
mod model_folder;
mod output;
mod plot;
mod progress;
mod sample;
mod search;

use std::io::Write;
use std::process::ExitCode;

use attentive::tensor::check_environment;
use clap::Parser;

/// Every step of a training run asks for the same large buffers again. The system's allocator gives them back to the kernel
/// in between and pays for fresh pages each time; this one keeps them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = arguments::Arguments::parse();
    // What is still in the buffer may fail to be written, which would otherwise go unnoticed.
    let settings = check_environment().map_err(|problem| failure::Usage(problem).into());
    let done = settings
        .and_then(|()| commands::run(arguments))
        .and_then(|code| {
            std::io::stdout().flush()?;
            Ok(code)
        });
    match done {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    }
}
