//! The middle of an image, as transformers' `center_crop`: where the image is smaller, black is put around it.

use crate::{Image, Size};

impl Image {
    /// The middle, of a size. Of an odd number of rows to cut off, one more goes below than above; of an odd number to add,
    /// one more comes above than below; columns likewise. The size has pixels.
    pub(crate) fn crop_centre(&self, size: Size) -> Image {
        let old = self.size();
        let top = offset(old.height, size.height);
        let left = offset(old.width, size.width);
        let mut pixels = vec![0; size.height * size.width * 3];
        for (row, line) in pixels.chunks_exact_mut(size.width * 3).enumerate() {
            let Some(old_row) = inside(row as isize + top, old.height) else {
                continue;
            };
            // The columns that both have.
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

/// How far the crop begins within the image; below zero when it begins before. Halves are rounded down.
fn offset(old: usize, new: usize) -> isize {
    (old as isize - new as isize).div_euclid(2)
}

fn inside(position: isize, length: usize) -> Option<usize> {
    usize::try_from(position)
        .ok()
        .filter(|&position| position < length)
}
