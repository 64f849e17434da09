//! Reformer as Hugging Face writes it: two reversible streams, positions in a grid, and layers that attend within chunks or
//! among vectors that hash alike. Kitaev et al. 2020.
//!
//! Rotations are in no file: they are drawn from `hash_seed` by PyTorch's generator, alike in all layers. Without a seed Hugging
//! Face draws others in every pass; then those of the seed 0 serve. `lm_head.bias` is added, as transformers 4 does and 5
//! forgets.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::heads::{bare, refuse_unless};
use super::json::typed;
use super::table::{Operation::*, Part, Row, Table};
use super::words::{activation, activation_name};
use super::{Architecture, Format, LastState};
use crate::{
    AttentionConfig, AxialConfig, BlockConfig, ChunksConfig, FeedForwardConfig, FillConfig,
    HeadConfig, LearnedConfig, ModelConfig, NormConfig, NormPlacement, PlainConfig,
    PositionsConfig, ReformerConfig, ResidualConfig, Role, RotationGenerator, WordsConfig,
};

pub(super) const FORMAT: Format = Format {
    model_type: "reformer",
    decoder: None,
    read,
    write,
    table: Table {
        parts: &[Part {
            ours: "stack.",
            theirs: "reformer.",
            rows: ROWS,
        }],
        optional_prefix: "reformer.",
        // A copy of what is tied, and buffers of old versions.
        ignored: &[
            "lm_head.decoder.bias",
            "mask_value_float16",
            "mask_value_float32",
        ],
        renamed: &[],
        twins: &[],
        zeros: &[],
    },
    group: |_| 1,
    last_state: LastState::OfLastBlock,
    architectures: &[
        Architecture {
            name: "ReformerModelWithLMHead",
            heads: |_, config| words_of(config, Role::Causal),
            rows: WORD_ROWS,
            bare: false,
        },
        Architecture {
            name: "ReformerForMaskedLM",
            heads: |_, config| words_of(config, Role::Bidirectional),
            rows: WORD_ROWS,
            bare: false,
        },
        bare("ReformerModel"),
    ],
};

#[rustfmt::skip] // A table is read in columns.
const ROWS: &[Row] = &[
    ("tokens.weight",                                "embeddings.word_embeddings.weight",                                Same),
    ("positions.weight",                             "embeddings.position_embeddings.embedding.weight",                  Same),
    ("axial.rows.weight",                            "embeddings.position_embeddings.weights.0",                         Parted),
    ("axial.columns.weight",                         "embeddings.position_embeddings.weights.1",                         Led),
    ("blocks.{layer}.attention.norm_before.weight",  "encoder.layers.{layer}.attention.layer_norm.weight",               Same),
    ("blocks.{layer}.attention.norm_before.bias",    "encoder.layers.{layer}.attention.layer_norm.bias",                 Same),
    ("blocks.{layer}.attention.body.query_key.weight", "encoder.layers.{layer}.attention.self_attention.query_key.weight", Same),
    ("blocks.{layer}.attention.body.query.weight",   "encoder.layers.{layer}.attention.self_attention.query.weight",     Same),
    ("blocks.{layer}.attention.body.key.weight",     "encoder.layers.{layer}.attention.self_attention.key.weight",       Same),
    ("blocks.{layer}.attention.body.value.weight",   "encoder.layers.{layer}.attention.self_attention.value.weight",     Same),
    ("blocks.{layer}.attention.body.output.weight",  "encoder.layers.{layer}.attention.output.dense.weight",             Same),
    ("blocks.{layer}.attention.body.rotations",      "",                                                                 Drawn),
    ("blocks.{layer}.feed_forward.norm_before.weight", "encoder.layers.{layer}.feed_forward.layer_norm.weight",          Same),
    ("blocks.{layer}.feed_forward.norm_before.bias", "encoder.layers.{layer}.feed_forward.layer_norm.bias",              Same),
    ("blocks.{layer}.feed_forward.body.up.weight",   "encoder.layers.{layer}.feed_forward.dense.dense.weight",           Same),
    ("blocks.{layer}.feed_forward.body.up.bias",     "encoder.layers.{layer}.feed_forward.dense.dense.bias",             Same),
    ("blocks.{layer}.feed_forward.body.down.weight", "encoder.layers.{layer}.feed_forward.output.dense.weight",          Same),
    ("blocks.{layer}.feed_forward.body.down.bias",   "encoder.layers.{layer}.feed_forward.output.dense.bias",            Same),
    ("final_norm.weight",                            "encoder.layer_norm.weight",                                        Same),
    ("final_norm.bias",                              "encoder.layer_norm.bias",                                          Same),
];

