//! Recipes as text: TOML, changes of single keys, and errors that name the key and the nearest right one.

use serde::Deserialize;
use toml::{Table, Value};

use crate::Recipe;

/// What is wrong with a recipe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecipeError {
    /// The text is not TOML.
    #[error("{0}")]
    Syntax(String),
    /// A key that no recipe has.
    #[error("{place}there is no key `{key}`{}", suggestion(nearest))]
    UnknownKey {
        /// Where in the recipe, with a colon, or nothing for the top.
        place: String,
        /// The key.
        key: String,
        /// The right key that looks most like it.
        nearest: Option<String>,
    },
    /// A value of the wrong type, or a key that is missing.
    #[error("{place}{problem}")]
    Misfit {
        /// Where in the recipe, with a colon, or nothing for the top.
        place: String,
        /// What is wrong.
        problem: String,
    },
    /// A value that cannot work.
    #[error("{key}: {problem}")]
    OutOfRange {
        /// The key, as a path.
        key: String,
        /// The value and the range.
        problem: String,
    },
    /// A change that is not `key=value`.
    #[error("`{0}` is not key=value; write for example training.steps=500")]
    NotAssignment(String),
    /// A change below something that has no keys.
    #[error("{path}: `{parent}` is a value and has no keys below it")]
    NoSuchPlace {
        /// The path that was given.
        path: String,
        /// The part that is a value.
        parent: String,
    },
    /// A change of a list entry that is not there.
    #[error("{path}: the list has {length} entries, numbered from 0")]
    NoSuchEntry {
        /// The path that was given.
        path: String,
        /// How many entries there are.
        length: usize,
    },
}

fn suggestion(nearest: &Option<String>) -> String {
    match nearest {
        Some(key) => format!("; did you mean `{key}`?"),
        None => String::new(),
    }
}

impl Recipe {
    /// Reads a recipe, makes the changes (`training.steps=500`), and checks every value.
    pub fn parse(text: &str, changes: &[String]) -> Result<Self, RecipeError> {
        let mut tree: Table = toml::from_str(text)
            .map_err(|error| RecipeError::Syntax(error.to_string().trim_end().to_owned()))?;
        for change in changes {
            assign(&mut tree, change)?;
        }
        Self::from_tree(Value::Table(tree))
    }

    /// The recipe with changes.
    pub fn with_changes(&self, changes: &[String]) -> Result<Self, RecipeError> {
        Self::parse(&self.to_text(), changes)
    }

    /// The recipe as TOML.
    pub fn to_text(&self) -> String {
        toml::to_string(self).expect("recipes serialize")
    }

    fn from_tree(tree: Value) -> Result<Self, RecipeError> {
        let recipe: Self = serde_path_to_error::deserialize(tree).map_err(|error| {
            let path = error.path().to_string().replace('[', ".").replace(']', "");
            explain(&path, &error.into_inner().to_string())
        })?;
        recipe.validate()?;
        Ok(recipe)
    }
}

/// Makes serde's message about a key into one that suggests the right key.
fn explain(path: &str, message: &str) -> RecipeError {
    // What follows the first line repeats the path.
    let message = message.lines().next().unwrap_or_default();
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let unknown_field = message.starts_with("unknown field");
    if let ([key, expected @ ..], true) = (quoted.as_slice(), unknown_field) {
        // Inside a tagged value the path ends at the value, elsewhere at the key itself.
        let parent = path.strip_suffix(key).unwrap_or(path).trim_end_matches('.');
        let nearest = expected
            .iter()
            .map(|name| (strsim::damerau_levenshtein(key, name), *name))
            .min()
            .filter(|(distance, name)| *distance <= 1 + name.len() / 2)
            .map(|(_, name)| name.to_owned());
        return RecipeError::UnknownKey {
            place: place(parent),
            key: (*key).to_owned(),
            nearest,
        };
    }
    RecipeError::Misfit {
        place: place(path),
        problem: message.to_owned(),
    }
}

fn place(path: &str) -> String {
    match path {
        "" | "." => String::new(),
        path => format!("{path}: "),
    }
}

/// Makes one change in the tree. Tables on the way are made where they lack: a wrong name is found when the tree is read.
fn assign(tree: &mut Table, change: &str) -> Result<(), RecipeError> {
    let (path, value) = change
        .split_once('=')
        .ok_or_else(|| RecipeError::NotAssignment(change.to_owned()))?;
    let path = path.trim();
    if path.is_empty() || path.split('.').any(str::is_empty) {
        return Err(RecipeError::NotAssignment(change.to_owned()));
    }
    let value = value.trim();
    // A bare word is a string: `head=separate` needs no quotes.
    let value = Probe::parse(value).unwrap_or_else(|| Value::String(value.to_owned()));
    let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
    let mut at = Place::Table(tree);
    for part in parents.split('.').filter(|part| !part.is_empty()) {
        at = at.below(part, path)?;
    }
    at.put(last, path, value)
}

#[derive(Deserialize)]
struct Probe {
    value: Value,
}

impl Probe {
    fn parse(text: &str) -> Option<Value> {
        let probe: Self = toml::from_str(&format!("value = {text}")).ok()?;
        Some(probe.value)
    }
}

/// Something with keys or entries below it.
enum Place<'t> {
    Table(&'t mut Table),
    List(&'t mut Vec<Value>),
}

impl<'t> Place<'t> {
    fn below(self, part: &str, path: &str) -> Result<Self, RecipeError> {
        let value = match self {
            Self::Table(table) => table
                .entry(part)
                .or_insert_with(|| Value::Table(Table::new())),
            Self::List(list) => entry(list, part, path)?,
        };
        match value {
            Value::Table(table) => Ok(Self::Table(table)),
            Value::Array(list) => Ok(Self::List(list)),
            _ => Err(RecipeError::NoSuchPlace {
                path: path.to_owned(),
                parent: part.to_owned(),
            }),
        }
    }

    fn put(self, part: &str, path: &str, value: Value) -> Result<(), RecipeError> {
        match self {
            Self::Table(table) => {
                table.insert(part.to_owned(), value);
            }
            Self::List(list) => *entry(list, part, path)? = value,
        }
        Ok(())
    }
}

fn entry<'t>(list: &'t mut [Value], part: &str, path: &str) -> Result<&'t mut Value, RecipeError> {
    let length = list.len();
    let found = part
        .parse::<usize>()
        .ok()
        .and_then(|index| list.get_mut(index));
    found.ok_or_else(|| RecipeError::NoSuchEntry {
        path: path.to_owned(),
        length,
    })
}
