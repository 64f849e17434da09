//! BERT (Devlin et al. 2019) and its descendants: bidirectional encoders, post-norm, with learned positions. All are without a
//! language-model head, as in sentence embeddings and classifiers.

use super::attention_with_biases;
use crate::block::BlockConfig;
use crate::embeddings::EmbeddingConfig;
use crate::feed_forward::PlainConfig;
use crate::head::{PooledFrom, PoolerConfig, PoolerProjection};
use crate::positions::LearnedConfig;
use crate::{Activation, ModelConfig, NormConfig};

const DROPOUT: f64 = 0.1;
const LENGTH: usize = 512;

/// BERT base, uncased, with its pooler: 109 million parameters.
pub fn bert_base() -> ModelConfig {
    bert(12, 768, 12).with_pooler(pooler())
}

/// BERT large, uncased, with its pooler: 335 million parameters.
pub fn bert_large() -> ModelConfig {
    bert(24, 1024, 16).with_pooler(pooler())
}

/// RoBERTa base with its pooler: 125 million parameters. Its positions start after the row of the padding token. Liu et al.
/// 2019.
pub fn roberta_base() -> ModelConfig {
    let norm = NormConfig::layer();
    let embedding = EmbeddingConfig::default().with_types(1);
    ModelConfig::encoder(50_265, LENGTH, 768)
        .with_embedding(embedding.with_norm(norm.clone()))
        .with_embedding_dropout(DROPOUT)
        .with_positions(LearnedConfig::default().with_offset(2).with_padding(1))
        .blocks(12, block(768, 12, norm))
        .with_pooler(pooler())
}

/// DistilBERT base, uncased: 66 million parameters, without token types and pooler. Sanh et al. 2019.
pub fn distilbert_base() -> ModelConfig {
    let embedding = EmbeddingConfig::default().with_norm(norm());
    bert(6, 768, 12).with_embedding(embedding)
}

/// ALBERT base, version 2, with its pooler: 12 million parameters. One block is run twelve times, and the embedding is
/// factorized. Lan et al. 2020.
pub fn albert_base() -> ModelConfig {
    let embedding = EmbeddingConfig::default().with_width(128).with_types(2);
    let feed_forward = PlainConfig::new(4 * 768).with_activation(Activation::GeluTanh);
    let block = BlockConfig::post_norm(attention_with_biases(12), feed_forward);
    ModelConfig::encoder(30_000, LENGTH, 768)
        .with_embedding(embedding.with_norm(norm()))
        .blocks(1, block.with_norm(norm()))
        .with_order([0; 12])
        .with_pooler(pooler())
}

fn bert(layers: usize, width: usize, heads: usize) -> ModelConfig {
    let embedding = EmbeddingConfig::default().with_types(2);
    ModelConfig::encoder(30_522, LENGTH, width)
        .with_embedding(embedding.with_norm(norm()))
        .with_embedding_dropout(DROPOUT)
        .blocks(layers, block(width, heads, norm()))
}

fn block(width: usize, heads: usize, norm: NormConfig) -> BlockConfig {
    let attention = attention_with_biases(heads).with_dropout(DROPOUT);
    let feed_forward = PlainConfig::new(4 * width).with_activation(Activation::Gelu);
    BlockConfig::post_norm(attention, feed_forward)
        .with_norm(norm)
        .with_dropout(DROPOUT)
}

fn norm() -> NormConfig {
    NormConfig::layer().with_epsilon(1e-12)
}

/// The first token through a projection and tanh.
fn pooler() -> PoolerConfig {
    PoolerConfig::new(PooledFrom::First).with_projection(PoolerProjection::default())
}
