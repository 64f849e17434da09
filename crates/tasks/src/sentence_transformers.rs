//! The pooling settings of a sentence-transformers folder. Reimers and Gurevych 2019.

use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::TaskError;

/// How the hidden states of a text become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The mean over all tokens.
    Mean,
    /// The state of the first token, `[CLS]`.
    Cls,
    /// The state of the last token.
    LastToken,
    /// The maximum over all tokens.
    Max,
}

/// The settings of a sentence-transformers folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentenceTransformersConfig {
    /// Pooling over the tokens.
    pub pooling: Pooling,
    /// Whether embeddings are L2-normalized.
    pub normalize: bool,
    /// The tokens that a text may have (`max_seq_length`); a longer one is refused or truncated, as the caller says.
    pub max_length: Option<usize>,
}

/// The list of modules.
const MODULES: &str = "modules.json";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Transformer,
    Pooling,
    Normalize,
}

#[derive(Deserialize)]
struct Module {
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PoolingConfigJson {
    pooling_mode_cls_token: bool,
    pooling_mode_mean_tokens: bool,
    pooling_mode_max_tokens: bool,
    pooling_mode_lasttoken: bool,
    pooling_mode_mean_sqrt_len_tokens: bool,
    pooling_mode_weightedmean_tokens: bool,
}

impl SentenceTransformersConfig {
    /// Reads `modules.json` and the files that it names; none if there is no such file.
    pub fn from_folder(folder: &Path) -> Result<Option<Self>, TaskError> {
        let path = folder.join(MODULES);
        if !path.exists() {
            return Ok(None);
        }
        let mut found = Self {
            pooling: Pooling::Mean,
            normalize: false,
            max_length: max_length(folder)?,
        };
        let mut has_pooling = false;
        for (kind, subfolder) in modules(&path)? {
            match kind {
                Kind::Transformer => {}
                Kind::Pooling => {
                    found.pooling = pooling(&folder.join(subfolder).join("config.json"))?;
                    has_pooling = true;
                }
                Kind::Normalize => found.normalize = true,
            }
        }
        match has_pooling {
            true => Ok(Some(found)),
            false => Err(wrong(
                &path,
                "there is no Pooling module; add one".to_owned(),
            )),
        }
    }

    /// The config files of the modules that `modules.json` names.
    pub fn module_files(folder: &Path) -> Result<Vec<PathBuf>, TaskError> {
        let path = folder.join(MODULES);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let modules = modules(&path)?.into_iter();
        let files = modules
            // The model itself is in the folder, not below it.
            .filter(|(_, subfolder)| !subfolder.as_os_str().is_empty())
            .map(|(kind, subfolder)| (kind, subfolder.join("config.json")))
            // Only pooling modules must have a config.
            .filter(|(kind, file)| *kind == Kind::Pooling || folder.join(file).exists());
        Ok(files.map(|(_, file)| file).collect())
    }
}

/// The modules of a modules.json and their folders.
fn modules(path: &Path) -> Result<Vec<(Kind, PathBuf)>, TaskError> {
    let modules: Vec<Module> = read(path)?;
    let checked = modules.into_iter().map(|module| {
        if !stays_inside(&module.path) {
            let problem = format!(
                "the module path {:?} does not lead into the folder; name one beside modules.json",
                module.path
            );
            return Err(wrong(path, problem));
        }
        let kind = match module.kind.rsplit('.').next().unwrap_or_default() {
            "Transformer" => Kind::Transformer,
            "Pooling" => Kind::Pooling,
            "Normalize" => Kind::Normalize,
            kind => {
                let problem = format!(
                    "module type {kind:?} is not supported; supported are Transformer, Pooling, Normalize"
                );
                return Err(wrong(path, problem));
            }
        };
        Ok((kind, module.path.into()))
    });
    checked.collect()
}

/// Whether a path stays below its folder.
fn stays_inside(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    parts.all(|part| matches!(part, Component::Normal(_))) && !path.contains(char::is_control)
}

fn max_length(folder: &Path) -> Result<Option<usize>, TaskError> {
    let path = folder.join("sentence_bert_config.json");
    if !path.exists() {
        return Ok(None);
    }
    let config: Value = read(&path)?;
    if config["do_lower_case"].as_bool().unwrap_or(false) {
        let problem =
            "do_lower_case true is not supported; set it to false and lowercase in the tokenizer";
        return Err(wrong(&path, problem.to_owned()));
    }
    match &config["max_seq_length"] {
        Value::Null => Ok(None),
        length => match length.as_u64().and_then(|it| usize::try_from(it).ok()) {
            Some(length) if length > 0 => Ok(Some(length)),
            _ => Err(wrong(
                &path,
                format!(
                    "max_seq_length: {length} is not a length; use a whole number of 1 or more"
                ),
            )),
        },
    }
}

fn pooling(path: &Path) -> Result<Pooling, TaskError> {
    let config: PoolingConfigJson = read(path)?;
    let modes = [
        (config.pooling_mode_mean_tokens, Some(Pooling::Mean)),
        (config.pooling_mode_cls_token, Some(Pooling::Cls)),
        (config.pooling_mode_lasttoken, Some(Pooling::LastToken)),
        (config.pooling_mode_max_tokens, Some(Pooling::Max)),
        (config.pooling_mode_mean_sqrt_len_tokens, None),
        (config.pooling_mode_weightedmean_tokens, None),
    ];
    let enabled: Vec<Option<Pooling>> = modes
        .into_iter()
        .filter_map(|(enabled, mode)| enabled.then_some(mode))
        .collect();
    match enabled.as_slice() {
        [Some(mode)] => Ok(*mode),
        _ => Err(wrong(
            path,
            "this combination of pooling modes is not supported; use one of mean, cls, lasttoken or max alone"
                .to_owned(),
        )),
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, TaskError> {
    let text = std::fs::read_to_string(path).map_err(|error| wrong(path, error.to_string()))?;
    serde_json::from_str(&text)
        .map_err(|error| wrong(path, format!("{error}; download or save it again")))
}

fn wrong(path: &Path, problem: String) -> TaskError {
    TaskError::Settings {
        path: path.to_owned(),
        problem,
    }
}
