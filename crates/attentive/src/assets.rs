//! The assets of a model besides its weights: tokenizer and chat templates, from a Hugging Face folder or a GGUF file.
//!
//! Connects `text` and `formats`, which do not depend on each other.

use std::path::Path;

use attentive_checkpoint::is_gguf;
use attentive_formats::FileError;
use attentive_formats::gguf::{GgufFile, Metadata};
use attentive_text::{ChatTemplates, GgufTokenizer, TextError, Tokenizer, TokenizerOptions};

/// The tokenizer of a model, if it has one. A tokenizer.json may be given itself.
pub fn tokenizer(model: &Path) -> Result<Option<Tokenizer>, TextError> {
    tokenizer_with(model, &TokenizerOptions::default())
}

/// [`tokenizer`] with what the files of its folder do not say.
pub fn tokenizer_with(
    model: &Path,
    options: &TokenizerOptions,
) -> Result<Option<Tokenizer>, TextError> {
    let refuse_lower_case = |reason| match options.do_lower_case {
        Some(_) => Err(TextError::NoLowerCase {
            path: model.to_owned(),
            reason,
        }),
        None => Ok(()),
    };
    if model.extension().is_some_and(|ending| ending == "json") && model.is_file() {
        refuse_lower_case("a tokenizer.json settles it")?;
        return Tokenizer::load(model).map(Some);
    }
    if !is_gguf(model) {
        return Tokenizer::from_folder_with(model, options);
    }
    refuse_lower_case("a GGUF file settles it")?;
    let gguf = gguf_tokenizer(model)?;
    gguf.map(|gguf| Tokenizer::from_gguf(model, &gguf))
        .transpose()
}

/// The chat templates of a model, if it has any.
pub fn chat_templates(model: &Path) -> Result<Option<ChatTemplates>, TextError> {
    if !is_gguf(model) {
        return ChatTemplates::from_folder(model);
    }
    let gguf = gguf_tokenizer(model)?;
    Ok(gguf.and_then(|gguf| ChatTemplates::from_gguf(model, &gguf)))
}

/// Converts the tokenizer of a GGUF file to the files of a model folder, by name.
pub fn tokenizer_files(file: &Path) -> Result<Vec<(&'static str, String)>, TextError> {
    let Some(gguf) = gguf_tokenizer(file)? else {
        return Ok(Vec::new());
    };
    let tokenizer = Tokenizer::from_gguf(file, &gguf)?;
    // Chat templates need special tokens by role, which tokenizer.json lacks.
    let name = |id: Option<u32>| id.and_then(|id| gguf.tokens.get(id as usize));
    let tokenizer_config = serde_json::json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": name(gguf.bos_id),
        "eos_token": name(gguf.eos_id),
        "unk_token": name(gguf.unknown_id),
        "pad_token": name(gguf.padding_id),
    });
    let template = gguf
        .chat_template
        .map(|string| ("chat_template.jinja", string));
    let files = [
        ("tokenizer.json", tokenizer.to_json()?),
        ("tokenizer_config.json", tokenizer_config.to_string()),
    ];
    Ok(files.into_iter().chain(template).collect())
}

/// The tokenizer metadata of a GGUF file, if it has a tokenizer.
fn gguf_tokenizer(path: &Path) -> Result<Option<GgufTokenizer>, TextError> {
    // The tensors are not read: their types may be unsupported.
    let file = GgufFile::open(path).map_err(|error| match error {
        FileError::Io { path, source } => TextError::Io { path, source },
        FileError::Broken { path, problem } => broken(&path, problem),
        FileError::Unsupported { path, problem } => {
            TextError::UnsupportedTokenizer { path, problem }
        }
    })?;
    parse_tokenizer(file.metadata()).map_err(|cause| broken(path, cause))
}

fn broken(path: &Path, cause: String) -> TextError {
    TextError::BrokenTokenizerFile {
        path: path.to_owned(),
        cause,
    }
}

fn parse_tokenizer(metadata: &Metadata) -> Result<Option<GgufTokenizer>, String> {
    let string = |key: &str| value(metadata, key, "a string", |key| metadata.string(key));
    let flag = |key: &str| value(metadata, key, "a bool", |key| metadata.bool(key));
    let id = |key: &str| {
        let id = |key: &str| metadata.integer(key).and_then(|it| it.try_into().ok());
        value(metadata, key, "a token id", id)
    };
    let strings = |key: &str| {
        value(metadata, key, "an array of strings", |key| {
            metadata.strings(key)
        })
    };
    let Some(model) = string("tokenizer.ggml.model")?.filter(|it| *it != "none") else {
        return Ok(None);
    };
    let scores = value(
        metadata,
        "tokenizer.ggml.scores",
        "an array of floats",
        |key| metadata.floats(key),
    )?;
    let types = value(
        metadata,
        "tokenizer.ggml.token_type",
        "an array of integers",
        |key| metadata.integers(key),
    )?;
    Ok(Some(GgufTokenizer {
        model: model.to_owned(),
        pre: string("tokenizer.ggml.pre")?.map(str::to_owned),
        tokens: strings("tokenizer.ggml.tokens")?
            .unwrap_or_default()
            .to_vec(),
        scores: scores.unwrap_or_default(),
        types: types.unwrap_or_default(),
        merges: strings("tokenizer.ggml.merges")?
            .unwrap_or_default()
            .to_vec(),
        bos_id: id("tokenizer.ggml.bos_token_id")?,
        eos_id: id("tokenizer.ggml.eos_token_id")?,
        unknown_id: id("tokenizer.ggml.unknown_token_id")?,
        padding_id: id("tokenizer.ggml.padding_token_id")?,
        add_bos: flag("tokenizer.ggml.add_bos_token")?,
        add_eos: flag("tokenizer.ggml.add_eos_token")?,
        add_space_prefix: flag("tokenizer.ggml.add_space_prefix")?,
        chat_template: string("tokenizer.chat_template")?.map(str::to_owned),
    }))
}

/// The value of an optional key, which must be of the expected type.
fn value<T>(
    metadata: &Metadata,
    key: &str,
    expected: &str,
    get: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, String> {
    let Some(found) = metadata.get(key) else {
        return Ok(None);
    };
    let problem = || format!("{key} is {}, and must be {expected}", found.type_name());
    get(key).map(Some).ok_or_else(problem)
}
