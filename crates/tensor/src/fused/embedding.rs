//! Embedding lookup; the backward pass scatter-adds into the rows of the table.

use attentive_kernels::embedding as kernels;
use burn::backend::flex::FlexTensor;
use burn::tensor::{Int, Tensor};

use super::operation::{FusedOperation, run};
use super::{buffer, contiguous, data, integers, recycle, rows_and_width, single, tensor};

/// Embedding lookup.
pub(crate) fn embedding(table: Tensor<2>, ids: Tensor<2, Int>) -> Tensor<3> {
    let embedding = Embedding {
        sizes: ids.dims(),
        ids: integers(ids),
    };
    let [rows] = run(embedding, [table.into_dispatch()]);
    Tensor::from_dispatch(rows)
}

#[derive(Clone, Debug)]
struct Embedding {
    ids: Vec<i64>,
    /// Batch and length.
    sizes: [usize; 2],
}

impl FusedOperation<1, 1> for Embedding {
    /// Rows and width of the table.
    type Saved = [usize; 2];

    fn forward(&self, inputs: [FlexTensor; 1]) -> [FlexTensor; 1] {
        self.forward_and_save(inputs).0
    }

    fn forward_and_save(&self, [table]: [FlexTensor; 1]) -> ([FlexTensor; 1], [usize; 2]) {
        let table = contiguous(&table);
        let (rows, width) = rows_and_width(&table);
        let [batch, length] = self.sizes;
        let mut out = buffer(batch * length * width);
        // Of a table of width zero, the kernel could not infer the number of rows.
        if width > 0 {
            kernels::gather(data(&table), width, &self.ids, &mut out);
        }
        ([tensor(out, [batch, length, width])], [rows, width])
    }

    fn backward(
        &self,
        [rows, width]: [usize; 2],
        dys: [Option<FlexTensor>; 1],
        _: [bool; 1],
    ) -> [Option<FlexTensor>; 1] {
        let dy = contiguous(&single(dys));
        let mut dtable = buffer(rows * width);
        if width > 0 {
            kernels::gather_backward(data(&dy), width, &self.ids, &mut dtable);
        }
        recycle([dy]);
        [Some(tensor(dtable, [rows, width]))]
    }
}
