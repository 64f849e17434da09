//! Transformer-XL in the format of transformers 4: a memory of earlier segments, adaptive embedding and softmax.
//! Dai et al. 2019.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::config_json::typed;
use super::heads::{base_model, lm_head, refuse_unless};
use super::name_table::{NameTable, Section, TensorRow, Transform::*};
use super::{Format, LastHiddenState};
use attentive_model::attention::{AttentionConfig, MemoryStart, TransformerXlConfig};
use attentive_model::block::{BlockConfig, NormPlacement};
use attentive_model::embeddings::{
    AdaptiveEmbeddingConfig, AdaptiveSoftmaxConfig, EmbeddingConfig,
};
use attentive_model::feed_forward::{FeedForwardConfig, PlainConfig};
use attentive_model::head::HeadConfig;
use attentive_model::positions::PositionsConfig;
use attentive_model::{Activation, ModelConfig, NormConfig, StackConfig};

pub(super) const FORMAT: Format = Format {
    model_type: "transfo-xl",
    decoder: None,
    read,
    write,
    table: NameTable {
        sections: &[Section {
            model_prefix: "stack.",
            file_prefix: "transformer.",
            rows: ROWS,
        }],
        optional_prefix: "transformer.",
        // A computed buffer, and copies of tied weights.
        ignored: &[
            "pos_emb.inv_freq",
            "crit.out_layers.0.weight",
            "crit.out_layers.1.weight",
            "crit.out_layers.2.weight",
            "crit.out_layers.3.weight",
            "crit.out_layers.4.weight",
            "crit.out_projs.0",
            "crit.out_projs.1",
            "crit.out_projs.2",
            "crit.out_projs.3",
            "crit.out_projs.4",
        ],
        renamed: &[],
        aliases: &[],
        zero_if_missing: &[],
    },
    group: |_| 1,
    last_hidden_state: LastHiddenState::AfterFinalNorm,
    architectures: &[
        lm_head("TransfoXLLMHeadModel", LM_HEAD_ROWS),
        base_model("TransfoXLModel"),
    ],
};

#[rustfmt::skip] // Keeps the columns aligned.
const ROWS: &[TensorRow] = &[
    ("",                                               "pos_emb.inv_freq",                          InverseFrequencies),
    ("clusters.{layer}.table.weight",                  "word_emb.emb_layers.{layer}.weight",        Same),
    ("clusters.{layer}.projection.weight",             "word_emb.emb_projs.{layer}",                Same),
    ("blocks.{layer}.attention.body.query.weight",     "layers.{layer}.dec_attn.qkv_net.weight",    Third(0)),
    ("blocks.{layer}.attention.body.key.weight",       "layers.{layer}.dec_attn.qkv_net.weight",    Third(1)),
    ("blocks.{layer}.attention.body.value.weight",     "layers.{layer}.dec_attn.qkv_net.weight",    Third(2)),
    ("blocks.{layer}.attention.body.positions.weight", "layers.{layer}.dec_attn.r_net.weight",      Same),
    ("blocks.{layer}.attention.body.content_bias",     "layers.{layer}.dec_attn.r_w_bias",          Same),
    ("blocks.{layer}.attention.body.position_bias",    "layers.{layer}.dec_attn.r_r_bias",          Same),
    ("blocks.{layer}.attention.body.output.weight",    "layers.{layer}.dec_attn.o_net.weight",      Same),
    ("blocks.{layer}.attention.norm_after.weight",     "layers.{layer}.dec_attn.layer_norm.weight", Same),
    ("blocks.{layer}.attention.norm_after.bias",       "layers.{layer}.dec_attn.layer_norm.bias",   Same),
    ("blocks.{layer}.feed_forward.body.up.weight",     "layers.{layer}.pos_ff.CoreNet.0.weight",    Same),
    ("blocks.{layer}.feed_forward.body.up.bias",       "layers.{layer}.pos_ff.CoreNet.0.bias",      Same),
    ("blocks.{layer}.feed_forward.body.down.weight",   "layers.{layer}.pos_ff.CoreNet.3.weight",    Same),
    ("blocks.{layer}.feed_forward.body.down.bias",     "layers.{layer}.pos_ff.CoreNet.3.bias",      Same),
    ("blocks.{layer}.feed_forward.norm_after.weight",  "layers.{layer}.pos_ff.layer_norm.weight",   Same),
    ("blocks.{layer}.feed_forward.norm_after.bias",    "layers.{layer}.pos_ff.layer_norm.bias",     Same),
];

#[rustfmt::skip]
const LM_HEAD_ROWS: &[TensorRow] = &[
    ("adaptive.gate.weight",                 "crit.cluster_weight",          Same),
    ("adaptive.gate.bias",                   "crit.cluster_bias",            Same),
    ("adaptive.clusters.{layer}.bias",       "crit.out_layers.{layer}.bias", Same),
    ("adaptive.clusters.{layer}.projection", "crit.out_projs.{layer}",       Same),
];

/// The keys of config.json that affect the output. Other keys are ignored.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct TransfoXlConfig {
    vocab_size: usize,
    cutoffs: Vec<usize>,
    d_model: usize,
    d_embed: usize,
    n_head: usize,
    d_head: usize,
    d_inner: usize,
    div_val: usize,
    n_layer: usize,
    mem_len: usize,
    clamp_len: i64,
    same_length: bool,
    pre_lnorm: bool,
    untie_r: bool,
    attn_type: usize,
    dropout: f64,
    dropatt: f64,
    init_std: f64,
    layer_norm_epsilon: f64,
    tie_word_embeddings: bool,
    tie_projs: Option<Vec<bool>>,
}

