//! Chat templates: render a conversation into a prompt with the Jinja template of the model.

mod limits;
mod strftime;
mod tojson;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value as JinjaValue};
use minijinja::{Environment, Error, ErrorKind, context};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::folder::{Files, broken, read_text_if_exists, special_token_map};
use crate::{GgufTokenizer, TextError};

/// The step limit of a template. Real ones take a few hundred steps per message; an endless loop must stop.
const FUEL: u64 = 1_000_000;
/// The limit of what an error quotes: a template may raise one of any length.
const MAX_MESSAGE_CHARACTERS: usize = 2000;
/// The name of the default template.
const DEFAULT: &str = "default";

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// "system", "user", "assistant", or another role of the template.
    pub role: String,
    /// The text.
    pub content: String,
}

impl ChatMessage {
    /// A message of the user.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// The system message, which comes first.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// A message of the assistant.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new("assistant", content)
    }

    fn new(role: &str, content: impl Into<String>) -> Self {
        Self {
            role: role.to_owned(),
            content: content.into(),
        }
    }
}

/// What follows the last message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatEnd {
    /// Nothing.
    Complete,
    /// The start of an assistant message (`add_generation_prompt`).
    GenerationPrompt,
}

/// The chat templates of a model folder.
#[derive(Clone, Debug)]
pub struct ChatTemplates {
    /// The file, for errors.
    path: PathBuf,
    templates: BTreeMap<String, String>,
    /// Special tokens by variable name, such as `bos_token`.
    tokens: Vec<(&'static str, String)>,
}

impl ChatTemplates {
    /// Reads chat_template.jinja, or else `chat_template` in tokenizer_config.json: a template, or a list of named ones.
    /// `None` if the folder has neither.
    pub fn from_folder(folder: &Path) -> Result<Option<Self>, TextError> {
        let files = Files::read(folder)?;
        let single = |template: String| BTreeMap::from([(DEFAULT.to_owned(), template)]);
        let path = folder.join("chat_template.jinja");
        let (path, templates) = match read_text_if_exists(&path)? {
            Some(template) => (path, single(template)),
            None => {
                let path = folder.join("tokenizer_config.json");
                let invalid = || {
                    broken(
                        &path,
                        "`chat_template` is neither a template nor a list of named templates",
                    )
                };
                let templates = match files.config.get("chat_template") {
                    None | Some(Value::Null) => return Ok(None),
                    Some(Value::String(template)) => single(template.clone()),
                    Some(Value::Array(list)) => list
                        .iter()
                        .map(named)
                        .collect::<Option<_>>()
                        .ok_or_else(invalid)?,
                    Some(_) => return Err(invalid()),
                };
                (path, templates)
            }
        };
        Ok(Some(Self {
            path,
            templates,
            tokens: special_token_map(&files)?,
        }))
    }

    /// The template of a GGUF file, if it has one; `path` is the file, for errors.
    pub fn from_gguf(path: &Path, gguf: &GgufTokenizer) -> Option<Self> {
        let template = gguf.chat_template.clone()?;
        Some(Self {
            path: path.to_owned(),
            templates: BTreeMap::from([(DEFAULT.to_owned(), template)]),
            tokens: gguf.special_token_map(),
        })
    }

    /// The names of the templates.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.templates.keys().map(String::as_str)
    }

    /// Renders a conversation with the template `name`, by default "default". The date is today's, in UTC.
    pub fn render(
        &self,
        name: Option<&str>,
        messages: &[ChatMessage],
        end: ChatEnd,
    ) -> Result<String, TextError> {
        self.render_at(name, messages, end, SystemTime::now())
    }

    /// As [`ChatTemplates::render`], at a given time.
    pub fn render_at(
        &self,
        name: Option<&str>,
        messages: &[ChatMessage],
        end: ChatEnd,
        now: SystemTime,
    ) -> Result<String, TextError> {
        let failed = |cause: String| TextError::ChatTemplate {
            path: self.path.clone(),
            cause,
        };
        let name = name.unwrap_or(DEFAULT);
        let template = self.templates.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.names().collect();
            failed(format!(
                "there is no template called {name:?}, only {}",
                names.join(", ")
            ))
        })?;
        let (source, messages, tokens) = (template.clone(), messages.to_vec(), self.tokens.clone());
        // Errors are formatted within the bounds too, as they may hold deeply nested values.
        let work = move || {
            let mut environment = environment(now);
            for (role, text) in &tokens {
                environment.add_global(*role, text.as_str());
            }
            let values = context! {
                messages => JinjaValue::from(Serde(&messages)),
                add_generation_prompt => end == ChatEnd::GenerationPrompt,
                tools => JinjaValue::from(()),
                documents => JinjaValue::from(()),
            };
            let template = environment.template_from_str(&source);
            let rendered = template.and_then(|template| limits::render(&template, values));
            rendered.map_err(|error| error_message(&error))
        };
        limits::run(template, work).map_err(failed)
    }
}

fn named(entry: &Value) -> Option<(String, String)> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
    Some((text("name")?, text("template")?))
}

/// Jinja configured as in Hugging Face, with the methods of Python values.
fn environment(now: SystemTime) -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    environment.set_syntax(syntax.expect("the default delimiters are valid"));
    environment.set_fuel(Some(FUEL));
    limits::install(&mut environment);
    environment.add_filter("tojson", tojson::to_json);
    environment.add_function(
        "raise_exception",
        |message: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        },
    );
    environment.add_function("strftime_now", move |format: String| {
        strftime::format(now, &format)
    });
    environment
}

/// The error and its line, without line breaks and of bounded length.
fn error_message(error: &Error) -> String {
    let what = match error.detail() {
        // Only the rendered text is written.
        _ if error.kind() == ErrorKind::WriteFailure => limits::too_long(),
        Some(detail) if error.kind() == ErrorKind::InvalidOperation => detail.to_owned(),
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    // Bounded and escaped as by `one_line` of `formats`, on which this crate does not depend.
    let what = what.replace(['\n', '\r'], " ");
    let what = what.chars().take(MAX_MESSAGE_CHARACTERS);
    let what: String = what.map(escape_control).collect();
    match error.line() {
        Some(line) => format!("{what}, in line {line}"),
        None => what,
    }
}

/// Escapes control characters, which templates may quote and terminals may interpret.
fn escape_control(character: char) -> String {
    match character.is_control() {
        true => character.escape_debug().collect(),
        false => character.to_string(),
    }
}
