//! The preprocessing steps, each with its keys.

use serde_json::Value;

use super::Config;
use crate::{ImageError, Normalize, Resampling, Resize, ResizeTo, Size};

impl Config {
    pub(super) fn resize(&self, default: Option<Resize>) -> Result<Option<Resize>, ImageError> {
        let Some(default) = self.step("do_resize", default)? else {
            return Ok(None);
        };
        let to = match self.get("size") {
            Some(value) => self.target(value)?,
            None => default.to,
        };
        let filter = match self.get("resample") {
            Some(value) => match value.as_u64() {
                Some(0) => Resampling::Nearest,
                Some(1) => Resampling::Lanczos,
                Some(2) => Resampling::Bilinear,
                Some(3) => Resampling::Bicubic,
                _ => {
                    let expected = "0 (nearest), 1 (Lanczos), 2 (bilinear) or 3 (bicubic)";
                    return Err(self.invalid("resample", value, expected));
                }
            },
            None => default.filter,
        };
        Ok(Some(Resize { to, filter }))
    }

    fn target(&self, value: &Value) -> Result<ResizeTo, ImageError> {
        let expected =
            "a number of pixels, {\"height\": …, \"width\": …} or {\"shortest_edge\": …}";
        let edge = |edge: &Value| length(edge).ok_or_else(|| self.invalid("size", value, expected));
        if let Some(keys) = value.as_object()
            && let (Some(shortest), 1) = (keys.get("shortest_edge"), keys.len())
        {
            return Ok(ResizeTo::ShortestEdge(edge(shortest)?));
        }
        // A number is a square by default.
        if value.is_number() && !self.bool("default_to_square", true)? {
            return Ok(ResizeTo::ShortestEdge(edge(value)?));
        }
        match size(value) {
            Some(size) => Ok(ResizeTo::Exact(size)),
            None => Err(self.invalid("size", value, expected)),
        }
    }

    pub(super) fn crop(&self, default: Option<Size>) -> Result<Option<Size>, ImageError> {
        let enabled = self.bool("do_center_crop", default.is_some())?;
        match (enabled, self.get("crop_size")) {
            (false, _) => Ok(None),
            (true, Some(value)) => match size(value) {
                Some(size) => Ok(Some(size)),
                None => {
                    let expected = "a number of pixels or {\"height\": …, \"width\": …}";
                    Err(self.invalid("crop_size", value, expected))
                }
            },
            (true, None) => match default {
                Some(size) => Ok(Some(size)),
                // ViT has no default crop size; transformers fails here too.
                None => Err(self.invalid(
                    "crop_size",
                    &Value::Null,
                    "a size, since do_center_crop is true",
                )),
            },
        }
    }

    pub(super) fn rescale(&self, default: Option<f64>) -> Result<Option<f64>, ImageError> {
        let Some(default) = self.step("do_rescale", default)? else {
            return Ok(None);
        };
        match self.get("rescale_factor") {
            Some(value) => match value.as_f64() {
                Some(factor) if factor > 0.0 => Ok(Some(factor)),
                _ => Err(self.invalid("rescale_factor", value, "a number above zero")),
            },
            None => Ok(Some(default)),
        }
    }

    pub(super) fn normalize(
        &self,
        default: Option<Normalize>,
    ) -> Result<Option<Normalize>, ImageError> {
        let Some(default) = self.step("do_normalize", default)? else {
            return Ok(None);
        };
        Ok(Some(Normalize {
            mean: self.channels("image_mean", default.mean, |_| true)?,
            std: self.channels("image_std", default.std, |value| value > 0.0)?,
        }))
    }

    /// One number per channel, or one for all.
    fn channels(
        &self,
        key: &str,
        default: [f64; 3],
        allowed: fn(f64) -> bool,
    ) -> Result<[f64; 3], ImageError> {
        let Some(value) = self.get(key) else {
            return Ok(default);
        };
        let numbers: Option<Vec<f64>> = match value {
            Value::Array(values) => values.iter().map(Value::as_f64).collect(),
            value => value.as_f64().map(|number| vec![number; 3]),
        };
        numbers
            .and_then(|numbers| <[f64; 3]>::try_from(numbers).ok())
            // Checked as f32, to which they are converted.
            .filter(|numbers| {
                numbers
                    .iter()
                    .all(|&number| (number as f32).is_finite() && allowed(number))
            })
            .ok_or_else(|| {
                let above = if key == "image_std" {
                    " above zero"
                } else {
                    ""
                };
                self.invalid(
                    key,
                    value,
                    &format!("one number{above}, or three for red, green and blue"),
                )
            })
    }
}

/// A length in pixels.
fn length(value: &Value) -> Option<usize> {
    usize::try_from(value.as_u64()?)
        .ok()
        .filter(|&pixels| pixels > 0)
}

/// The side of a square, an object of height and width, or a list of both.
fn size(value: &Value) -> Option<Size> {
    let size = match value {
        Value::Object(keys) if keys.len() == 2 => Size {
            height: length(keys.get("height")?)?,
            width: length(keys.get("width")?)?,
        },
        Value::Array(edges) if edges.len() == 2 => Size {
            height: length(&edges[0])?,
            width: length(&edges[1])?,
        },
        side => Size::square(length(side)?),
    };
    size.is_allowed().then_some(size)
}
