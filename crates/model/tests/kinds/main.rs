//! The kinds of parts that no fixture model has, against transformers (`fixtures/parts`) and their definitions: positions and
//! mixtures of experts.

mod experts;
mod golden;
mod positions;
