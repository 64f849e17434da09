//! Losses and gradients of models other than decoders, against PyTorch's.

use attentive_checkpoint as checkpoint;
use attentive_model::attention::Memory;
use attentive_model::{ForwardOptions, Input, Model};
use attentive_tensor::cross_entropy;
use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::support::{Golden, saved_gradients};

fn open(name: &str) -> (Golden, Model, Device) {
    let device = Device::flex().autodiff();
    let golden = Golden::open(name);
    let (model, _) = checkpoint::load(&golden.folder, &device).unwrap();
    (golden, model, device)
}

/// The flattened targets of a golden loss; negative ones are ignored.
fn targets(golden: &Golden, key: &str, device: &Device) -> Tensor<1, Int> {
    let targets = golden.integers(key);
    let count = targets.len();
    Tensor::from_data(TensorData::new(targets, [count]), device)
}

/// The mean cross-entropy of logits over their last axis.
fn loss<const D: usize>(logits: Tensor<D>, targets: Tensor<1, Int>) -> Tensor<1> {
    let width = logits.dims()[D - 1];
    let rows = logits.shape().num_elements() / width;
    cross_entropy(logits.reshape([rows, width]), targets, 0.0)
}

fn check(golden: &Golden, model: &Model, loss: Tensor<1>) {
    golden.check("loss.value", loss.clone());
    golden.check_gradients(saved_gradients(model, &loss));
}

#[test]
fn of_bert_pretraining() {
    let (golden, model, device) = open("bert");
    let input = Input {
        types: Some(golden.ids("loss.token_type_ids", &device)),
        non_padding: Some(golden.non_padding("loss.attention_mask")),
        ..Input::new(golden.ids("loss.input_ids", &device))
    };
    let output = model.forward(input, ForwardOptions::default());
    let mlm_loss = loss(
        output.logits.unwrap(),
        targets(&golden, "loss.labels", &device),
    );
    let next = targets(&golden, "loss.next_sentence_label", &device);
    let classes = output.class_logits.unwrap().mean();
    check(&golden, &model, mlm_loss + loss(classes, next));
}

#[test]
fn of_an_encoder_and_a_decoder() {
    let (golden, model, device) = open("t5");
    let source = Input {
        non_padding: Some(golden.non_padding("loss.attention_mask")),
        ..Input::new(golden.ids("loss.input_ids", &device))
    };
    let memory: Memory = model.encode(source, ForwardOptions::default());
    let input = Input {
        memory: Some(memory),
        ..Input::new(golden.ids("loss.decoder_input_ids", &device))
    };
    let logits = model
        .forward(input, ForwardOptions::default())
        .into_logits();
    let targets = targets(&golden, "loss.labels", &device);
    check(&golden, &model, loss(logits, targets));
}

#[test]
fn of_image_classification() {
    let (golden, model, device) = open("vit");
    let shape = golden.shape("pixel_values");
    let pixels = TensorData::new(golden.floats("pixel_values"), shape);
    let input = Input::pixels(Tensor::from_data(pixels, &device));
    let classes = model
        .forward(input, ForwardOptions::default())
        .class_logits
        .unwrap();
    let targets = targets(&golden, "loss.labels", &device);
    check(&golden, &model, loss(classes.mean(), targets));
}