#[rustfmt::skip]
const WORD_ROWS: &[Row] = &[
    ("words.weight", "lm_head.decoder.weight", Same),
    ("words.bias",   "lm_head.bias",           Same),
];

/// Scores of the vocabulary; the class says in which direction a model with them looks.
fn words_of(config: &mut ModelConfig, role: Role) -> Result<(), String> {
    let causal = role == Role::Causal;
    refuse_unless(&[("is_decoder", config.role == Role::Causal, causal)])?;
    config.head = HeadConfig::Words(WordsConfig {
        bias: true,
        ..WordsConfig::default()
    });
    Ok(())
}

/// The settings of config.json that matter to the numbers. Others are left alone.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Words {
    vocab_size: usize,
    hidden_size: usize,
    feed_forward_size: usize,
    num_attention_heads: usize,
    attention_head_size: usize,
    max_position_embeddings: usize,
    attn_layers: Vec<Layer>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Layer {
    Local,
    Lsh,
}

/// A number, or factors of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Buckets {
    Whole(usize),
    Factors(Vec<usize>),
}

/// Hugging Face leaves out what equals its defaults.
impl Default for Words {
    fn default() -> Self {
        Self {
            vocab_size: 320,
            hidden_size: 256,
            feed_forward_size: 512,
            num_attention_heads: 12,
            attention_head_size: 64,
            max_position_embeddings: 4096,
            attn_layers: [Layer::Local, Layer::Lsh].repeat(3),
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

impl Words {
    fn read(words: &Value) -> Result<Self, String> {
        let said = words.as_object().cloned().unwrap_or_default();
        // A null stands for a default, as in Python.
        let said = said.into_iter().filter(|(_, value)| !value.is_null());
        let words: Self = typed(&Value::Object(said.collect()), "")?;
        refuse_unless(&[("tie_word_embeddings", words.tie_word_embeddings, false)])?;
        Ok(words)
    }

    /// Positions, and the longest sequence that they reach to.
    fn positions(&self) -> Result<(PositionsConfig, usize), String> {
        if !self.axial_pos_embds {
            let positions = PositionsConfig::Learned(LearnedConfig::default());
            return Ok((positions, self.max_position_embeddings));
        }
        let two = |name: &str, numbers: &[usize]| {
            <[usize; 2]>::try_from(numbers)
                .map_err(|_| format!("{name} {numbers:?} is not supported; it must be two numbers"))
        };
        let shape = two("axial_pos_shape", &self.axial_pos_shape)?;
        let widths = two("axial_pos_embds_dim", &self.axial_pos_embds_dim)?;
        let length = shape[0].saturating_mul(shape[1]);
        Ok((
            PositionsConfig::Axial(AxialConfig { shape, widths }),
            length.min(self.max_position_embeddings),
        ))
    }

    /// Where chunks are of two sizes, all layers are filled up alike.
    fn fill(&self) -> Option<FillConfig> {
        let [local, lsh] = [self.local_attn_chunk_length, self.lsh_attn_chunk_length];
        let both = [Layer::Local, Layer::Lsh]
            .iter()
            .all(|it| self.attn_layers.contains(it));
        (both && local != lsh && local > 0 && lsh > 0).then(|| FillConfig {
            multiple: (local / common_divisor(local, lsh)).saturating_mul(lsh),
            beyond: local.min(lsh),
        })
    }

    fn attention(&self, layer: Layer) -> Result<AttentionConfig, String> {
        let (heads, head_width) = (self.num_attention_heads, Some(self.attention_head_size));
        let fill = self.fill();
        if layer == Layer::Local {
            return Ok(AttentionConfig::Chunks(ChunksConfig {
                chunk: self.local_attn_chunk_length,
                chunks_before: self.local_num_chunks_before,
                chunks_after: self.local_num_chunks_after,
                fill,
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
            Some(Buckets::Whole(buckets)) => (*buckets, Vec::new()),
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
            rounds: self.num_hashes,
            chunk: self.lsh_attn_chunk_length,
            chunks_before: self.lsh_num_chunks_before,
            chunks_after: self.lsh_num_chunks_after,
            seed: self.hash_seed,
            generator: RotationGenerator::Torch,
            fill,
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

fn common_divisor(one: usize, other: usize) -> usize {
    match other {
        0 => one,
        other => common_divisor(other, one % other),
    }
}

fn read(words: &Value) -> Result<ModelConfig, String> {
    let words = Words::read(words)?;
    let norm = NormConfig::Layer {
        epsilon: words.layer_norm_eps,
    };
    let (positions, length) = words.positions()?;
    let feed_forward = FeedForwardConfig::Plain(PlainConfig {
        hidden_width: words.feed_forward_size,
        activation: activation(&words.hidden_act)?,
        bias: true,
    });
    let block = |layer: &Layer| {
        Ok(BlockConfig {
            repeat: 1,
            dropout: words.hidden_dropout_prob,
            placement: NormPlacement::Before,
            norm: norm.clone(),
            attention: words.attention(*layer)?,
            cross: None,
            feed_forward: feed_forward.clone(),
        })
    };
    let blocks: Result<Vec<_>, String> = words.attn_layers.iter().map(block).collect();
    Ok(ModelConfig {
        role: match words.is_decoder {
            true => Role::Causal,
            false => Role::Bidirectional,
        },
        embedding_dropout: words.hidden_dropout_prob,
        initial_deviation: words.initializer_range,
        head: HeadConfig::None,
        positions,
        residual: ResidualConfig::Reversible,
        final_norm: Some(norm.clone()),
        blocks: blocks?,
        ..ModelConfig::new(words.vocab_size, length, words.hidden_size)
    })
}

fn write(config: &ModelConfig) -> Option<Value> {
    let block = config.blocks.first()?;
    let heads = block.attention.heads()?;
    let FeedForwardConfig::Plain(feed_forward) = &block.feed_forward else {
        return None;
    };
    let mut words = Words {
        vocab_size: config.vocabulary,
        hidden_size: config.width,
        feed_forward_size: feed_forward.hidden_width,
        num_attention_heads: heads.heads,
        attention_head_size: heads.head_width(config.width),
        max_position_embeddings: config.length,
        attn_layers: Vec::new(),
        axial_pos_embds: false,
        hidden_act: activation_name(feed_forward.activation).to_owned(),
        hidden_dropout_prob: block.dropout,
        layer_norm_eps: block.norm.epsilon(),
        initializer_range: config.initial_deviation,
        is_decoder: config.role == Role::Causal,
        ..Words::default()
    };
    if let PositionsConfig::Axial(axial) = &config.positions {
        words.axial_pos_embds = true;
        words.axial_pos_shape = axial.shape.to_vec();
        words.axial_pos_embds_dim = axial.widths.to_vec();
    }
    for block in config.layer_blocks() {
        words.attn_layers.push(match &block.attention {
            AttentionConfig::Chunks(local) => {
                words.local_attn_chunk_length = local.chunk;
                words.local_num_chunks_before = local.chunks_before;
                words.local_num_chunks_after = local.chunks_after;
                words.local_attention_probs_dropout_prob = local.dropout;
                Layer::Local
            }
            AttentionConfig::Reformer(lsh) => {
                words.lsh_attn_chunk_length = lsh.chunk;
                words.lsh_num_chunks_before = lsh.chunks_before;
                words.lsh_num_chunks_after = lsh.chunks_after;
                words.lsh_attention_probs_dropout_prob = lsh.dropout;
                words.num_hashes = lsh.rounds;
                words.hash_seed = lsh.seed;
                words.num_buckets = Some(match lsh.factors.as_slice() {
                    [] => Buckets::Whole(lsh.buckets),
                    factors => Buckets::Factors(factors.to_vec()),
                });
                Layer::Lsh
            }
            _ => return None,
        });
    }
    let layers = words.attn_layers.len();
    let mut words = serde_json::to_value(words).ok()?;
    words["num_hidden_layers"] = json!(layers);
    Some(words)
}
