//! An 8-bit RGB image in memory.

/// The most pixels of an image, decoded or resized: 8192 by 8192, far beyond what a vision transformer needs.
pub(crate) const MAX_PIXELS: usize = 1 << 26;

/// Height and width, in the order of Hugging Face configs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl Size {
    /// A square.
    pub fn square(side: usize) -> Self {
        Self {
            height: side,
            width: side,
        }
    }

    /// Whether the size is within limits.
    pub(crate) fn is_allowed(self) -> bool {
        self.height > 0
            && self.width > 0
            && self
                .height
                .checked_mul(self.width)
                .is_some_and(|pixels| pixels <= MAX_PIXELS)
    }
}

/// An 8-bit RGB image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    size: Size,
    pixels: Vec<u8>,
}

impl Image {
    /// An image from interleaved RGB bytes in row-major order.
    ///
    /// # Panics
    /// If there are not three bytes per pixel, or no pixels.
    pub fn from_rgb(size: Size, pixels: Vec<u8>) -> Self {
        assert_eq!(
            Some(pixels.len()),
            size.height
                .checked_mul(size.width)
                .and_then(|pixels| pixels.checked_mul(3)),
            "from_rgb: {} by {} pixels need three bytes each",
            size.width,
            size.height
        );
        assert!(!pixels.is_empty(), "from_rgb: the image has no pixels");
        Self { size, pixels }
    }

    /// Height and width.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Interleaved RGB bytes in row-major order.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }
}
