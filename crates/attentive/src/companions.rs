//! What comes with a model besides its weights, wherever it lies: in a Hugging Face folder, or in a GGUF file.
//!
//! This is where the rooms of text and of files meet; neither knows the other.

use std::path::Path;

use attentive_formats::FileError;
use attentive_formats::gguf::{self, Metadata};
use attentive_model::checkpoint::is_gguf;
use attentive_text::{ChatTemplates, GgufTokenizer, TextError, Tokenizer};

/// The tokenizer of a model, if it has one.
pub fn tokenizer(model: &Path) -> Result<Option<Tokenizer>, TextError> {
    if !is_gguf(model) {
        return Tokenizer::of_folder(model);
    }
    let said = of_file(model)?;
    said.map(|said| Tokenizer::of_gguf(model, &said))
        .transpose()
}

/// The chat templates of a model, if it has some.
pub fn chat_templates(model: &Path) -> Result<Option<ChatTemplates>, TextError> {
    if !is_gguf(model) {
        return ChatTemplates::of_folder(model);
    }
    let said = of_file(model)?;
    Ok(said.and_then(|said| ChatTemplates::of_gguf(model, &said)))
}

/// The files of a folder that say what a GGUF file says of its tokenizer, by their names.
pub fn tokenizer_files(file: &Path) -> Result<Vec<(&'static str, String)>, TextError> {
    let Some(said) = of_file(file)? else {
        return Ok(Vec::new());
    };
    let tokenizer = Tokenizer::of_gguf(file, &said)?;
    // Names of special tokens go beside it: a template asks for them, and tokenizer.json does not say which is which.
    let name = |id: Option<u32>| id.and_then(|id| said.tokens.get(id as usize));
    let roles = serde_json::json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": name(said.beginning),
        "eos_token": name(said.end),
        "unk_token": name(said.unknown),
        "pad_token": name(said.padding),
    });
    let template = said.chat_template.map(|text| ("chat_template.jinja", text));
    let files = [
        ("tokenizer.json", tokenizer.to_json()?),
        ("tokenizer_config.json", roles.to_string()),
    ];
    Ok(files.into_iter().chain(template).collect())
}

/// What a file says of its tokenizer, if it has one.
fn of_file(path: &Path) -> Result<Option<GgufTokenizer>, TextError> {
    let (_, metadata) = gguf::open(path).map_err(|error| match error {
        FileError::Io { path, source } => TextError::Io { path, source },
        FileError::Broken { path, problem } => broken(&path, problem),
    })?;
    described(&metadata).map_err(|cause| broken(path, cause))
}

fn broken(path: &Path, cause: String) -> TextError {
    TextError::BrokenTokenizerFile {
        path: path.to_owned(),
        cause,
    }
}

fn described(metadata: &Metadata) -> Result<Option<GgufTokenizer>, String> {
    let text = |key: &str| value(metadata, key, "a text", |key| metadata.text(key));
    let flag = |key: &str| value(metadata, key, "a bool", |key| metadata.flag(key));
    let id = |key: &str| {
        let id = |key: &str| metadata.integer(key).and_then(|it| it.try_into().ok());
        value(metadata, key, "a token id", id)
    };
    let texts = |key: &str| value(metadata, key, "a list of texts", |key| metadata.texts(key));
    let Some(model) = text("tokenizer.ggml.model")?.filter(|it| *it != "none") else {
        return Ok(None);
    };
    let scores = value(
        metadata,
        "tokenizer.ggml.scores",
        "a list of floats",
        |key| metadata.numbers(key),
    )?;
    let types = value(
        metadata,
        "tokenizer.ggml.token_type",
        "a list of whole numbers",
        |key| metadata.integers(key),
    )?;
    Ok(Some(GgufTokenizer {
        model: model.to_owned(),
        pre: text("tokenizer.ggml.pre")?.map(str::to_owned),
        tokens: texts("tokenizer.ggml.tokens")?.unwrap_or_default().to_vec(),
        scores: scores.unwrap_or_default(),
        types: types.unwrap_or_default(),
        merges: texts("tokenizer.ggml.merges")?.unwrap_or_default().to_vec(),
        beginning: id("tokenizer.ggml.bos_token_id")?,
        end: id("tokenizer.ggml.eos_token_id")?,
        unknown: id("tokenizer.ggml.unknown_token_id")?,
        padding: id("tokenizer.ggml.padding_token_id")?,
        add_beginning: flag("tokenizer.ggml.add_bos_token")?,
        add_end: flag("tokenizer.ggml.add_eos_token")?,
        add_space: flag("tokenizer.ggml.add_space_prefix")?,
        chat_template: text("tokenizer.chat_template")?.map(str::to_owned),
    }))
}

/// The value of a key, if the key is there; it must then be of the type that is needed.
fn value<T>(
    metadata: &Metadata,
    key: &str,
    needed: &str,
    get: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, String> {
    let Some(found) = metadata.get(key) else {
        return Ok(None);
    };
    let problem = || format!("{key} is {}, and must be {needed}", found.type_name());
    get(key).map(Some).ok_or_else(problem)
}
