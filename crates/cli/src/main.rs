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
mod save_path;
mod vectors;

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use attentive::memory::BoundedAllocator;
use attentive::tensor::{check_environment, set_threads};
use attentive::text::panics_are_errors;
use clap::Parser;

use output::Verbosity;

/// Every training step allocates the same large buffers. The system allocator returns them to the kernel in between and
/// page-faults on fresh ones each time; mimalloc keeps them.
#[global_allocator]
static ALLOCATOR: BoundedAllocator<mimalloc::MiMalloc> = BoundedAllocator(mimalloc::MiMalloc);

fn main() -> ExitCode {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panics_are_errors() {
            report(panic);
        }
    }));
    let arguments = arguments::Arguments::parse();
    let global = arguments.global;
    output::set_verbosity(match (global.quiet, global.verbose) {
        (true, _) => Verbosity::Quiet,
        (_, true) => Verbosity::Verbose,
        _ => Verbosity::Normal,
    });
    if let Some(threads) = global.threads {
        set_threads(usize::from(threads));
    }
    let settings = check_environment().map_err(|problem| failure::Usage(problem).into());
    let done = settings
        .and_then(|()| {
            let started = Instant::now();
            let code = commands::run(arguments)?;
            output::verbose(format_args!(
                "done in {:.2} s",
                started.elapsed().as_secs_f64()
            ));
            Ok(code)
        })
        .and_then(|code| {
            // Reports a write error of the last buffer, which would otherwise go unnoticed.
            std::io::stdout().flush()?;
            Ok(code)
        });
    match done {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    }
}
