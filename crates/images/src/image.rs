//! An image in memory: 8-bit RGB, row after row.

/// The most pixels that an image may have, be it read or made: 8192 by 8192, beyond any camera's picture that a vision
/// transformer looks at through a few hundred pixels.
pub(crate) const MOST_PIXELS: usize = 1 << 26;

/// Height and width, in this order as in Hugging Face's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl Size {
    /// As high as wide.
    pub fn square(side: usize) -> Self {
        Self {
            height: side,
            width: side,
        }
    }

    /// Whether an image of this size may be made.
    pub(crate) fn is_allowed(self) -> bool {
        self.height > 0
            && self.width > 0
            && self
                .height
                .checked_mul(self.width)
                .is_some_and(|pixels| pixels <= MOST_PIXELS)
    }
}

/// 8-bit RGB pixels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    size: Size,
    pixels: Vec<u8>,
}

impl Image {
    /// An image from its bytes: red, green and blue of each pixel, row after row.
    ///
    /// # Panics
    /// If there are not three bytes for each pixel, or none at all.
    pub fn from_rgb(size: Size, pixels: Vec<u8>) -> Self {
        assert_eq!(
            Some(pixels.len()),
            size.height
                .checked_mul(size.width)
                .and_then(|pixels| pixels.checked_mul(3)),
            "from_rgb: {} by {} pixels take three bytes each",
            size.width,
            size.height
        );
        assert!(!pixels.is_empty(), "from_rgb: an image has pixels");
        Self { size, pixels }
    }

    /// Its height and width.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Red, green and blue of each pixel, row after row.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }
}
