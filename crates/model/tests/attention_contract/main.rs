//! What every attention must hold to, whatever its kind: one suite of checks over every example × every role that builds.
//!
//! `examples` lists the configs, `checks` the checks of each, `equivalences` where two kinds must agree, `sparse`, `reformer` and
//! `transformer_xl` what is specific to these kinds, `registered` kinds from outside of the library, `golden` compares with
//! independent implementations, `support_table` and `docs_page` check docs/attention.md, and `refusals` the messages for invalid
//! configs.

mod checks;
#[path = "../../../../examples/own_attention/differential.rs"]
mod differential;
mod docs_page;
mod equivalences;
mod examples;
mod golden;
mod reformer;
mod refusals;
mod registered;
mod sparse;
mod support_table;
mod test_layer;
mod transformer_xl;
