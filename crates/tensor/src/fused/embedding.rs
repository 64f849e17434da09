//! Embedding lookup; the backward pass scatter-adds into the rows of the table.

use attentive_kernels::embedding as kernels;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::{buffer, contiguous, data, integers, record, recycle, rows_and_width, tensor};

pub(super) fn forward(table: &FlexTensor, ids: &FlexTensor) -> FlexTensor {
    let table = contiguous(table);
    let (_, width) = rows_and_width(&table);
    let shape = ids.layout().shape();
    let [batch, length] = [shape[0], shape[1]];
    let mut out = buffer(batch * length * width);
    // Of a table of width zero, the kernel could not infer the number of rows.
    if width > 0 {
        kernels::gather(data(&table), width, &integers(ids), &mut out);
    }
    tensor(out, [batch, length, width])
}

pub(super) fn tracked<C: CheckpointStrategy>(
    table: FloatTensor<Autodiff<Flex, C>>,
    ids: FlexTensor,
) -> FloatTensor<Autodiff<Flex, C>> {
    let (table, node) = table.into_parts();
    let output = forward(&table, &ids);
    let (rows, width) = rows_and_width(&table);
    record::<C, _, 1>(EmbeddingBackward, [node], output, || {
        (integers(&ids), [rows, width])
    })
}

#[derive(Debug)]
struct EmbeddingBackward;

impl Backward<Flex, 1> for EmbeddingBackward {
    type State = (Vec<i64>, [usize; 2]);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let (ids, [rows, width]) = &ops.state;
        let dy = contiguous(&gradients.consume::<Flex>(&ops.node));
        if let [Some(parent)] = &ops.parents {
            let mut gradient = buffer(rows * width);
            if *width > 0 {
                kernels::gather_backward(data(&dy), *width, ids, &mut gradient);
            }
            gradients.register::<Flex>(parent.id, tensor(gradient, [*rows, *width]));
        }
        recycle([dy]);
    }
}
