//! preprocessor_config.json, in Hugging Face's words. What it says is honoured or refused: a key that would change the
//! numbers and is not supported is an error with its value. Keys that change nothing (`return_tensors`, names of labels)
//! are left alone, and `null` means absent, as in transformers.

mod steps;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::{ImageError, Preprocessor};

/// The processors whose settings are read, and what they do where a setting is absent. The names with `Fast`, `Pil` and
/// `FeatureExtractor` are of the same processor, of other ages.
const TYPES: [Type; 2] = [
    Type {
        model: "ViT",
        defaults: || Preprocessor::default_vit(224),
    },
    Type {
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

struct Type {
    model: &'static str,
    defaults: fn() -> Preprocessor,
}

/// Keys that change the numbers in processors of other models, or in older ones.
const UNSUPPORTED: [&str; 6] = [
    "offset",
    "pad_size",
    "max_size",
    "size_divisor",
    "crop_pct",
    "reducing_gap",
];

impl Preprocessor {
    /// What the folder of a model says in its preprocessor_config.json. A file from before types were written is of the
    /// type of the model, as config.json names it.
    pub fn of_folder(folder: &Path) -> Result<Self, ImageError> {
        let path = folder.join("preprocessor_config.json");
        let config = Config {
            keys: read(&path)?,
            path,
        };
        let defaults = match config.named_type()? {
            Some(name) => config.defaults_of(&name)?,
            None => config.defaults_of_model(&folder.join("config.json"))?,
        };
        config.preprocessor(defaults)
    }
}

/// The file's keys, and its path for errors.
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

    fn named_type(&self) -> Result<Option<String>, ImageError> {
        for key in ["image_processor_type", "feature_extractor_type"] {
            if let Some(value) = self.get(key) {
                let name = value
                    .as_str()
                    .ok_or_else(|| self.bad(key, value, "a name"))?;
                return Ok(Some(name.to_owned()));
            }
        }
        Ok(None)
    }

    fn defaults_of(&self, name: &str) -> Result<Preprocessor, ImageError> {
        for Type { model, defaults } in TYPES {
            if name
                .strip_prefix(model)
                .is_some_and(|suffix| SUFFIXES.contains(&suffix))
            {
                return Ok(defaults());
            }
        }
        Err(self.unsupported_type(name))
    }

    fn defaults_of_model(&self, path: &Path) -> Result<Preprocessor, ImageError> {
        let name = match read(path) {
            Ok(config) => config
                .get("model_type")
                .and_then(Value::as_str)
                .map(str::to_owned),
            // A folder with nothing but the preprocessor's file is a folder without a type.
            Err(ImageError::Io { .. }) => None,
            Err(error) => return Err(error),
        };
        let name =
            name.unwrap_or_else(|| "unknown (it names none, nor does config.json)".to_owned());
        for Type { model, defaults } in TYPES {
            if model.to_lowercase() == name {
                return Ok(defaults());
            }
        }
        Err(self.unsupported_type(&name))
    }

    fn unsupported_type(&self, found: &str) -> ImageError {
        let names = TYPES
            .map(|Type { model, .. }| SUFFIXES.map(|suffix| format!("{model}{suffix}")).join(", "));
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
            // Images are RGB from the start.
            "do_convert_rgb",
        ];
        for (key, value) in &self.keys {
            let step = key.starts_with("do_") && !STEPS.contains(&key.as_str());
            let refused = step || UNSUPPORTED.contains(&key.as_str());
            if refused && !matches!(value, Value::Null | Value::Bool(false)) {
                return Err(self.bad(key, value, "false, or no such key"));
            }
            if key.ends_with("data_format") && !value.is_null() && value != "channels_first" {
                return Err(self.bad(key, value, "\"channels_first\""));
            }
        }
        Ok(())
    }

    /// A step that is there unless the file says otherwise; both processors have it.
    fn step<T>(&self, key: &str, default: Option<T>) -> Result<Option<T>, ImageError> {
        let present = self.truth(key, default.is_some())?;
        Ok(default.filter(|_| present))
    }

    fn truth(&self, key: &str, default: bool) -> Result<bool, ImageError> {
        match self.get(key) {
            Some(value) => value
                .as_bool()
                .ok_or_else(|| self.bad(key, value, "true or false")),
            None => Ok(default),
        }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.keys.get(key).filter(|value| !value.is_null())
    }

    fn bad(&self, key: &str, value: &Value, expected: &str) -> ImageError {
        ImageError::Setting {
            path: self.path.clone(),
            key: key.to_owned(),
            value: value.to_string(),
            expected: expected.to_owned(),
        }
    }
}
