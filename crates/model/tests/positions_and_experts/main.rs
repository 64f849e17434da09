//! Positions and mixtures of experts that no fixture model has, against transformers (`fixtures/parts`) and their definitions.

mod experts;
mod golden;
mod positions;
