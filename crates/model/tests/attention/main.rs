//! What every attention must hold to, whatever its kind: one suite of checks over every example × every role that builds.
//!
//! `examples` lists the settings, `checks` what is asked of each, `limits` where two kinds must agree, `sparse` what only
//! sparse kinds do, `golden` the values of independent implementations, `support` and `page` what docs/attention.md says,
//! `refused` what is not built and why.

mod checks;
mod examples;
mod golden;
mod limits;
mod page;
mod reformer;
mod refused;
mod setting;
mod sparse;
mod support;
mod transformer_xl;
