//! Tests of the built program, as a user runs it: what it prints, what it leaves on disk, how it ends.

mod classifiers;
mod forward;
mod gguf;
mod hub;
mod marian;
mod program;
mod recurrent;
mod resume;
mod screens;
mod settings;
mod tasks;
mod tokenize;
mod training;
mod translate;
