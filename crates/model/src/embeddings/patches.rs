//! Patch embedding of images: a linear projection of each patch, behind a class token (Dosovitskiy et al. 2021) and a
//! distillation token (Touvron et al. 2021).

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::checks::{refuse, size, within};
use crate::setters;
use crate::{ConfigError, Initializer, Linear};

/// Settings of a patch embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatchesConfig {
    /// Height of the images that position embeddings are learned for, in pixels.
    pub height: usize,
    /// Their width.
    pub width: usize,
    /// Height and width of a patch.
    pub size: usize,
    /// Channels of an image.
    #[serde(default = "three")]
    pub channels: usize,
    /// Whether the projection has a bias.
    #[serde(default = "yes")]
    pub bias: bool,
    /// The number of learned tokens before the patches: 1 for a class token, 2 for a distillation token after it.
    #[serde(default = "one")]
    pub tokens: usize,
}

fn three() -> usize {
    3
}

fn yes() -> bool {
    true
}

fn one() -> usize {
    1
}

impl PatchesConfig {
    /// Square patches of this size, of images of this height and width, behind a class token.
    pub fn new([height, width]: [usize; 2], size: usize) -> Self {
        Self {
            height,
            width,
            size,
            channels: three(),
            bias: yes(),
            tokens: one(),
        }
    }

    setters! {
        with_channels(channels: usize);
        with_bias(bias: bool);
        with_tokens(tokens: usize);
    }

    /// Whether the settings are valid in a model of this length.
    pub(crate) fn validate(&self, length: usize) -> Result<(), ConfigError> {
        size("patches.size", self.size)?;
        within("patches.channels", self.channels, 1 << 10)?;
        size(
            "patches.size",
            self.size
                .saturating_mul(self.size)
                .saturating_mul(self.channels),
        )?;
        for (field, pixels) in [("height", self.height), ("width", self.width)] {
            let field = format!("patches.{field}");
            size(&field, pixels)?;
            if !pixels.is_multiple_of(self.size) {
                return refuse(
                    &field,
                    format!(
                        "{pixels} is not a multiple of the patches' {}; use one",
                        self.size
                    ),
                );
            }
        }
        if self.tokens > 2 {
            return refuse(
                "patches.tokens",
                format!("{} is out of range; use 0 to 2", self.tokens),
            );
        }
        let positions = self.positions();
        if positions != length {
            return refuse(
                "length",
                format!(
                    "{length} differs from the {positions} patches and tokens of an image; use {positions}"
                ),
            );
        }
        Ok(())
    }

    /// Rows and columns of patches.
    pub fn grid(&self) -> [usize; 2] {
        // Patches of size zero are refused when a model is built.
        [self.height, self.width].map(|pixels| pixels.checked_div(self.size).unwrap_or(0))
    }

    /// The number of patches and tokens of an image, which is the length of the sequence.
    pub fn positions(&self) -> usize {
        let [rows, columns] = self.grid();
        rows.saturating_mul(columns).saturating_add(self.tokens)
    }
}

/// A patch embedding.
#[derive(Module, Debug)]
pub struct Patches {
    projection: Linear,
    /// `[1, width]`
    class_token: Option<Param<Tensor<2>>>,
    /// `[1, width]`
    distillation_token: Option<Param<Tensor<2>>>,
    #[module(skip)]
    config: PatchesConfig,
}

impl Patches {
    /// An embedding of this width.
    pub fn new(
        config: &PatchesConfig,
        width: usize,
        std: f64,
        initializer: &mut Initializer,
    ) -> Self {
        let pixels = config.channels * config.size * config.size;
        let projection = Linear::new(pixels, width, config.bias, std, initializer);
        let mut token = |present: bool| present.then(|| initializer.normal([1, width], std));
        Self {
            projection,
            class_token: token(config.tokens > 0),
            distillation_token: token(config.tokens > 1),
            config: *config,
        }
    }

    /// `[batch, channels, height, width]` to the learned tokens and the patches, row by row, `[batch, length, width]`, and the
    /// number of rows and columns of patches.
    ///
    /// # Panics
    /// When the image has other channels, or its size is not a multiple of the patch size.
    pub fn forward(&self, pixels: Tensor<4>) -> (Tensor<3>, [usize; 2]) {
        let [batch, channels, height, width] = pixels.dims();
        let size = self.config.size;
        assert!(
            channels == self.config.channels
                && height.is_multiple_of(size)
                && width.is_multiple_of(size),
            "patches: pixels {:?} do not match {} channels and patches of {size}",
            pixels.dims(),
            self.config.channels
        );
        let grid = [height / size, width / size];
        let [rows, columns] = grid;
        let patches = pixels
            .reshape([batch, channels, rows, size, columns, size])
            .permute([0, 2, 4, 1, 3, 5])
            .reshape([batch, rows * columns, channels * size * size]);
        let embedded = self.projection.forward(patches);
        let [_, _, width] = embedded.dims();
        let tokens = [&self.class_token, &self.distillation_token];
        let mut parts: Vec<Tensor<3>> = tokens
            .into_iter()
            .flatten()
            .map(|token| token.val().unsqueeze_dim::<3>(0).expand([batch, 1, width]))
            .collect();
        parts.push(embedded);
        (Tensor::cat(parts, 1), grid)
    }
}
