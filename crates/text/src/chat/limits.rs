//! Limits on what a template may allocate: no huge widths, no unbounded output.
//!
//! Fuel bounds the number of steps, a dedicated stack bounds the nesting of values, and this module bounds widths and
//! output. Nothing bounds a value that a template repeatedly concatenates with itself (`a ~ a`): minijinja has no hook
//! for concatenation.

use std::io::{Error as IoError, Write};

use minijinja::value::{Kwargs, Rest, StringInput, Value, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Template, filters};
use minijinja_contrib::pycompat::unknown_method_callback;

/// The largest width for formatting and indentation.
const MAX_WIDTH: usize = 9_999;

/// The largest rendered text in bytes.
const MAX_BYTES: usize = 64 << 20;

/// The stack of the rendering thread. Nested values are displayed and dropped recursively; this is enough for as many levels
/// as there are steps. Only used pages take memory.
const STACK_BYTES: usize = 512 << 20;

/// Renders a template. Errors are formatted on the rendering thread, as they may hold deeply nested values.
pub(super) fn render(
    template: &Template,
    values: Value,
    describe: fn(&Error) -> String,
) -> Result<String, String> {
    let render = || {
        let mut text = BoundedWriter::default();
        let rendered = template.render_captured_to(values, &mut text).map(drop);
        rendered.map_err(|error| describe(&error))?;
        Ok(text.into_text())
    };
    let rendered = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let thread = thread.spawn_scoped(scope, render);
        thread.map(|thread| thread.join())
    });
    rendered
        .map_err(|error| error.to_string())?
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
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
