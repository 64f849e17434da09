//! Recipes as text: TOML, changes of single keys, and errors that name the key and the nearest right one.

use attentive_model::checkpoint::{in_plain_words, one_line};
use serde::Deserialize;
use toml::{Table, Value};

use crate::Recipe;

/// What is wrong with a recipe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecipeError {
    /// The text is not TOML.
    #[error("{}", one_line(.0))]
    Syntax(String),
    /// A key that no recipe has.
    #[error(
        "{}there is no key `{}`{}",
        one_line(place),
        one_line(key),
        one_line(advice)
    )]
    UnknownKey {
        /// Where in the recipe, with a colon, or nothing for the top.
        place: String,
        /// The key.
        key: String,
        /// The right key that looks most like it, or all that there are.
        advice: String,
    },
    /// A value of the wrong type, or a key that is missing.
    #[error("{}{}", one_line(place), one_line(problem))]
    Misfit {
        /// Where in the recipe, with a colon, or nothing for the top.
        place: String,
        /// What is wrong.
        problem: String,
    },
    /// A value that cannot work.
    #[error("{}: {}", one_line(key), one_line(problem))]
    OutOfRange {
        /// The key, as a path.
        key: String,
        /// The value and the range.
        problem: String,
    },
    /// A change that is not `key=value`.
    #[error(
        "`{}` is not key=value; write for example training.steps=500",
        one_line(.0)
    )]
    NotAssignment(String),
    /// A change below something that has no keys.
    #[error(
        "{}: `{}` is a value and has no keys below it",
        one_line(path),
        one_line(parent)
    )]
    NoSuchPlace {
        /// The path that was given.
        path: String,
        /// The part that is a value.
        parent: String,
    },
    /// A change of a list entry that is not there.
    #[error("{}: the list has {length} entries, numbered from 0", one_line(path))]
    NoSuchEntry {
        /// The path that was given.
        path: String,
        /// How many entries there are.
        length: usize,
    },
}

impl Recipe {
    /// Reads a recipe, makes the changes (`training.steps=500`), and checks every value.
    pub fn parse(text: &str, changes: &[String]) -> Result<Self, RecipeError> {
        let mut tree: Table = toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            let before = text.get(..start).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|it| *it != '\n').count() + 1;
            let message = error.message().replace('\n', "; ");
            RecipeError::Syntax(format!("line {line}, column {column}: {message}"))
        })?;
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
        let recipe = read(&tree).map_err(|misfit| explain(&tree, &misfit))?;
        recipe.validate()?;
        Ok(recipe)
    }
}

/// What serde says, and the path at which it says it.
#[derive(PartialEq)]
struct Misfit {
    path: String,
    message: String,
}

fn read(tree: &Value) -> Result<Recipe, Misfit> {
    serde_path_to_error::deserialize(tree.clone()).map_err(|error| {
        let path = error.path().to_string().replace('[', ".").replace(']', "");
        let message = error.into_inner().to_string();
        Misfit {
            path: if path == "." { String::new() } else { path },
            // What follows the first line repeats the path.
            message: message.lines().next().unwrap_or_default().to_owned(),
        }
    })
}

/// Makes serde's message about a key into one that names the key and suggests the right one.
fn explain(tree: &Value, misfit: &Misfit) -> RecipeError {
    let Misfit { path, message } = misfit;
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let unknown_field = message.starts_with("unknown field");
    if let ([key, expected @ ..], true) = (quoted.as_slice(), unknown_field) {
        // Inside a tagged value the path ends at the value, elsewhere at the key itself.
        let parent = path.strip_suffix(key).unwrap_or(path).trim_end_matches('.');
        let nearest = expected
            .iter()
            .map(|name| (strsim::damerau_levenshtein(key, name), *name))
            .min()
            .filter(|(distance, name)| *distance <= 1 + name.len() / 2);
        let kind = find(tree, parent).and_then(|value| value.get("kind")?.as_str());
        let advice = match (nearest, kind, expected) {
            (Some((_, name)), _, _) => format!("; did you mean `{name}`?"),
            (None, Some(kind), []) => format!("; `{kind}` has no keys"),
            (None, Some(kind), _) => format!("; `{kind}` has the keys {}", expected.join(", ")),
            (None, None, _) => String::new(),
        };
        return RecipeError::UnknownKey {
            place: place(parent),
            key: (*key).to_owned(),
            advice,
        };
    }
    let path = match culprit(tree, misfit) {
        Some(key) => format!("{path}.{key}"),
        None => path.clone(),
    };
    RecipeError::Misfit {
        place: place(&path),
        problem: in_plain_words(message),
    }
}

