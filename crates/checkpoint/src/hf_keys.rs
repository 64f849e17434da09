//! Hugging Face's keys for our settings, so that error messages name the keys of config.json.

use serde_json::Value;

use attentive_model::ConfigError;

/// A setting of a model or of a block, and the keys that families have for it.
#[rustfmt::skip] // Keeps the columns aligned.
const KEYS: &[(&str, &[&str])] = &[
    ("vocabulary",                &["vocab_size"]),
    ("length",                    &["max_position_embeddings", "n_positions", "max_position"]),
    ("width",                     &["hidden_size", "n_embd", "d_model", "dim"]),
    ("repeat",                    &["encoder_layers", "decoder_layers", "num_decoder_layers", "num_hidden_layers", "n_layer", "n_layers", "num_layers"]),
    ("order",                     &["num_hidden_layers"]),
    ("attention.heads",           &["decoder_attention_heads", "encoder_attention_heads", "num_attention_heads", "n_head", "n_heads", "num_heads"]),
    ("cross.heads",               &["decoder_attention_heads", "num_heads", "num_attention_heads"]),
    ("attention.key_value_heads", &["num_key_value_heads"]),
    ("attention.head_width",      &["head_dim", "d_kv", "d_head", "attention_head_size"]),
    ("attention.window",          &["sliding_window", "attention_window"]),
    ("attention.memory",          &["mem_len"]),
    ("feed_forward.hidden_width", &["decoder_ffn_dim", "encoder_ffn_dim", "intermediate_size", "n_inner", "hidden_dim", "d_ff", "d_inner"]),
    ("feed_forward.experts",      &["num_local_experts"]),
    ("feed_forward.active",       &["num_experts_per_tok"]),
    ("norm.epsilon",              &["layer_norm_eps", "rms_norm_eps", "layer_norm_epsilon"]),
    ("final_norm.epsilon",        &["layer_norm_eps", "rms_norm_eps", "layer_norm_epsilon"]),
    ("patches.size",              &["patch_size"]),
    ("patches.height",            &["image_size"]),
    ("patches.width",             &["image_size"]),
    ("patches.channels",          &["num_channels"]),
];

/// The error message about a setting, with the file's key where one clearly means the setting.
pub(super) fn error_message(json: &Value, error: &ConfigError) -> String {
    let ConfigError { field, problem } = error;
    let (side, within) = match field.strip_prefix("encoder.") {
        Some(within) => (Some("encoder"), within),
        None => (json.get("decoder").map(|_| "decoder"), field.as_str()),
    };
    // An encoder-decoder pair nests the config of each of the two.
    let nested = side.and_then(|side| Some((format!("{side}."), json.get(side)?)));
    let (prefix, json) = nested.unwrap_or_else(|| (String::new(), json));
    let of_block = within.strip_prefix("blocks.");
    let of_block = of_block.and_then(|path| Some(path.split_once('.')?.1));
    let setting = of_block.unwrap_or(within);
    let other = match field.starts_with("encoder.") {
        true => "decoder",
        false => "encoder",
    };
    let present = |key: &&&str| !key.contains(other) && json.get(**key).is_some();
    let mut rows = KEYS.iter().filter(|(name, _)| *name == setting);
    let key = rows.find_map(|(_, keys)| keys.iter().find(present));
    match key {
        Some(key) => format!("{prefix}{key} (here {field}): {problem}"),
        None => format!("{field}: {problem}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(json: &Value, field: &str) -> String {
        let error = ConfigError {
            field: field.to_owned(),
            problem: "no".to_owned(),
        };
        error_message(json, &error)
    }

    #[test]
    fn settings_are_called_what_the_file_calls_them() {
        let json = json!({ "n_embd": 0, "n_head": 7, "num_experts_per_tok": 5 });
        for (field, expected) in [
            ("width", "n_embd (here width): no"),
            (
                "blocks.0.attention.heads",
                "n_head (here blocks.0.attention.heads): no",
            ),
            (
                "blocks.0.feed_forward.active",
                "num_experts_per_tok (here blocks.0.feed_forward.active): no",
            ),
            ("embedding.width", "embedding.width: no"),
            ("positions", "positions: no"),
        ] {
            assert_eq!(message(&json, field), expected);
        }
    }

    #[test]
    fn encoder_and_decoder_are_distinguished() {
        let both = json!({
            "encoder_layers": 2, "decoder_layers": 0, "encoder_ffn_dim": 0, "decoder_ffn_dim": 8, "num_hidden_layers": 2,
        });
        let pair = json!({ "encoder": { "hidden_size": 0 }, "decoder": { "n_embd": 0 } });
        for (json, field, expected) in [
            (
                &both,
                "blocks.0.repeat",
                "decoder_layers (here blocks.0.repeat): no",
            ),
            (
                &both,
                "encoder.blocks.0.repeat",
                "encoder_layers (here encoder.blocks.0.repeat): no",
            ),
            (
                &both,
                "encoder.blocks.0.feed_forward.hidden_width",
                "encoder_ffn_dim (here encoder.blocks.0.feed_forward.hidden_width): no",
            ),
            (
                &pair,
                "encoder.width",
                "encoder.hidden_size (here encoder.width): no",
            ),
            (&pair, "width", "decoder.n_embd (here width): no"),
        ] {
            assert_eq!(message(json, field), expected);
        }
    }
}
