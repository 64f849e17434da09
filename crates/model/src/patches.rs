//! Pictures as sequences: each square of pixels is mapped to a vector, behind learned vectors that gather for the whole
//! picture. Dosovitskiy et al. 2021; the second learned vector, Touvron et al. 2021.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

use crate::checks::{refuse, size, within};
use crate::{ConfigError, Initializer, Linear};

/// How pictures are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatchesConfig {
    /// Height of the pictures that positions are learned for, in pixels.
    pub height: usize,
    /// Their width.
    pub width: usize,
    /// Height and width of a patch.
    pub size: usize,
    /// Numbers per pixel.
    #[serde(default = "three")]
    pub channels: usize,
    /// Whether the map of patches has a bias.
    #[serde(default = "yes")]
    pub bias: bool,
    /// How many learned vectors stand in front: one that gathers for classes, and a second one that gathers for the
    /// classes of a teacher.
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
    /// Whether the settings can work in a model of this length.
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
        let [rows, columns] = self.grid();
        let positions = rows.saturating_mul(columns).saturating_add(self.tokens);
        if positions != length {
            return refuse(
                "length",
                format!(
                    "{length} differs from the {positions} patches and tokens of a picture; use {positions}"
                ),
            );
        }
        Ok(())
    }

    /// Rows and columns of patches.
    pub fn grid(&self) -> [usize; 2] {
        [self.height / self.size, self.width / self.size]
    }
}

/// Maps squares of pixels to vectors.
#[derive(Module, Debug)]
pub struct Patches {
    map: Linear,
    /// `[1, width]`
    class_token: Option<Param<Tensor<2>>>,
    /// `[1, width]`
    distillation_token: Option<Param<Tensor<2>>>,
    #[module(skip)]
    config: PatchesConfig,
}

impl Patches {
    /// A map to vectors of this width.
    pub fn new(
        config: &PatchesConfig,
        width: usize,
        deviation: f64,
        initial: &mut Initializer,
    ) -> Self {
        let pixels = config.channels * config.size * config.size;
        let map = Linear::new(pixels, width, config.bias, deviation, initial);
        let mut token = |there: bool| there.then(|| initial.normal([1, width], deviation));
        Self {
            map,
            class_token: token(config.tokens > 0),
            distillation_token: token(config.tokens > 1),
            config: *config,
        }
    }

    /// The device of its weights.
    pub(crate) fn device(&self) -> Device {
        self.map.weight.lazy_device()
    }

    /// `[batch, channels, height, width]` to the learned vectors and one per patch, row by row, `[batch, length, width]`,
    /// and the rows and columns of patches.
    ///
    /// # Panics
    /// When the picture has other channels, or is no whole number of patches.
    pub fn forward(&self, pixels: Tensor<4>) -> (Tensor<3>, [usize; 2]) {
        let [batch, channels, height, width] = pixels.dims();
        let size = self.config.size;
        assert!(
            channels == self.config.channels
                && height.is_multiple_of(size)
                && width.is_multiple_of(size),
            "patches: pixels {:?} do not fit {} channels and patches of {size}",
            pixels.dims(),
            self.config.channels
        );
        let grid = [height / size, width / size];
        let [rows, columns] = grid;
        let patches = pixels
            .reshape([batch, channels, rows, size, columns, size])
            .permute([0, 2, 4, 1, 3, 5])
            .reshape([batch, rows * columns, channels * size * size]);
        let mapped = self.map.forward(patches);
        let [_, _, width] = mapped.dims();
        let tokens = [&self.class_token, &self.distillation_token];
        let mut parts: Vec<Tensor<3>> = tokens
            .into_iter()
            .flatten()
            .map(|token| token.val().unsqueeze_dim::<3>(0).expand([batch, 1, width]))
            .collect();
        parts.push(mapped);
        (Tensor::cat(parts, 1), grid)
    }
}
