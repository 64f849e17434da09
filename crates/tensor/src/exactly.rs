//! Sizes as they are said. burn's own reshape takes a size of zero for "as before", and so loses batches and sequences of no
//! length.

use burn::tensor::{ReshapeArgs, Shape};

/// The sizes of a reshape, zeros included.
#[derive(Debug)]
pub(crate) struct Exactly<const D: usize>(pub [usize; D]);

impl<const D: usize> ReshapeArgs<D> for Exactly<D> {
    fn into_shape<const E: usize>(self, source: Shape) -> Shape {
        let shape = Shape::from(self.0);
        assert_eq!(
            source.num_elements(),
            shape.num_elements(),
            "reshape: {source:?} does not fit {shape:?}"
        );
        shape
    }
}
