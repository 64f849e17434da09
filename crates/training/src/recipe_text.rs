//! Recipes as TOML: parsing, overrides of single keys (`--set`), and errors that name the key and suggest the right one.

use attentive_formats::error_text::{one_line, plain_serde_error};
use serde::Deserialize;
use toml::{Table, Value};

use crate::Recipe;

/// An error in a recipe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecipeError {
    /// The text is not TOML.
    #[error("{}", one_line(.0))]
    Syntax(String),
    /// An unknown key.
    #[error(
        "{}there is no key `{}`{}",
        one_line(place),
        one_line(key),
        one_line(advice)
    )]
    UnknownKey {
        /// The path of the parent, with a colon; empty at the top level.
        place: String,
        /// The key.
        key: String,
        /// The nearest key, or all keys.
        advice: String,
    },
    /// A renamed key.
    #[error(
        "{}`{new}` is the new name of `{}`; rename it",
        one_line(place),
        one_line(old)
    )]
    RenamedKey {
        /// The path of the parent, with a colon; empty at the top level.
        place: String,
        /// The key.
        old: String,
        /// Its name now.
        new: &'static str,
    },
    /// A value of the wrong type, or a missing key.
    #[error("{}{}", one_line(place), one_line(problem))]
    InvalidValue {
        /// The path of the parent, with a colon; empty at the top level.
        place: String,
        /// What is wrong.
        problem: String,
    },
    /// A value out of its range.
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
    /// A change of a key below a value that is not a table.
    #[error(
        "{}: `{}` is a value and has no keys below it",
        one_line(path),
        one_line(parent)
    )]
    NotATable {
        /// The path that was given.
        path: String,
        /// The part that is a value.
        parent: String,
    },
    /// A change of a list entry that does not exist.
    #[error("{}: the list has {length} entries, numbered from 0", one_line(path))]
    NoSuchIndex {
        /// The path that was given.
        path: String,
        /// How many entries there are.
        length: usize,
    },
}

/// Keys of earlier versions and their names now. An entry applies where the new name is a valid key, so one old name may
/// have several.
const RENAMED_KEYS: &[(&str, &str)] = &[
    ("initial_deviation", "init_std"),
    ("decay", "weight_decay"),
    ("clip", "max_grad_norm"),
    ("warm_up", "warmup_steps"),
    ("floor", "min_lr_ratio"),
    ("batch", "batch_size"),
    ("accumulation", "gradient_accumulation_steps"),
    ("redraw_every", "resample_every"),
    ("furthest_distance", "max_distance"),
    ("farthest", "max_distance"),
    ("rounds", "hashes"),
    ("fill", "padding"),
    ("multiple", "multiple_of"),
    ("own", "query_position"),
    ("draws", "sampling"),
    ("tied_maps", "tied_projections"),
    ("teacher", "distillation"),
    ("about", "task"),
    ("map", "projection"),
    ("balance_loss", "balance_loss_weight"),
    ("z_loss", "z_loss_weight"),
    ("capacity", "capacity_factor"),
    ("words", "lm_head"),
    ("classes", "sequence_classifier"),
    ("clusters", "adaptive"),
    ("labels", "token_classifier"),
];

impl Recipe {
    /// Parses a recipe, applies the changes (`training.steps=500`), and validates every value.
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
        let recipe = read(&tree).map_err(|error| explain(&tree, &error))?;
        recipe.validate()?;
        Ok(recipe)
    }
}

/// An error of serde and its path.
#[derive(PartialEq)]
struct SerdeError {
    path: String,
    message: String,
}

fn read(tree: &Value) -> Result<Recipe, SerdeError> {
    serde_path_to_error::deserialize(tree.clone()).map_err(|error| {
        let path = error.path().to_string().replace('[', ".").replace(']', "");
        let message = error.into_inner().to_string();
        SerdeError {
            path: if path == "." { String::new() } else { path },
            // The other lines repeat the path.
            message: message.lines().next().unwrap_or_default().to_owned(),
        }
    })
}

