//! Reformer in Hugging Face's format: reversible residual streams, axial positions, and layers of local or LSH attention.
//! Kitaev et al. 2020.
//!
//! Files do not have the LSH rotations: they are sampled from `hash_seed` by PyTorch's generator, the same in all layers.
//! Without a seed Hugging Face samples new ones in every forward pass; we use seed 0. `lm_head.bias` is added, as in
//! transformers 4; version 5 omits it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::activation::{activation, activation_name};
use super::config_json::typed;
use super::heads::{base_model, refuse_unless};
use super::name_table::{NameTable, Section, TensorRow, Transform::*};
use super::{Format, LastHiddenState, ModelClass};
use attentive_model::attention::{
    AttentionConfig, ChunksConfig, PaddingConfig, ReformerConfig, Role, RotationGenerator,
};
use attentive_model::block::{BlockConfig, NormPlacement, ResidualConfig};
use attentive_model::feed_forward::{FeedForwardConfig, PlainConfig};
use attentive_model::head::{HeadConfig, LmHeadConfig};
use attentive_model::positions::{AxialConfig, LearnedConfig, PositionsConfig};
use attentive_model::{ModelConfig, NormConfig, StackConfig};

pub(super) const FORMAT: Format = Format {
    model_type: "reformer",
    decoder: None,
    read,
    write,
    table: NameTable {
        sections: &[Section {
            model_prefix: "stack.",
            file_prefix: "reformer.",
            rows: ROWS,
        }],
        optional_prefix: "reformer.",
        // A copy of a tied bias, and buffers of old versions.
        ignored: &[
            "lm_head.decoder.bias",
            "mask_value_float16",
            "mask_value_float32",
        ],
        renamed: &[],
        aliases: &[],
        zero_if_missing: &[],
    },
    group: |_| 1,
    last_hidden_state: LastHiddenState::BeforeFinalNorm,
    architectures: &[
        ModelClass {
            name: "ReformerModelWithLMHead",
            heads: |_, config| lm_head(config, Role::Causal),
            rows: LM_HEAD_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "ReformerForMaskedLM",
            heads: |_, config| lm_head(config, Role::Bidirectional),
            rows: LM_HEAD_ROWS,
            base_model: false,
        },
        base_model("ReformerModel"),
    ],
};

#[rustfmt::skip] // Keeps the columns aligned.
const ROWS: &[TensorRow] = &[
    ("tokens.weight",                                  "embeddings.word_embeddings.weight",                                Same),
    ("positions.weight",                               "embeddings.position_embeddings.embedding.weight",                  Same),
    ("axial.rows.weight",                              "embeddings.position_embeddings.weights.0",                         Unsqueeze1),
    ("axial.columns.weight",                           "embeddings.position_embeddings.weights.1",                         Unsqueeze0),
    ("blocks.{layer}.attention.norm_before.weight",    "encoder.layers.{layer}.attention.layer_norm.weight",               Same),
    ("blocks.{layer}.attention.norm_before.bias",      "encoder.layers.{layer}.attention.layer_norm.bias",                 Same),
    ("blocks.{layer}.attention.body.query_key.weight", "encoder.layers.{layer}.attention.self_attention.query_key.weight", Same),
    ("blocks.{layer}.attention.body.query.weight",     "encoder.layers.{layer}.attention.self_attention.query.weight",     Same),
    ("blocks.{layer}.attention.body.key.weight",       "encoder.layers.{layer}.attention.self_attention.key.weight",       Same),
    ("blocks.{layer}.attention.body.value.weight",     "encoder.layers.{layer}.attention.self_attention.value.weight",     Same),
    ("blocks.{layer}.attention.body.output.weight",    "encoder.layers.{layer}.attention.output.dense.weight",             Same),
    ("blocks.{layer}.attention.body.rotations",        "",                                                                 FromSeed),
    ("blocks.{layer}.feed_forward.norm_before.weight", "encoder.layers.{layer}.feed_forward.layer_norm.weight",            Same),
    ("blocks.{layer}.feed_forward.norm_before.bias",   "encoder.layers.{layer}.feed_forward.layer_norm.bias",              Same),
    ("blocks.{layer}.feed_forward.body.up.weight",     "encoder.layers.{layer}.feed_forward.dense.dense.weight",           Same),
    ("blocks.{layer}.feed_forward.body.up.bias",       "encoder.layers.{layer}.feed_forward.dense.dense.bias",             Same),
    ("blocks.{layer}.feed_forward.body.down.weight",   "encoder.layers.{layer}.feed_forward.output.dense.weight",          Same),
    ("blocks.{layer}.feed_forward.body.down.bias",     "encoder.layers.{layer}.feed_forward.output.dense.bias",            Same),
    ("final_norm.weight",                              "encoder.layer_norm.weight",                                        Same),
    ("final_norm.bias",                                "encoder.layer_norm.bias",                                          Same),
];

