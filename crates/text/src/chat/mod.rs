//! Chat templates: turns a conversation into the text that a model was trained on, by the Jinja template of its folder.

mod bounds;
mod dates;
mod python;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use minijinja::value::Value as JinjaValue;
use minijinja::{Environment, Error, ErrorKind, context};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::folder::{Files, broken, role_texts, text_if_there};
use crate::{GgufTokenizer, TextError};

/// Steps that a template may take. Real ones take some hundreds per message; a loop without end must stop.
const FUEL: u64 = 1_000_000;
/// The name of the template that is used unless another is asked for.
const DEFAULT: &str = "default";

/// What was said, and by whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// "system", "user", "assistant", or what else the template knows.
    pub role: String,
    /// The text.
    pub content: String,
}

/// What comes after the last message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatEnd {
    /// The conversation ends.
    Complete,
    /// The beginning of the assistant's answer, so that the model writes the rest (`add_generation_prompt`).
    AwaitsAnswer,
}

/// The chat templates of a model folder.
#[derive(Clone, Debug)]
pub struct ChatTemplates {
    /// The file they are from, for errors.
    path: PathBuf,
    templates: BTreeMap<String, String>,
    /// Special tokens by the names that templates use, such as `bos_token`.
    tokens: Vec<(&'static str, String)>,
}

impl ChatTemplates {
    /// Reads chat_template.jinja, or else `chat_template` in tokenizer_config.json: a template, or a list of named ones.
    /// `None` if the folder has neither.
    pub fn of_folder(folder: &Path) -> Result<Option<Self>, TextError> {
        let files = Files::read(folder)?;
        let alone = |template: String| BTreeMap::from([(DEFAULT.to_owned(), template)]);
        let path = folder.join("chat_template.jinja");
        let (path, templates) = match text_if_there(&path)? {
            Some(template) => (path, alone(template)),
            None => {
                let path = folder.join("tokenizer_config.json");
                let wrong = || {
                    broken(
                        &path,
                        "`chat_template` is neither a template nor a list of named templates",
                    )
                };
                let templates = match files.config.get("chat_template") {
                    None | Some(Value::Null) => return Ok(None),
                    Some(Value::String(template)) => alone(template.clone()),
                    Some(Value::Array(list)) => list
                        .iter()
                        .map(named)
                        .collect::<Option<_>>()
                        .ok_or_else(wrong)?,
                    Some(_) => return Err(wrong()),
                };
                (path, templates)
            }
        };
        Ok(Some(Self {
            path,
            templates,
            tokens: role_texts(&files)?,
        }))
    }

    /// The one template that a GGUF file has, if it has one; `path` is the file, for errors.
    pub fn of_gguf(path: &Path, said: &GgufTokenizer) -> Option<Self> {
        let template = said.chat_template.clone()?;
        Some(Self {
            path: path.to_owned(),
            templates: BTreeMap::from([(DEFAULT.to_owned(), template)]),
            tokens: said.role_texts(),
        })
    }

    /// The names of the templates.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.templates.keys().map(String::as_str)
    }

    /// The text of a conversation, by the template called `name`, or the one called "default".
    ///
    /// Templates that ask for the date get today's, in UTC.
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
        let mut environment = environment(now);
        for (role, text) in &self.tokens {
            environment.add_global(*role, text.as_str());
        }
        let template = environment
            .template_from_str(template)
            .map_err(|error| failed(sentence(&error)))?;
        let values = context! {
            messages => messages,
            add_generation_prompt => end == ChatEnd::AwaitsAnswer,
            tools => JinjaValue::from(()),
            documents => JinjaValue::from(()),
        };
        bounds::render(&template, values, sentence).map_err(failed)
    }
}

fn named(entry: &Value) -> Option<(String, String)> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
    Some((text("name")?, text("template")?))
}

/// Jinja as Hugging Face sets it up, with the methods that Python's values have.
fn environment(now: SystemTime) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_fuel(Some(FUEL));
    bounds::set(&mut environment);
    environment.add_filter("tojson", python::to_json);
    environment.add_function(
        "raise_exception",
        |message: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        },
    );
    environment.add_function("strftime_now", move |format: String| {
        dates::format(now, &format)
    });
    environment
}

/// What went wrong and in which line, without line breaks.
fn sentence(error: &Error) -> String {
    let what = match error.detail() {
        // The text is the only thing that is written.
        _ if error.kind() == ErrorKind::WriteFailure => bounds::too_long(),
        Some(detail) if error.kind() == ErrorKind::InvalidOperation => detail.to_owned(),
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    let what = what.replace(['\n', '\r'], " ");
    let what: String = what.chars().map(shown).collect();
    match error.line() {
        Some(line) => format!("{what}, in line {line}"),
        None => what,
    }
}

/// A character as a message shows it: templates may quote what would change how a terminal looks.
fn shown(character: char) -> String {
    match character.is_control() {
        true => character.escape_debug().collect(),
        false => character.to_string(),
    }
}
