//! Center crop as in transformers: smaller images are padded with black.

use crate::{Image, Size};

impl Image {
    /// Crops to `size`, which must not be empty. An odd row to remove is removed at the bottom, an odd row to add is added at
    /// the top; columns likewise.
    pub(crate) fn center_crop(&self, size: Size) -> Image {
        let old = self.size();
        let top = offset(old.height, size.height);
        let left = offset(old.width, size.width);
        let mut pixels = vec![0; size.height * size.width * 3];
        for (row, line) in pixels.chunks_exact_mut(size.width * 3).enumerate() {
            let Some(old_row) = inside(row as isize + top, old.height) else {
                continue;
            };
            // The columns of the overlap.
            let first = (-left).max(0) as usize;
            let last = size.width.min((old.width as isize - left) as usize);
            let source = (old_row * old.width) as isize + left;
            let source = (source + first as isize) as usize * 3;
            let length = (last - first) * 3;
            line[first * 3..first * 3 + length]
                .copy_from_slice(&self.pixels()[source..source + length]);
        }
        Image::from_rgb(size, pixels)
    }
}

/// The offset of the crop in the image, negative for padding. Halves are rounded down.
fn offset(old: usize, new: usize) -> isize {
    (old as isize - new as isize).div_euclid(2)
}

fn inside(position: isize, length: usize) -> Option<usize> {
    usize::try_from(position)
        .ok()
        .filter(|&position| position < length)
}