#[rustfmt::skip]
const LM_HEAD_ROWS: &[TensorRow] = &[
    ("lm_head.weight", "lm_head.decoder.weight", Same),
    ("lm_head.bias",   "lm_head.bias",           Same),
];

/// The LM head; the model class determines whether attention must be causal.
fn lm_head(config: &mut ModelConfig, role: Role) -> Result<(), String> {
    let causal = role == Role::Causal;
    refuse_unless(&[("is_decoder", config.stack.role == Role::Causal, causal)])?;
    config.head = HeadConfig::LmHead(LmHeadConfig {
        bias: true,
        ..LmHeadConfig::default()
    });
    Ok(())
}

/// The keys of config.json that affect the output. Other keys are ignored.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct HfReformerConfig {
    vocab_size: usize,
    hidden_size: usize,
    feed_forward_size: usize,
    num_attention_heads: usize,
    attention_head_size: usize,
    max_position_embeddings: usize,
    attn_layers: Vec<LayerType>,
    axial_pos_embds: bool,
    axial_pos_shape: Vec<usize>,
    axial_pos_embds_dim: Vec<usize>,
    local_attn_chunk_length: usize,
    local_num_chunks_before: usize,
    local_num_chunks_after: usize,
    local_attention_probs_dropout_prob: f64,
    lsh_attn_chunk_length: usize,
    lsh_num_chunks_before: usize,
    lsh_num_chunks_after: usize,
    lsh_attention_probs_dropout_prob: f64,
    num_buckets: Option<Buckets>,
    num_hashes: usize,
    hash_seed: u64,
    hidden_act: String,
    hidden_dropout_prob: f64,
    layer_norm_eps: f64,
    initializer_range: f64,
    is_decoder: bool,
    tie_word_embeddings: bool,
}

/// The attention of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LayerType {
    Local,
    Lsh,
}

/// The number of buckets, or its factors.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Buckets {
    Count(usize),
    Factors(Vec<usize>),
}

/// Hugging Face leaves out keys with default values.
impl Default for HfReformerConfig {
    fn default() -> Self {
        Self {
            vocab_size: 320,
            hidden_size: 256,
            feed_forward_size: 512,
            num_attention_heads: 12,
            attention_head_size: 64,
            max_position_embeddings: 4096,
            attn_layers: [LayerType::Local, LayerType::Lsh].repeat(3),
            axial_pos_embds: true,
            axial_pos_shape: vec![64, 64],
            axial_pos_embds_dim: vec![64, 192],
            local_attn_chunk_length: 64,
            local_num_chunks_before: 1,
            local_num_chunks_after: 0,
            local_attention_probs_dropout_prob: 0.05,
            lsh_attn_chunk_length: 64,
            lsh_num_chunks_before: 1,
            lsh_num_chunks_after: 0,
            lsh_attention_probs_dropout_prob: 0.0,
            num_buckets: None,
            num_hashes: 1,
            hash_seed: 0,
            hidden_act: "relu".to_owned(),
            hidden_dropout_prob: 0.05,
            layer_norm_eps: 1e-12,
            initializer_range: 0.02,
            is_decoder: false,
            tie_word_embeddings: false,
        }
    }
}

