//! The presets of `model` are what is read from the published config.json files, and have as many parameters.
//!
//! Of the files, only the keys are repeated that differ from Hugging Face's defaults.

use attentive_checkpoint as checkpoint;
use attentive_model::models::*;
use attentive_model::{Model, ModelConfig, parameters};
use burn::tensor::Device;
use serde_json::{Value, json};

/// The config of a config.json.
fn read(config_json: &Value) -> ModelConfig {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), config_json.to_string()).unwrap();
    checkpoint::describe(folder.path()).unwrap().config
}

/// How many parameters a model has. They are not sampled.
fn count(config: &ModelConfig) -> usize {
    let model = Model::new(config, 0, &Device::flex()).unwrap();
    let shapes = parameters(&model).into_iter().map(|it| it.shape);
    shapes.map(|shape| shape.iter().product::<usize>()).sum()
}

fn check(preset: ModelConfig, parameters: usize, config_json: Value) {
    assert_eq!(
        preset.canonical(),
        read(&config_json).canonical(),
        "{config_json}"
    );
    assert_eq!(count(&preset), parameters, "{config_json}");
}

#[test]
fn gpt2() {
    let sized = |layers: usize, width: usize, heads: usize| {
        json!({
            "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
            "n_layer": layers, "n_embd": width, "n_head": heads,
        })
    };
    check(
        gpt2_small(),
        124_439_808,
        json!({ "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"] }),
    );
    check(gpt2_medium(), 354_823_168, sized(24, 1024, 16));
    check(gpt2_large(), 774_030_080, sized(36, 1280, 20));
    check(gpt2_xl(), 1_557_611_200, sized(48, 1600, 25));
}

#[test]
fn bert_and_its_descendants() {
    check(
        bert_base(),
        109_482_240,
        json!({ "model_type": "bert", "architectures": ["BertModel"] }),
    );
    check(
        bert_large(),
        335_141_888,
        json!({
            "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 1024,
            "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24,
        }),
    );
    check(
        roberta_base(),
        124_645_632,
        json!({
            "model_type": "roberta", "architectures": ["RobertaModel"], "layer_norm_eps": 1e-5,
            "max_position_embeddings": 514, "type_vocab_size": 1,
        }),
    );
    check(
        distilbert_base(),
        66_362_880,
        json!({ "model_type": "distilbert", "architectures": ["DistilBertModel"] }),
    );
    check(
        albert_base(),
        11_683_584,
        json!({
            "model_type": "albert", "architectures": ["AlbertModel"], "hidden_size": 768,
            "intermediate_size": 3072, "num_attention_heads": 12,
        }),
    );
}

#[test]
fn encoder_decoders() {
    check(
        t5_small(),
        60_506_624,
        json!({ "model_type": "t5", "architectures": ["T5ForConditionalGeneration"] }),
    );
    check(
        t5_base(),
        222_903_552,
        json!({
            "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 768,
            "d_ff": 3072, "num_layers": 12, "num_heads": 12,
        }),
    );
    // 139,420,416 and the bias of the head, which is not a parameter in transformers.
    check(
        bart_base(),
        139_420_416 + 50_265,
        json!({
            "model_type": "bart", "architectures": ["BartForConditionalGeneration"],
            "d_model": 768, "attention_dropout": 0.1,
            "encoder_layers": 6, "encoder_attention_heads": 12, "encoder_ffn_dim": 3072,
            "decoder_layers": 6, "decoder_attention_heads": 12, "decoder_ffn_dim": 3072,
        }),
    );
    // Hugging Face has no such models. The paper counts 65 and 213 million.
    assert_eq!(count(&transformer_base()), 63_082_496);
    assert_eq!(count(&transformer_big()), 214_245_376);
}

#[test]
fn image_models() {
    check(
        vit_base(),
        86_567_656,
        json!({
            "model_type": "vit", "architectures": ["ViTForImageClassification"], "num_labels": 1000,
        }),
    );
    check(
        deit_base_distilled(),
        87_338_192,
        json!({
            "model_type": "deit", "architectures": ["DeiTForImageClassificationWithTeacher"],
            "num_labels": 1000,
        }),
    );
}

#[test]
fn llamas() {
    check(
        llama(LlamaSizes::default()),
        6_738_415_616,
        json!({ "model_type": "llama", "architectures": ["LlamaForCausalLM"] }),
    );
    // TinyLlama.
    let sizes = LlamaSizes {
        width: 2048,
        key_value_heads: 4,
        hidden_width: 5632,
        layers: 22,
        ..LlamaSizes::default()
    };
    check(
        llama(sizes),
        1_100_048_384,
        json!({
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048,
            "num_key_value_heads": 4, "intermediate_size": 5632, "num_hidden_layers": 22,
        }),
    );
}
