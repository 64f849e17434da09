//! Losses and gradients of models that are no decoders, against PyTorch's.

use attentive_model::checkpoint::{self, saved_tensors};
use attentive_model::{Extras, Input, Memory, Model};
use attentive_tensor::cross_entropy;
use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::support::{Golden, gradients};

fn open(name: &str) -> (Golden, Model, Device) {
    let device = Device::flex().autodiff();
    let golden = Golden::open(name);
    let (model, _) = checkpoint::load(&golden.folder, &device).unwrap();
    (golden, model, device)
}

/// The targets of a golden loss, one after the other; those below zero are ignored.
fn targets(golden: &Golden, key: &str, device: &Device) -> Tensor<1, Int> {
    let numbers = golden.integers(key);
    let count = numbers.len();
    Tensor::from_data(TensorData::new(numbers, [count]), device)
}

/// The mean cross-entropy of scores over their last axis.
fn loss<const D: usize>(scores: Tensor<D>, targets: Tensor<1, Int>) -> Tensor<1> {
    let width = scores.dims()[D - 1];
    let rows = scores.shape().num_elements() / width;
    cross_entropy(scores.reshape([rows, width]), targets, 0.0)
}

fn check(golden: &Golden, model: &Model, loss: Tensor<1>) {
    golden.check("loss.value", loss.clone());
    golden.check_gradients(saved_tensors(model.config(), gradients(model, &loss)));
}

#[test]
fn of_bert_before_any_task() {
    let (golden, model, device) = open("bert");
    let input = Input {
        types: Some(golden.ids("loss.token_type_ids", &device)),
        keys: Some(golden.real("loss.attention_mask")),
        ..Input::new(golden.ids("loss.input_ids", &device))
    };
    let output = model.forward(input, Extras::default());
    let words = loss(
        output.words.unwrap(),
        targets(&golden, "loss.labels", &device),
    );
    let next = targets(&golden, "loss.next_sentence_label", &device);
    let classes = output.classes.unwrap().mean();
    check(&golden, &model, words + loss(classes, next));
}

#[test]
fn of_an_encoder_and_a_decoder() {
    let (golden, model, device) = open("t5");
    let source = Input {
        keys: Some(golden.real("loss.attention_mask")),
        ..Input::new(golden.ids("loss.input_ids", &device))
    };
    let memory: Memory = model.encode(source, Extras::default());
    let input = Input {
        memory: Some(memory),
        ..Input::new(golden.ids("loss.decoder_input_ids", &device))
    };
    let words = model.forward(input, Extras::default()).into_words();
    let targets = targets(&golden, "loss.labels", &device);
    check(&golden, &model, loss(words, targets));
}

#[test]
fn of_classes_of_pictures() {
    let (golden, model, device) = open("vit");
    let shape = golden.shape("pixel_values");
    let pixels = TensorData::new(golden.floats("pixel_values"), shape);
    let input = Input::pixels(Tensor::from_data(pixels, &device));
    let classes = model.forward(input, Extras::default()).classes.unwrap();
    let targets = targets(&golden, "loss.labels", &device);
    check(&golden, &model, loss(classes.mean(), targets));
}