impl HfReformerConfig {
    fn read(json: &Value) -> Result<Self, String> {
        let given = json.as_object().cloned().unwrap_or_default();
        // null stands for the default, as None does in Python.
        let given = given.into_iter().filter(|(_, value)| !value.is_null());
        let hf: Self = typed(&Value::Object(given.collect()), "")?;
        refuse_unless(&[("tie_word_embeddings", hf.tie_word_embeddings, false)])?;
        Ok(hf)
    }

    /// Positions and their length.
    fn positions(&self) -> Result<(PositionsConfig, usize), String> {
        if !self.axial_pos_embds {
            let positions = PositionsConfig::Learned(LearnedConfig::default());
            return Ok((positions, self.max_position_embeddings));
        }
        let pair = |name: &str, values: &[usize]| {
            <[usize; 2]>::try_from(values)
                .map_err(|_| format!("{name} {values:?} is not supported; it must be two numbers"))
        };
        let shape = pair("axial_pos_shape", &self.axial_pos_shape)?;
        let widths = pair("axial_pos_embds_dim", &self.axial_pos_embds_dim)?;
        let length = shape[0].saturating_mul(shape[1]);
        Ok((
            PositionsConfig::Axial(AxialConfig { shape, widths }),
            length.min(self.max_position_embeddings),
        ))
    }

    /// Where chunks have two sizes, all layers pad to the least common multiple.
    fn padding(&self) -> Option<PaddingConfig> {
        let [local, lsh] = [self.local_attn_chunk_length, self.lsh_attn_chunk_length];
        let both = [LayerType::Local, LayerType::Lsh]
            .iter()
            .all(|it| self.attn_layers.contains(it));
        (both && local != lsh && local > 0 && lsh > 0).then(|| PaddingConfig {
            multiple_of: (local / gcd(local, lsh)).saturating_mul(lsh),
            beyond: local.min(lsh),
        })
    }

    fn attention(&self, layer: LayerType) -> Result<AttentionConfig, String> {
        let (heads, head_width) = (self.num_attention_heads, Some(self.attention_head_size));
        let padding = self.padding();
        if layer == LayerType::Local {
            return Ok(AttentionConfig::Chunks(ChunksConfig {
                chunk: self.local_attn_chunk_length,
                chunks_before: self.local_num_chunks_before,
                chunks_after: self.local_num_chunks_after,
                padding,
                heads,
                key_value_heads: None,
                head_width,
                dropout: self.local_attention_probs_dropout_prob,
                bias: false,
                output_bias: false,
                head_norm: None,
            }));
        }
        let (buckets, factors) = match &self.num_buckets {
            Some(Buckets::Count(buckets)) => (*buckets, Vec::new()),
            Some(Buckets::Factors(factors)) => match factors.as_slice() {
                [one] => (*one, Vec::new()),
                all => (
                    all.iter().copied().fold(1, usize::saturating_mul),
                    all.to_vec(),
                ),
            },
            None => {
                return Err(
                    "num_buckets null is not supported; it must be a number or a list".to_owned(),
                );
            }
        };
        Ok(AttentionConfig::Reformer(ReformerConfig {
            buckets,
            factors,
            hashes: self.num_hashes,
            chunk: self.lsh_attn_chunk_length,
            chunks_before: self.lsh_num_chunks_before,
            chunks_after: self.lsh_num_chunks_after,
            seed: self.hash_seed,
            generator: RotationGenerator::Torch,
            padding,
            heads,
            key_value_heads: None,
            head_width,
            dropout: self.lsh_attention_probs_dropout_prob,
            bias: false,
            output_bias: false,
            head_norm: None,
        }))
    }
}

fn gcd(one: usize, other: usize) -> usize {
    match other {
        0 => one,
        other => gcd(other, one % other),
    }
}

