//! What a template may ask for: neither widths that a few characters make as large as memory, nor a text without end.
//!
//! Fuel bounds the steps, a stack of its own the depth of values, and this the numbers that a template names. Nothing bounds a value that a template puts together with
//! itself again and again (`a ~ a`): the engine asks nobody before it joins texts.

use std::io::{Error as IoError, Write};

use minijinja::value::{Kwargs, Rest, StringInput, Value};
use minijinja::{Environment, Error, ErrorKind, State, Template, filters};
use minijinja_contrib::pycompat::unknown_method_callback;

/// The largest width of anything.
const WIDEST: usize = 9_999;

/// The most bytes of a conversation's text.
const LONGEST: usize = 64 << 20;

/// For values within values, which are shown and dropped one within the other: enough for as many as there are steps.
/// Memory is only taken of what is used.
const STACK: usize = 512 << 20;

/// What a template gives, or what `told` makes of its error, which may hold values of the template and stays on their stack.
pub(super) fn render(
    template: &Template,
    values: Value,
    told: fn(&Error) -> String,
) -> Result<String, String> {
    let render = || {
        let mut text = BoundedText::default();
        let rendered = template.render_captured_to(values, &mut text).map(drop);
        rendered.map_err(|error| told(&error))?;
        Ok(text.into_text())
    };
    let rendered = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK);
        let thread = thread.spawn_scoped(scope, render);
        thread.map(|thread| thread.join())
    });
    rendered
        .map_err(|error| error.to_string())?
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Puts bounds in the place of what has none.
pub(super) fn set(environment: &mut Environment) {
    environment.add_filter("format", format);
    environment.add_filter("indent", indent);
    environment.set_unknown_method_callback(|state, value, method, arguments| {
        if method == "format" {
            check_format(value, arguments)?;
        }
        unknown_method_callback(state, value, method, arguments)
    });
}

fn format(state: &State, text: Value, values: Rest<Value>) -> Result<Value, Error> {
    check_format(&text, &values)?;
    filters::format(state, &text, values)
}

fn indent(
    text: StringInput<'_>,
    width: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    named: Kwargs,
) -> Result<Value, Error> {
    let wanted = width.or_else(|| named.peek("width").ok());
    match wanted {
        Some(width) if width > WIDEST => Err(too_wide()),
        _ => filters::indent(text, width, first, blank, named),
    }
}

/// Refuses widths in a format, or beside it where it takes them from there (`%*d`).
fn check_format(text: &Value, values: &[Value]) -> Result<(), Error> {
    let text = text.as_str().unwrap_or_default();
    let runs = text.split(|it: char| !it.is_ascii_digit());
    let wide = |width: usize| width > WIDEST;
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
    let problem = format!("it asks for a width of more than {WIDEST}");
    Error::new(ErrorKind::InvalidOperation, problem)
}

/// That a conversation's text grew beyond its bound.
pub(super) fn too_long() -> String {
    format!("the text is longer than {} MB", LONGEST >> 20)
}

/// A text that grows no further than it may.
#[derive(Default)]
struct BoundedText(Vec<u8>);

impl BoundedText {
    /// The text; what is written to it is never cut within a character.
    fn into_text(self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, IoError> {
        if bytes.len() > LONGEST.saturating_sub(self.0.len()) {
            return Err(IoError::other(too_long()));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}
