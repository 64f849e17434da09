//! The `tojson` filter, with output identical to Python's `json.dumps`.

use minijinja::value::{Kwargs, Value as JinjaValue, ValueKind};
use minijinja::{Error, ErrorKind};
use serde_json::Value;

/// A larger indent could exhaust memory.
const MAX_INDENT: usize = 32;
/// Deeper nesting could overflow the stack.
const MAX_DEPTH: usize = 64;

/// The filter `tojson`, with `indent` as in Python; non-ASCII characters are not escaped.
pub(super) fn to_json(value: JinjaValue, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    // Some templates pass it; the output is always that of false.
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let invalid = |what: String| Error::new(ErrorKind::InvalidOperation, what);
    if indent.is_some_and(|indent| indent > MAX_INDENT) {
        return Err(invalid(format!("tojson indents by at most {MAX_INDENT}")));
    }
    let mut text = String::new();
    write(&mut text, &value, indent, 1)?;
    Ok(text)
}

/// Walks the value itself, as `serde_json::Value` would lose the order of keys.
fn write(
    text: &mut String,
    value: &JinjaValue,
    indent: Option<usize>,
    depth: usize,
) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("tojson goes at most {MAX_DEPTH} levels deep"),
        ));
    }
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<JinjaValue> = value.try_iter()?.collect();
            write_all(text, ['[', ']'], &items, indent, depth, |text, item| {
                write(text, item, indent, depth + 1)
            })
        }
        ValueKind::Map => {
            let keys: Vec<JinjaValue> = value.try_iter()?.collect();
            write_all(text, ['{', '}'], &keys, indent, depth, |text, key| {
                text.push_str(&Value::from(key.to_string()).to_string());
                text.push_str(": ");
                write(text, &value.get_item(key)?, indent, depth + 1)
            })
        }
        _ => {
            let invalid = |error: serde_json::Error| {
                Error::new(
                    ErrorKind::InvalidOperation,
                    format!("tojson cannot serialize this: {error}"),
                )
            };
            text.push_str(&serde_json::to_string(value).map_err(invalid)?);
            Ok(())
        }
    }
}

fn write_all<T>(
    text: &mut String,
    brackets: [char; 2],
    items: &[T],
    indent: Option<usize>,
    depth: usize,
    write_item: impl Fn(&mut String, &T) -> Result<(), Error>,
) -> Result<(), Error> {
    let empty = items.is_empty();
    let line = |text: &mut String, depth: usize| {
        if let Some(indent) = indent.filter(|_| !empty) {
            text.push('\n');
            text.push_str(&" ".repeat(indent * depth));
        }
    };
    text.push(brackets[0]);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            text.push_str(if indent.is_some() { "," } else { ", " });
        }
        line(text, depth);
        write_item(text, item)?;
    }
    line(text, depth - 1);
    text.push(brackets[1]);
    Ok(())
}
