//! ViT (Dosovitskiy et al. 2021) and DeiT (Touvron et al. 2021): images as sequences of patches, with a classifier of
//! ImageNet's 1000 classes.

use super::attention_with_biases;
use crate::block::BlockConfig;
use crate::embeddings::PatchesConfig;
use crate::feed_forward::PlainConfig;
use crate::head::{PooledFrom, PoolerConfig, SequenceClassifierConfig};
use crate::{Activation, ModelConfig, NormConfig};

const CLASSES: usize = 1000;

/// ViT base with patches of 16 × 16 pixels, on images of 224 × 224: 87 million parameters.
pub fn vit_base() -> ModelConfig {
    vit(12, 768, 12, patches()).with_sequence_classifier(SequenceClassifierConfig::new(CLASSES))
}

/// DeiT base, distilled: ViT base with a distillation token and a second classifier that reads it; 87 million parameters.
pub fn deit_base_distilled() -> ModelConfig {
    let classifier = SequenceClassifierConfig::new(CLASSES).with_distillation(true);
    vit(12, 768, 12, patches().with_tokens(2)).with_sequence_classifier(classifier)
}

fn patches() -> PatchesConfig {
    PatchesConfig::new([224, 224], 16)
}

fn vit(layers: usize, width: usize, heads: usize, patches: PatchesConfig) -> ModelConfig {
    let norm = NormConfig::layer().with_epsilon(1e-12);
    let feed_forward = PlainConfig::new(4 * width).with_activation(Activation::Gelu);
    let block = BlockConfig::pre_norm(attention_with_biases(heads), feed_forward);
    ModelConfig::image_encoder(patches, width)
        .blocks(layers, block.with_norm(norm.clone()))
        .with_final_norm(norm)
        .with_pooler(PoolerConfig::new(PooledFrom::First))
}
