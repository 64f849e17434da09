//! Limits on what a template may take: no huge widths, no unbounded output, and so much memory, stack and time.
//!
//! Fuel bounds the number of steps, and this module widths and output. Values that a template concatenates with themselves
//! (`a ~ a`) and nested expressions are bounded by the thread that parses and renders.

use std::io::{Error as IoError, Write};
use std::time::Duration;

use attentive_memory::{Bounds, run_bounded};
use minijinja::value::{Kwargs, Rest, StringInput, Value, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Template, filters};
use minijinja_contrib::pycompat::unknown_method_callback;

/// The largest width for formatting and indentation.
const MAX_WIDTH: usize = 9_999;

/// The largest rendered text in bytes.
const MAX_BYTES: usize = 64 << 20;

/// The longest template in bytes, ten times the longest that models have.
const MAX_TEMPLATE_BYTES: usize = 256 << 10;

/// Nested expressions are parsed, and nested values displayed and dropped, recursively: the stack is enough for as many levels
/// as a template has bytes, and as there are steps.
const BOUNDS: Bounds = Bounds {
    memory: 1 << 30,
    stack: 2 << 30,
    time: Duration::from_secs(30),
};

/// Parses and renders within the bounds.
pub(super) fn run(
    template: &str,
    work: impl FnOnce() -> Result<String, String> + Send + 'static,
) -> Result<String, String> {
    if template.len() > MAX_TEMPLATE_BYTES {
        let (length, max) = (template.len(), MAX_TEMPLATE_BYTES >> 10);
        return Err(format!("it has {length} bytes, and the limit is {max} KB"));
    }
    run_bounded(BOUNDS, work).map_err(|exceeded| exceeded.to_string())?
}

/// Renders a template.
pub(super) fn render(template: &Template, values: Value) -> Result<String, Error> {
    let mut text = BoundedWriter::default();
    template.render_captured_to(values, &mut text)?;
    Ok(text.into_text())
}

/// Replaces unbounded filters and methods by bounded ones.
pub(super) fn install(environment: &mut Environment) {
    environment.add_filter("format", format);
    environment.add_filter("indent", indent);
    environment.set_unknown_method_callback(|state, value, method, arguments| {
        if method == "format" {
            check_format(value, arguments)?;
        }
        unknown_method_callback(state, value, method, arguments)
    });
}

fn format(state: &mut State, text: Value, values: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let given: Vec<Value> = values.iter().map(|value| Value::clone(value)).collect();
    check_format(&text, &given)?;
    filters::format(state, &text, values)
}

fn indent(
    text: StringInput<'_>,
    width: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    named: Kwargs,
) -> Result<Value, Error> {
    let requested = width.or_else(|| named.peek("width").ok());
    match requested {
        Some(width) if width > MAX_WIDTH => Err(too_wide()),
        _ => filters::indent(text, width, first, blank, named),
    }
}

/// Refuses large widths in a format, or in its arguments (`%*d`).
fn check_format(text: &Value, values: &[Value]) -> Result<(), Error> {
    let text = text.as_str().unwrap_or_default();
    let runs = text.split(|it: char| !it.is_ascii_digit());
    let wide = |width: usize| width > MAX_WIDTH;
    let named = runs
        .filter(|run| !run.is_empty())
        .any(|run| run.parse().map_or(true, wide));
    let given = text.contains('*') && values.iter().filter_map(Value::as_usize).any(wide);
    match named || given {
        true => Err(too_wide()),
        false => Ok(()),
    }
}

fn too_wide() -> Error {
    let problem = format!("it requests a width of more than {MAX_WIDTH}");
    Error::new(ErrorKind::InvalidOperation, problem)
}

/// The message for text that exceeds its limit.
pub(super) fn too_long() -> String {
    format!("the text is longer than {} MB", MAX_BYTES >> 20)
}

/// A writer that fails beyond `MAX_BYTES`.
#[derive(Default)]
struct BoundedWriter(Vec<u8>);

impl BoundedWriter {
    /// The text; writes never split a character.
    fn into_text(self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, IoError> {
        if bytes.len() > MAX_BYTES.saturating_sub(self.0.len()) {
            return Err(IoError::other(too_long()));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}
