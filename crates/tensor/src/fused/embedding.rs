//! Rows of a table, and their gradient added up by row.

use attentive_kernels::embedding as kernels;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::{buffer, dense, integers, numbers, record, recycle, rows_and_width, tensor};

pub(super) fn forward(table: &FlexTensor, ids: &FlexTensor) -> FlexTensor {
    let table = dense(table);
    let (_, width) = rows_and_width(&table);
    let shape = ids.layout().shape();
    let [batch, length] = [shape[0], shape[1]];
    let mut out = buffer(batch * length * width);
    // A table whose rows are empty has no numbers that say how many rows it has.
    if width > 0 {
        kernels::gather(numbers(&table), width, &integers(ids), &mut out);
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
    record::<C, _, 1>(Embedding, [node], output, || {
        (integers(&ids), [rows, width])
    })
}

#[derive(Debug)]
struct Embedding;

impl Backward<Flex, 1> for Embedding {
    type State = (Vec<i64>, [usize; 2]);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let (ids, [rows, width]) = &ops.state;
        let dy = dense(&gradients.consume::<Flex>(&ops.node));
        if let [Some(parent)] = &ops.parents {
            let mut slopes = buffer(rows * width);
            if *width > 0 {
                kernels::gather_backward(numbers(&dy), *width, ids, &mut slopes);
            }
            gradients.register::<Flex>(parent.id, tensor(slopes, [*rows, *width]));
        }
        recycle([dy]);
    }
}