/// Hugging Face leaves out keys with default values, which are those of the WikiText-103 model.
impl Default for TransfoXlConfig {
    fn default() -> Self {
        Self {
            vocab_size: 267_735,
            cutoffs: vec![20_000, 40_000, 200_000],
            d_model: 1024,
            d_embed: 1024,
            n_head: 16,
            d_head: 64,
            d_inner: 4096,
            div_val: 4,
            n_layer: 18,
            mem_len: 1600,
            clamp_len: 1000,
            same_length: true,
            pre_lnorm: false,
            untie_r: true,
            attn_type: 0,
            dropout: 0.1,
            dropatt: 0.0,
            init_std: 0.02,
            layer_norm_epsilon: 1e-5,
            tie_word_embeddings: true,
            tie_projs: None,
        }
    }
}

/// With a memory the length has no limit, but a config needs one.
const LENGTH: usize = 1 << 16;

impl TransfoXlConfig {
    /// Refuses unsupported settings.
    fn validate(&self) -> Result<(), String> {
        refuse_unless(&[
            ("pre_lnorm", self.pre_lnorm, false),
            ("untie_r", self.untie_r, true),
            ("tie_word_embeddings", self.tie_word_embeddings, true),
        ])?;
        let sizes = [
            ("attn_type", self.attn_type, self.attn_type == 0, "0"),
            ("div_val", self.div_val, self.div_val > 1, "2 or more"),
            ("mem_len", self.mem_len, self.mem_len > 0, "1 or more"),
        ];
        match sizes.iter().find(|(_, _, supported, _)| !supported) {
            Some((name, value, _, needed)) => Err(format!(
                "{name} {value} is not supported; it must be {needed}"
            )),
            None => Ok(()),
        }
    }
}

fn read(json: &Value) -> Result<ModelConfig, String> {
    let hf: TransfoXlConfig = typed(json, "")?;
    hf.validate()?;
    let norm = NormConfig::Layer {
        epsilon: hf.layer_norm_epsilon,
    };
    let attention = AttentionConfig::TransformerXl(TransformerXlConfig {
        memory: hf.mem_len,
        start: MemoryStart::Zeros,
        window: hf.same_length.then_some(hf.mem_len),
        max_distance: usize::try_from(hf.clamp_len).ok().filter(|it| *it > 0),
        heads: hf.n_head,
        key_value_heads: None,
        head_width: Some(hf.d_head),
        dropout: hf.dropatt,
        bias: false,
        output_bias: false,
        head_norm: None,
    });
    let clusters = hf.cutoffs.len() + 1;
    let tied_projections = hf
        .tie_projs
        .unwrap_or_else(|| (0..clusters).map(|index| index > 0).collect());
    let head = HeadConfig::Adaptive(AdaptiveSoftmaxConfig { tied_projections });
    let stack = StackConfig {
        embedding: EmbeddingConfig {
            adaptive: Some(AdaptiveEmbeddingConfig {
                cutoffs: hf.cutoffs,
                width: hf.d_embed,
                divisor: hf.div_val,
            }),
            scaled: Some(true),
            ..EmbeddingConfig::default()
        },
        embedding_dropout: hf.dropout,
        init_std: hf.init_std,
        positions: PositionsConfig::None {},
        blocks: vec![BlockConfig {
            repeat: hf.n_layer,
            dropout: hf.dropout,
            placement: NormPlacement::After,
            norm,
            attention,
            cross: None,
            feed_forward: FeedForwardConfig::Plain(PlainConfig {
                hidden_width: hf.d_inner,
                activation: Activation::Relu,
                bias: true,
            }),
        }],
        ..StackConfig::new(hf.vocab_size, LENGTH, hf.d_model)
    };
    Ok(ModelConfig::new(stack).with_head(head))
}

fn write(config: &ModelConfig) -> Option<Value> {
    let [block] = config.stack.blocks.as_slice() else {
        return None;
    };
    let AttentionConfig::TransformerXl(attention) = &block.attention else {
        return None;
    };
    let clusters = config.stack.embedding.adaptive.as_ref()?;
    let hf = TransfoXlConfig {
        vocab_size: config.stack.vocabulary,
        cutoffs: clusters.cutoffs.clone(),
        d_model: config.stack.width,
        d_embed: clusters.width,
        n_head: attention.heads,
        d_head: attention.heads_config().head_width(config.stack.width),
        d_inner: block.feed_forward.hidden_width(),
        div_val: clusters.divisor,
        n_layer: block.repeat,
        mem_len: attention.memory,
        clamp_len: attention.max_distance.map_or(-1, |it| it as i64),
        same_length: attention.window.is_some(),
        dropout: block.dropout,
        dropatt: attention.dropout,
        init_std: config.stack.init_std,
        layer_norm_epsilon: block.norm.epsilon(),
        tie_projs: match &config.head {
            HeadConfig::Adaptive(head) => Some(head.tied_projections.clone()),
            _ => None,
        },
        ..TransfoXlConfig::default()
    };
    let mut json = serde_json::to_value(hf).ok()?;
    json.as_object_mut()?.retain(|_, value| !value.is_null());
    Some(json)
}
