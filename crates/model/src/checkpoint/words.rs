//! Words that several of Hugging Face's formats share, beside ours.

use crate::{Activation, HeadConfig};

/// Hugging Face's name of an activation, as ours.
pub fn activation(name: &str) -> Result<Activation, String> {
    match name {
        "relu" => Ok(Activation::Relu),
        "gelu" => Ok(Activation::Gelu),
        "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Ok(Activation::GeluTanh),
        "silu" | "swish" => Ok(Activation::Silu),
        "sigmoid" => Ok(Activation::Sigmoid),
        other => Err(format!(
            "activation {other:?} is not supported; supported are relu, gelu, gelu_new, silu, sigmoid"
        )),
    }
}

/// Our activation by Hugging Face's name.
pub fn activation_name(kind: Activation) -> &'static str {
    match kind {
        Activation::Relu => "relu",
        Activation::Gelu => "gelu",
        Activation::GeluTanh => "gelu_new",
        Activation::Silu => "silu",
        Activation::Sigmoid => "sigmoid",
    }
}

/// Whether the head is tied, in our word.
pub fn head(tied: bool) -> HeadConfig {
    match tied {
        true => HeadConfig::Tied,
        false => HeadConfig::Separate,
    }
}
