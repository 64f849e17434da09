//! Reshapes to shapes with zeros. burn's own `reshape` takes a zero as "keep this axis", which breaks empty batches and
//! sequences.

use burn::tensor::{ReshapeArgs, Shape};

/// The target shape of a reshape, where a zero is a zero.
#[derive(Debug)]
pub(crate) struct ExactDims<const D: usize>(pub [usize; D]);

impl<const D: usize> ReshapeArgs<D> for ExactDims<D> {
    fn into_shape<const E: usize>(self, source: Shape) -> Shape {
        let shape = Shape::from(self.0);
        assert_eq!(
            source.num_elements(),
            shape.num_elements(),
            "reshape: {source:?} does not match {shape:?}"
        );
        shape
    }
}
