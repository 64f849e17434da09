//! Tests of the built program, as a user runs it: its output, its files, its exit codes.

mod classifiers;
#[cfg(unix)]
mod documented_commands;
mod forward;
mod gguf;
mod hub;
mod marian;
mod program;
mod recurrent;
mod resume;
mod settings;
mod tasks;
mod tokenize;
mod training;
mod transcripts;
mod translate;
