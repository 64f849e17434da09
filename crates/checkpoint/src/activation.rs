//! Activations by their Hugging Face names.

use attentive_model::Activation;

/// The activation with this Hugging Face name.
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

/// The Hugging Face name of an activation.
pub fn activation_name(activation: Activation) -> &'static str {
    match activation {
        Activation::Relu => "relu",
        Activation::Gelu => "gelu",
        Activation::GeluTanh => "gelu_new",
        Activation::Silu => "silu",
        Activation::Sigmoid => "sigmoid",
    }
}