/// The key of a tagged value that serde stumbles over. Serde only names the value as a whole, so each key is left out
/// in turn: without the right one, the complaint is another.
fn culprit(tree: &Value, misfit: &Misfit) -> Option<String> {
    let about_a_value = ["invalid", "unknown variant"];
    if !about_a_value
        .iter()
        .any(|it| misfit.message.starts_with(it))
    {
        return None;
    }
    let keys = find(tree, &misfit.path)?.as_table()?.keys();
    // The kind goes last: without it every complaint is another.
    let (kind, others): (Vec<_>, Vec<_>) = keys.partition(|key| *key == "kind");
    let found = others.into_iter().chain(kind).find(|key| {
        let mut without = tree.clone();
        let table = find_mut(&mut without, &misfit.path).and_then(Value::as_table_mut);
        table.is_some_and(|table| table.remove(*key).is_some())
            && read(&without).err().as_ref() != Some(misfit)
    });
    found.cloned()
}

fn find<'t>(tree: &'t Value, path: &str) -> Option<&'t Value> {
    let mut parts = path.split('.').filter(|part| !part.is_empty());
    parts.try_fold(tree, |value, part| match value {
        Value::Array(list) => list.get(part.parse::<usize>().ok()?),
        other => other.get(part),
    })
}

fn find_mut<'t>(tree: &'t mut Value, path: &str) -> Option<&'t mut Value> {
    let mut parts = path.split('.').filter(|part| !part.is_empty());
    parts.try_fold(tree, |value, part| match value {
        Value::Array(list) => list.get_mut(part.parse::<usize>().ok()?),
        other => other.get_mut(part),
    })
}

fn place(path: &str) -> String {
    match path {
        "" => String::new(),
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

#[cfg(test)]
mod tests {
    use crate::recipes::BUILT_IN;

    fn error(change: &str) -> String {
        let error = BUILT_IN[0].parse(&[change.to_owned()]).unwrap_err();
        error.to_string()
    }

    #[test]
    fn errors_inside_tagged_values_name_the_key() {
        let errors = [
            "model.blocks.0.attention.heads=four",
            "model.blocks.0.attention.bias=1",
            "model.blocks.0.feed_forward.activation=mish",
            "model.blocks.0.attention.kind=sparse",
            "model.blocks.0.attention={kind=\"full\"}",
            "model.blocks.0.attention={kind=\"full\", heads=4, window=64}",
            "model.blocks.0.attention={kind=\"sliding_window\", heads=4, windows=64}",
            "model.blocks.0.attention={kind=\"linformer\", heads=4, projected_length=8}",
            "model.blocks.0.attention=full",
            "data.count=-1",
            "data.count=many",
            "data.paths=[\"a.txt\"]",
            "tokenizer={kind=\"bytes\", vocabulary=300}",
            "optimizer=fast",
            "optimizer.epsilon=inf",
            "data.count=0",
            "training.batch=65537",
            "model.width=200000000",
        ]
        .map(error);
        insta::assert_snapshot!(errors.join("\n"));
    }

    #[test]
    fn a_mistake_in_the_toml_is_one_line() {
        let error = crate::Recipe::parse("seed = 1\n[data\n", &[]).unwrap_err();
        insta::assert_snapshot!(error, @"line 2, column 6: unclosed table, expected `]`");
    }
}
