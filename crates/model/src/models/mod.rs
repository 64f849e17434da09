//! Settings of well-known architectures, to build or to start from. (`checkpoint` reads those of a checkpoint's config.json.)
//!
//! ```
//! use attentive_model::models::{bert_base, gpt2_small};
//! use attentive_model::positions::RotaryConfig;
//!
//! let bert = bert_base();
//! let gpt2_with_rotary_positions = gpt2_small().with_positions(RotaryConfig::default());
//! # bert.validate().unwrap();
//! # gpt2_with_rotary_positions.validate().unwrap();
//! ```

mod bart;
mod bert;
mod gpt2;
mod llama;
mod t5;
mod transformer;
mod vit;

pub use bart::bart_base;
pub use bert::{albert_base, bert_base, bert_large, distilbert_base, roberta_base};
pub use gpt2::{gpt2_large, gpt2_medium, gpt2_small, gpt2_xl};
pub use llama::{LlamaSizes, llama};
pub use t5::{t5_base, t5_small};
pub use transformer::{TransformerSizes, transformer, transformer_base, transformer_big};
pub use vit::{deit_base_distilled, vit_base};

use crate::attention::FullAttentionConfig;

/// Full attention with all biases.
fn attention_with_biases(heads: usize) -> FullAttentionConfig {
    FullAttentionConfig::new(heads)
        .with_bias(true)
        .with_output_bias(true)
}