/// Turns serde's error into one that names the key and suggests the right one.
fn explain(tree: &Value, error: &SerdeError) -> RecipeError {
    let SerdeError { path, message } = error;
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let unknown_field = message.starts_with("unknown field");
    if let ([key, expected @ ..], true) = (quoted.as_slice(), unknown_field) {
        // In an internally tagged enum the path ends at the enum, elsewhere at the key itself.
        let parent = path.strip_suffix(key).unwrap_or(path).trim_end_matches('.');
        let renamed = RENAMED_KEYS
            .iter()
            .find(|(old, new)| old == key && expected.contains(new));
        if let Some((old, new)) = renamed {
            return RecipeError::RenamedKey {
                place: place(parent),
                old: (*old).to_owned(),
                new,
            };
        }
        let nearest = expected
            .iter()
            .map(|name| match name.starts_with(key) {
                true => (0, *name),
                false => (strsim::damerau_levenshtein(key, name), *name),
            })
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
    let path = match invalid_key(tree, error) {
        Some(key) => format!("{path}.{key}"),
        None => path.clone(),
    };
    RecipeError::InvalidValue {
        place: place(&path),
        problem: plain_serde_error(message),
    }
}

/// The key of an internally tagged enum that serde rejects. Serde only names the enum as a whole, so each key is left out in
/// turn: without the invalid one, the error changes.
fn invalid_key(tree: &Value, error: &SerdeError) -> Option<String> {
    let value_errors = ["invalid", "unknown variant"];
    if !value_errors.iter().any(|it| error.message.starts_with(it)) {
        return None;
    }
    let keys = find(tree, &error.path)?.as_table()?.keys();
    // The tag goes last: without it every error changes.
    let (kind, others): (Vec<_>, Vec<_>) = keys.partition(|key| *key == "kind");
    let found = others.into_iter().chain(kind).find(|key| {
        let mut without = tree.clone();
        let table = find_mut(&mut without, &error.path).and_then(Value::as_table_mut);
        table.is_some_and(|table| table.remove(*key).is_some())
            && read(&without).err().as_ref() != Some(error)
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

/// Applies one change to the tree. Missing tables are created: a wrong name is reported when the tree is read.
fn assign(tree: &mut Table, change: &str) -> Result<(), RecipeError> {
    let (path, value) = change
        .split_once('=')
        .ok_or_else(|| RecipeError::NotAssignment(change.to_owned()))?;
    let path = path.trim();
    if path.is_empty() || path.split('.').any(str::is_empty) {
        return Err(RecipeError::NotAssignment(change.to_owned()));
    }
    let value = value.trim();
    // A bare word is a string, so that `head=separate` needs no quotes.
    let value = Assignment::parse(value).unwrap_or_else(|| Value::String(value.to_owned()));
    let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
    let mut at = Container::Table(tree);
    for part in parents.split('.').filter(|part| !part.is_empty()) {
        at = at.below(part, path)?;
    }
    at.put(last, path, value)
}

#[derive(Deserialize)]
struct Assignment {
    value: Value,
}

impl Assignment {
    fn parse(text: &str) -> Option<Value> {
        let parsed: Self = toml::from_str(&format!("value = {text}")).ok()?;
        Some(parsed.value)
    }
}

/// A table or a list.
enum Container<'t> {
    Table(&'t mut Table),
    List(&'t mut Vec<Value>),
}

impl<'t> Container<'t> {
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
            _ => Err(RecipeError::NotATable {
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
    found.ok_or_else(|| RecipeError::NoSuchIndex {
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
            "training.batch_size=65537",
            "model.width=200000000",
        ]
        .map(error);
        insta::assert_snapshot!(errors.join("\n"));
    }

    #[test]
    fn a_renamed_key_is_reported_with_its_new_name() {
        let errors = [
            "model.initial_deviation=0.02",
            "model.blocks.0.attention={kind=\"performer\", heads=4, redraw_every=2}",
            "model.positions={kind=\"t5_buckets\", furthest_distance=64}",
            // Where no key has the new name, the old one is only unknown.
            "training.initial_deviation=0.02",
        ]
        .map(error);
        insta::assert_snapshot!(errors.join("\n"), @r"
        model: `init_std` is the new name of `initial_deviation`; rename it
        model.blocks.0.attention: `resample_every` is the new name of `redraw_every`; rename it
        model.positions: `max_distance` is the new name of `furthest_distance`; rename it
        training: there is no key `initial_deviation`
        ");
    }

    #[test]
    fn a_mistake_in_the_toml_is_one_line() {
        let error = crate::Recipe::parse("seed = 1\n[data\n", &[]).unwrap_err();
        insta::assert_snapshot!(error, @"line 2, column 6: unclosed table, expected `]`");
    }
}
