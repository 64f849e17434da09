//! Parses preprocessor_config.json. Every setting is either honored or refused: an unsupported key that would change pixel values
//! is an error. Keys without effect on them (`return_tensors`, label names) are ignored, and `null` means absent, as in
//! transformers.

mod steps;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::{ImageError, Preprocessor};

/// The supported processors and their defaults. The suffixes are backends and former names of the same processor.
const PROCESSORS: [Processor; 2] = [
    Processor {
        model: "ViT",
        defaults: || Preprocessor::default_vit(224),
    },
    Processor {
        model: "DeiT",
        defaults: Preprocessor::default_deit,
    },
];
const SUFFIXES: [&str; 4] = [
    "ImageProcessor",
    "ImageProcessorFast",
    "ImageProcessorPil",
    "FeatureExtractor",
];

struct Processor {
    model: &'static str,
    defaults: fn() -> Preprocessor,
}

/// Keys that affect pixel values in other or older processors.
const UNSUPPORTED: [&str; 6] = [
    "offset",
    "pad_size",
    "max_size",
    "size_divisor",
    "crop_pct",
    "reducing_gap",
];

impl Preprocessor {
    /// Reads preprocessor_config.json of a model folder. Old files do not name a processor; then `model_type` of config.json
    /// decides.
    ///
    /// A folder without the file is an error, as in transformers: models of one type were trained on different sizes and
    /// colors. [`Preprocessor::default_vit`] and [`Preprocessor::default_deit`] are the defaults of the types.
    pub fn from_folder(folder: &Path) -> Result<Self, ImageError> {
        let path = folder.join("preprocessor_config.json");
        if folder.is_dir() && !path.exists() {
            return Err(ImageError::NoConfig {
                folder: folder.to_owned(),
                processor: processor_of_model(folder),
            });
        }
        let config = Config {
            keys: read(&path)?,
            path,
        };
        let defaults = match config.processor_name()? {
            Some(name) => config.defaults_of(&name)?,
            None => config.defaults_of_model(&folder.join("config.json"))?,
        };
        config.preprocessor(defaults)
    }
}

/// The processor of the model type in config.json; ViT's if there is none.
fn processor_of_model(folder: &Path) -> &'static str {
    let config = read(&folder.join("config.json")).unwrap_or_default();
    match config.get("model_type").and_then(Value::as_str) {
        Some("deit") => "DeiTImageProcessor",
        _ => "ViTImageProcessor",
    }
}

/// The parsed file, and its path for errors.
struct Config {
    path: PathBuf,
    keys: Map<String, Value>,
}

fn read(path: &Path) -> Result<Map<String, Value>, ImageError> {
    let text = std::fs::read(path).map_err(|source| ImageError::Io {
        path: path.to_owned(),
        source,
    })?;
    let broken = |problem: String| ImageError::BrokenConfig {
        path: path.to_owned(),
        problem,
    };
    match serde_json::from_slice(&text) {
        Ok(Value::Object(keys)) => Ok(keys),
        Ok(_) => Err(broken("it is not a JSON object".to_owned())),
        Err(error) => Err(broken(error.to_string())),
    }
}

impl Config {
    fn preprocessor(&self, defaults: Preprocessor) -> Result<Preprocessor, ImageError> {
        self.refuse_unsupported()?;
        Ok(Preprocessor {
            resize: self.resize(defaults.resize)?,
            crop: self.crop(defaults.crop)?,
            rescale: self.rescale(defaults.rescale)?,
            normalize: self.normalize(defaults.normalize)?,
        })
    }

    fn processor_name(&self) -> Result<Option<String>, ImageError> {
        for key in ["image_processor_type", "feature_extractor_type"] {
            if let Some(value) = self.get(key) {
                let name = value
                    .as_str()
                    .ok_or_else(|| self.invalid(key, value, "a name"))?;
                return Ok(Some(name.to_owned()));
            }
        }
        Ok(None)
    }

    fn defaults_of(&self, name: &str) -> Result<Preprocessor, ImageError> {
        for Processor { model, defaults } in PROCESSORS {
            if name
                .strip_prefix(model)
                .is_some_and(|suffix| SUFFIXES.contains(&suffix))
            {
                return Ok(defaults());
            }
        }
        Err(self.unsupported_processor(name))
    }

    fn defaults_of_model(&self, path: &Path) -> Result<Preprocessor, ImageError> {
        let name = match read(path) {
            Ok(config) => config
                .get("model_type")
                .and_then(Value::as_str)
                .map(str::to_owned),
            // No config.json means no model type.
            Err(ImageError::Io { .. }) => None,
            Err(error) => return Err(error),
        };
        let name =
            name.unwrap_or_else(|| "unknown (it names none, nor does config.json)".to_owned());
        for Processor { model, defaults } in PROCESSORS {
            if model.to_lowercase() == name {
                return Ok(defaults());
            }
        }
        Err(self.unsupported_processor(&name))
    }

    fn unsupported_processor(&self, found: &str) -> ImageError {
        let names = PROCESSORS.map(|Processor { model, .. }| {
            SUFFIXES.map(|suffix| format!("{model}{suffix}")).join(", ")
        });
        ImageError::UnsupportedType {
            path: self.path.clone(),
            found: found.to_owned(),
            supported: names.join(", "),
        }
    }

    fn refuse_unsupported(&self) -> Result<(), ImageError> {
        const STEPS: [&str; 5] = [
            "do_resize",
            "do_center_crop",
            "do_rescale",
            "do_normalize",
            // Images are always decoded to RGB.
            "do_convert_rgb",
        ];
        for (key, value) in &self.keys {
            let step = key.starts_with("do_") && !STEPS.contains(&key.as_str());
            let refused = step || UNSUPPORTED.contains(&key.as_str());
            if refused && !matches!(value, Value::Null | Value::Bool(false)) {
                return Err(self.invalid(key, value, "false, or no such key"));
            }
            if key.ends_with("data_format") && !value.is_null() && value != "channels_first" {
                return Err(self.invalid(key, value, "\"channels_first\""));
            }
        }
        Ok(())
    }

    /// A step that is enabled by default in both processors.
    fn step<T>(&self, key: &str, default: Option<T>) -> Result<Option<T>, ImageError> {
        let enabled = self.bool(key, default.is_some())?;
        Ok(default.filter(|_| enabled))
    }

    fn bool(&self, key: &str, default: bool) -> Result<bool, ImageError> {
        match self.get(key) {
            Some(value) => value
                .as_bool()
                .ok_or_else(|| self.invalid(key, value, "true or false")),
            None => Ok(default),
        }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.keys.get(key).filter(|value| !value.is_null())
    }

    fn invalid(&self, key: &str, value: &Value, expected: &str) -> ImageError {
        ImageError::Setting {
            path: self.path.clone(),
            key: key.to_owned(),
            value: value.to_string(),
            expected: expected.to_owned(),
        }
    }
}