fn read(json: &Value) -> Result<ModelConfig, String> {
    let hf = HfReformerConfig::read(json)?;
    let norm = NormConfig::Layer {
        epsilon: hf.layer_norm_eps,
    };
    let (positions, length) = hf.positions()?;
    let feed_forward = FeedForwardConfig::Plain(PlainConfig {
        hidden_width: hf.feed_forward_size,
        activation: activation(&hf.hidden_act)?,
        bias: true,
    });
    let block = |layer: &LayerType| {
        Ok(BlockConfig {
            repeat: 1,
            dropout: hf.hidden_dropout_prob,
            placement: NormPlacement::Before,
            norm: norm.clone(),
            attention: hf.attention(*layer)?,
            cross: None,
            feed_forward: feed_forward.clone(),
        })
    };
    let blocks: Result<Vec<_>, String> = hf.attn_layers.iter().map(block).collect();
    let stack = StackConfig {
        role: match hf.is_decoder {
            true => Role::Causal,
            false => Role::Bidirectional,
        },
        embedding_dropout: hf.hidden_dropout_prob,
        init_std: hf.initializer_range,
        positions,
        residual: ResidualConfig::Reversible,
        final_norm: Some(norm.clone()),
        blocks: blocks?,
        ..StackConfig::new(hf.vocab_size, length, hf.hidden_size)
    };
    Ok(ModelConfig::new(stack))
}

fn write(config: &ModelConfig) -> Option<Value> {
    let block = config.stack.blocks.first()?;
    let heads = block.attention.heads()?;
    let FeedForwardConfig::Plain(feed_forward) = &block.feed_forward else {
        return None;
    };
    let mut hf = HfReformerConfig {
        vocab_size: config.stack.vocabulary,
        hidden_size: config.stack.width,
        feed_forward_size: feed_forward.hidden_width,
        num_attention_heads: heads.heads,
        attention_head_size: heads.head_width(config.stack.width),
        max_position_embeddings: config.stack.length,
        attn_layers: Vec::new(),
        axial_pos_embds: false,
        hidden_act: activation_name(feed_forward.activation).to_owned(),
        hidden_dropout_prob: block.dropout,
        layer_norm_eps: block.norm.epsilon(),
        initializer_range: config.stack.init_std,
        is_decoder: config.stack.role == Role::Causal,
        ..HfReformerConfig::default()
    };
    if let PositionsConfig::Axial(axial) = &config.stack.positions {
        hf.axial_pos_embds = true;
        hf.axial_pos_shape = axial.shape.to_vec();
        hf.axial_pos_embds_dim = axial.widths.to_vec();
    }
    for block in config.stack.stored_blocks() {
        hf.attn_layers.push(match &block.attention {
            AttentionConfig::Chunks(local) => {
                hf.local_attn_chunk_length = local.chunk;
                hf.local_num_chunks_before = local.chunks_before;
                hf.local_num_chunks_after = local.chunks_after;
                hf.local_attention_probs_dropout_prob = local.dropout;
                LayerType::Local
            }
            AttentionConfig::Reformer(lsh) => {
                hf.lsh_attn_chunk_length = lsh.chunk;
                hf.lsh_num_chunks_before = lsh.chunks_before;
                hf.lsh_num_chunks_after = lsh.chunks_after;
                hf.lsh_attention_probs_dropout_prob = lsh.dropout;
                hf.num_hashes = lsh.hashes;
                hf.hash_seed = lsh.seed;
                hf.num_buckets = Some(match lsh.factors.as_slice() {
                    [] => Buckets::Count(lsh.buckets),
                    factors => Buckets::Factors(factors.to_vec()),
                });
                LayerType::Lsh
            }
            _ => return None,
        });
    }
    let layers = hf.attn_layers.len();
    let mut json = serde_json::to_value(hf).ok()?;
    json["num_hidden_layers"] = json!(layers);
    Some(json)
}
