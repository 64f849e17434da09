//! Whole models: training steps, prefill, decoding, an encoder.

use attentive::generation::Session;
use attentive::model::attention::{FullAttentionConfig, Role};
use attentive::model::block::{Block, BlockConfig, Residual, ResidualConfig};
use attentive::model::feed_forward::PlainConfig;
use attentive::model::head::HeadConfig;
use attentive::model::{
    Activation, ForwardContext, Initializer, Model, ModelConfig, Norm, NormConfig, Purpose,
    Randomness, ids_tensor,
};
use attentive::tensor::{Device, Int, Tensor, add, embedding};
use attentive::training::{AdamW, AdamWConfig, Gradients, ObjectiveConfig};

use crate::report;

/// A GPT with exact GELU, biases and an untied head, as the PyTorch peer (reference/torch_peer.py) builds it.
fn gpt(layers: usize, width: usize, heads: usize, length: usize, vocabulary: usize) -> ModelConfig {
    let attention = FullAttentionConfig::new(heads)
        .with_bias(true)
        .with_output_bias(true);
    let feed_forward = PlainConfig::new(4 * width).with_activation(Activation::Gelu);
    ModelConfig::decoder(vocabulary, length, width)
        .blocks(layers, BlockConfig::pre_norm(attention, feed_forward))
        .with_final_norm(NormConfig::layer())
        .with_head(HeadConfig::Separate)
}

/// Pseudo-random ids.
fn ids(count: usize, vocabulary: usize) -> Vec<u32> {
    (0..count)
        .map(|i| (i * 7919 % 104_729 % vocabulary) as u32)
        .collect()
}

/// Training steps with AdamW, of `[layers, width, heads, length, batch]`.
pub fn train(work: &str, [layers, width, heads, length, batch]: [usize; 5], repeats: usize) {
    let device = Device::flex().autodiff();
    let config = gpt(layers, width, heads, length, 65);
    let mut model = Some(Model::new(&config, 0, &device).expect("the config is valid"));
    let mut optimizer = AdamW::new(&AdamWConfig {
        learning_rate: 1e-3,
        weight_decay: 0.1,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        max_grad_norm: f64::MAX,
    });
    let ids = ids(batch * (length + 1), 65);
    let windows: Vec<&[u32]> = ids.chunks(length + 1).collect();
    let objective = ObjectiveConfig::default();
    report(work, repeats, 2, 1.0, || {
        let current = model.take().expect("there is a model between steps");
        let prepared = objective.prepare(&windows, &device);
        let mut randomness = Randomness::new(Purpose::Dropout, 0, 0);
        let loss = objective.loss(&current, prepared, &mut randomness);
        let gradients = Gradients::backward(&loss, &current);
        model = Some(optimizer.update(current, gradients, 1.0));
        loss.into_scalar::<f32>();
    });
}

fn gpt2_small() -> Model {
    let config = gpt(12, 768, 12, 1024, 50257);
    Model::new(&config, 0, &Device::flex()).expect("the config is valid")
}

/// Prefill of 512 tokens, with KV cache and the last token's logits.
pub fn prefill(work: &str) {
    let model = gpt2_small();
    let prompt = ids(512, 50257);
    report(work, 5, 1, 1.0, || {
        Session::new(&model).prefill(&prompt);
    });
}

/// Decoding after a prompt of 512 tokens, per token.
pub fn decode(work: &str) {
    let model = gpt2_small();
    let mut session = Session::new(&model);
    session.prefill(&ids(512, 50257));
    report(work, 5, 1, 32.0, || {
        for _ in 0..32 {
            session.step(1);
        }
    });
}

/// An encoder: hidden states of 32 sequences of 128 tokens, with bidirectional attention.
pub fn encoder(work: &str) {
    let device = Device::flex();
    let config = gpt(6, 384, 12, 512, 30522);
    let initializer = &mut Initializer::new(0, &device);
    let table = initializer.normal([30522, 384], 0.02);
    let positions_table = initializer.normal([512, 384], 0.02);
    let blocks: Vec<Block> = config
        .stack
        .stored_blocks()
        .map(|block| Block::new(block, &config.stack, Role::Bidirectional, initializer))
        .collect();
    let norm = Norm::new(&NormConfig::Layer { epsilon: 1e-5 }, 384, initializer);
    let ids = ids(32 * 128, 30522);
    let ids = ids_tensor(&ids.chunks(128).collect::<Vec<&[u32]>>(), &device);
    let positions = Tensor::<1, Int>::arange(0..128, &device)
        .reshape([1, 128])
        .expand([32, 128]);
    report(work, 8, 2, 1.0, || {
        let mut pass = ForwardContext::default();
        let x = add(
            embedding(table.val(), ids.clone()),
            embedding(positions_table.val(), positions.clone()),
        );
        let mut x = Residual::new(ResidualConfig::One, x);
        for (layer, block) in blocks.iter().enumerate() {
            x = block.forward(x, layer, &mut pass);
        }
        x.concatenated().add_norm(&norm);
    });
}
