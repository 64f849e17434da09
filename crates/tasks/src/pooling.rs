//! How a folder of sentence-transformers wants vectors to be made. Reimers and Gurevych 2019.

use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::TaskError;

/// How one vector is made of a text's states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The mean of all tokens.
    Mean,
    /// The first token's.
    First,
    /// The last token's.
    Last,
    /// The largest number of all tokens, in each place.
    Largest,
}

/// What a folder of sentence-transformers says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentenceFolder {
    /// How one vector is made.
    pub pooling: Pooling,
    /// Whether it is given length one.
    pub normalize: bool,
    /// Texts with more tokens are cut.
    pub longest: Option<usize>,
}

/// Names the modules.
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
struct PoolingWords {
    pooling_mode_cls_token: bool,
    pooling_mode_mean_tokens: bool,
    pooling_mode_max_tokens: bool,
    pooling_mode_lasttoken: bool,
    pooling_mode_mean_sqrt_len_tokens: bool,
    pooling_mode_weightedmean_tokens: bool,
}

impl SentenceFolder {
    /// Reads `modules.json` and what it names; none where a folder has no such file.
    pub fn of(folder: &Path) -> Result<Option<Self>, TaskError> {
        let path = folder.join(MODULES);
        if !path.exists() {
            return Ok(None);
        }
        let mut found = Self {
            pooling: Pooling::Mean,
            normalize: false,
            longest: longest(folder)?,
        };
        let mut pooled = false;
        for (kind, place) in modules(&path)? {
            match kind {
                Kind::Transformer => {}
                Kind::Pooling => {
                    found.pooling = pooling(&folder.join(place).join("config.json"))?;
                    pooled = true;
                }
                Kind::Normalize => found.normalize = true,
            }
        }
        match pooled {
            true => Ok(Some(found)),
            false => Err(wrong(
                &path,
                "there is no Pooling module; add one".to_owned(),
            )),
        }
    }

    /// The files of a folder that say what its modules are, as its `modules.json` names them; that file aside.
    pub fn module_files(folder: &Path) -> Result<Vec<PathBuf>, TaskError> {
        let path = folder.join(MODULES);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let places = modules(&path)?.into_iter();
        let files = places
            // The model itself lies beside the list.
            .filter(|(_, place)| !place.as_os_str().is_empty())
            .map(|(kind, place)| (kind, place.join("config.json")))
            // Only poolings must have settings.
            .filter(|(kind, file)| *kind == Kind::Pooling || folder.join(file).exists());
        Ok(files.map(|(_, file)| file).collect())
    }
}

/// The modules that a modules.json names, and where they lie in its folder.
fn modules(path: &Path) -> Result<Vec<(Kind, PathBuf)>, TaskError> {
    let modules: Vec<Module> = read(path)?;
    let judged = modules.into_iter().map(|module| {
        if !leads_down(&module.path) {
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
    judged.collect()
}

/// Whether a path stays in the folder that it is taken from.
fn leads_down(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    parts.all(|part| matches!(part, Component::Normal(_))) && !path.contains(char::is_control)
}

fn longest(folder: &Path) -> Result<Option<usize>, TaskError> {
    let path = folder.join("sentence_bert_config.json");
    if !path.exists() {
        return Ok(None);
    }
    let words: Value = read(&path)?;
    if words["do_lower_case"].as_bool().unwrap_or(false) {
        let problem =
            "do_lower_case true is not supported; it must be false, and the tokenizer's own";
        return Err(wrong(&path, problem.to_owned()));
    }
    match &words["max_seq_length"] {
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
    let words: PoolingWords = read(path)?;
    let modes = [
        (words.pooling_mode_mean_tokens, Some(Pooling::Mean)),
        (words.pooling_mode_cls_token, Some(Pooling::First)),
        (words.pooling_mode_lasttoken, Some(Pooling::Last)),
        (words.pooling_mode_max_tokens, Some(Pooling::Largest)),
        (words.pooling_mode_mean_sqrt_len_tokens, None),
        (words.pooling_mode_weightedmean_tokens, None),
    ];
    let said: Vec<Option<Pooling>> = modes
        .into_iter()
        .filter_map(|(said, mode)| said.then_some(mode))
        .collect();
    match said.as_slice() {
        [Some(mode)] => Ok(*mode),
        _ => Err(wrong(
            path,
            "these poolings are not supported; one of mean, cls, lasttoken or max alone is"
                .to_owned(),
        )),
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, TaskError> {
    let text = std::fs::read_to_string(path).map_err(|error| wrong(path, error.to_string()))?;
    serde_json::from_str(&text)
        .map_err(|error| wrong(path, format!("{error}; fetch or save it again")))
}

fn wrong(path: &Path, problem: String) -> TaskError {
    TaskError::Settings {
        path: path.to_owned(),
        problem,
    }
}
