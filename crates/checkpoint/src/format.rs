//! The formats: for each model family of Hugging Face a config reader, a config writer and a table of tensor names.

use serde_json::{Value, json};

use super::name_table::{NameTable, TensorNames, TensorRow};
use super::{
    Converted, LastHiddenState, SaveFormat, albert, attentive, bart, bert, bert_generation,
    big_bird, config_json, distilbert, encoder_decoder, gpt2, heads, llama, longformer, mistral,
    mixtral, qwen2, qwen3, reformer, roberta, t5, transformer_xl, vit,
};
use attentive_model::ModelConfig;
use attentive_model::feed_forward::FeedForwardConfig;

/// The Hugging Face format of one model family.
pub(super) struct Format {
    /// The `model_type` in config.json.
    pub model_type: &'static str,
    /// The `model_type` of the decoder, where config.json nests an encoder's and a decoder's config.
    pub decoder: Option<&'static str>,
    /// Reads config.json, without the heads.
    pub read: fn(&Value) -> Result<ModelConfig, String>,
    /// Writes config.json; None where the format clearly cannot express the model.
    pub write: fn(&ModelConfig) -> Option<Value>,
    /// Tensor names.
    pub table: NameTable,
    /// How many blocks a layer group has in tensor names; ALBERT's `inner_group_num`, else 1.
    pub group: fn(&Value) -> usize,
    /// What Hugging Face returns as the last of the hidden states.
    pub last_hidden_state: LastHiddenState,
    /// The model classes of the family; the first is the default where config.json has no `architectures`.
    pub architectures: &'static [ModelClass],
}

/// A model class of Hugging Face: a family with certain heads.
pub(super) struct ModelClass {
    /// Its name in `architectures`; empty for our own format.
    pub name: &'static str,
    /// Adds the heads to the config.
    pub heads: fn(&Value, &mut ModelConfig) -> Result<(), String>,
    /// The tensor names of the heads.
    pub rows: &'static [TensorRow],
    /// Whether tensors are saved without the prefix of the family, as Hugging Face does for base models.
    pub base_model: bool,
}

impl Format {
    /// The config of a config.json, and the model class that it names.
    pub fn parse(&self, json: &Value) -> Result<(ModelConfig, &'static ModelClass), String> {
        let mut config = (self.read)(json)?;
        let name = json["architectures"][0].as_str();
        let matches = |it: &&ModelClass| name.is_none_or(|name| it.name == name);
        let Some(class) = self.architectures.iter().find(matches) else {
            let known: Vec<&str> = self.architectures.iter().map(|it| it.name).collect();
            return Err(format!(
                "architectures: {} is not supported; supported are {}",
                json["architectures"][0],
                known.join(", ")
            ));
        };
        (class.heads)(json, &mut config)?;
        Ok((config, class))
    }

    /// The config.json of a model, if the format can express it.
    pub fn serialize(&'static self, config: &ModelConfig) -> Option<SerializedConfig> {
        let config = config.canonical();
        let expected = config.without_dropout();
        let mut json = (self.write)(&config)?;
        json["model_type"] = json!(self.model_type);
        config_json::write_labels(&mut json, &config);
        heads::write_pad_token(&mut json, &config);
        self.architectures.iter().find_map(|class| {
            if !class.name.is_empty() {
                json["architectures"] = json!([class.name]);
            }
            // Reading it back proves that nothing is lost. Dropout is not compared: it has no effect at inference.
            let (parsed, _) = self.parse(&json).ok()?;
            let same = parsed.canonical().without_dropout() == expected;
            same.then(|| SerializedConfig {
                saved: Converted {
                    model_type: self.model_type,
                    format: match class.name {
                        "" => SaveFormat::Attentive,
                        _ => SaveFormat::HuggingFace,
                    },
                },
                names: self.names(class, &config, &json),
                json: json.clone(),
            })
        })
    }

    /// The tensor names of a model class.
    pub fn names(
        &'static self,
        class: &ModelClass,
        config: &ModelConfig,
        json: &Value,
    ) -> TensorNames {
        TensorNames {
            table: &self.table,
            heads: class.rows,
            base_model: class.base_model,
            known: self.architectures.iter().flat_map(|it| it.rows).collect(),
            patches: config.stack.patches,
            head_width: config.stack.head_width(),
            group: (self.group)(json),
            untied: config.head.lm_head().is_some_and(|head| !head.tied),
            gated: is_gated(config),
            width: config.stack.width,
            ignores_heads: false,
        }
    }
}

/// A model's config in a certain format.
pub(super) struct SerializedConfig {
    pub saved: Converted,
    /// The tensor names.
    pub names: TensorNames,
    /// The config.json.
    pub json: Value,
}

/// In the order in which saving tries them; the last can express every model.
pub(super) static FORMATS: [Format; 25] = [
    gpt2::FORMAT,
    llama::FORMAT,
    mistral::FORMAT,
    qwen2::FORMAT,
    qwen3::FORMAT,
    mixtral::FORMAT,
    bert::FORMAT,
    roberta::FORMAT,
    longformer::FORMAT,
    big_bird::FORMAT,
    distilbert::FORMAT,
    albert::FORMAT,
    bert_generation::FORMAT,
    encoder_decoder::BERT_GENERATION,
    encoder_decoder::BERT,
    encoder_decoder::ROBERTA,
    encoder_decoder::GPT2,
    vit::VIT,
    vit::DEIT,
    bart::BART,
    bart::MARIAN,
    t5::FORMAT,
    reformer::FORMAT,
    transformer_xl::FORMAT,
    attentive::FORMAT,
];

/// The first format that can express a config; those of the model type `preferred` are tried first.
pub(super) fn choose_format(config: &ModelConfig, preferred: Option<&str>) -> SerializedConfig {
    let preferred = FORMATS.iter().filter(|it| preferred == Some(it.model_type));
    let found = preferred
        .chain(&FORMATS)
        .find_map(|format| format.serialize(config));
    found.expect("our own format can express every config")
}

/// Whether the first block's feed-forward layer is gated.
fn is_gated(config: &ModelConfig) -> bool {
    let first = config.stack.blocks.first();
    first.is_some_and(|block| matches!(block.feed_forward, FeedForwardConfig::Gated(_)))
}
