//! Calls of the `tokenizers` crate whose panics become errors: its regular expressions panic where a pattern backtracks for too
//! long.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::TextError;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in a call whose panic becomes an error: a panic hook need not report it.
pub fn panics_are_errors() -> bool {
    GUARDED.get()
}

/// Runs a call of the `tokenizers` crate.
pub(crate) fn guarded<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, TextError> {
    let outer = GUARDED.replace(true);
    // The crate's tokenizers do not change while they are used, but for caches that tolerate a panic.
    let result = catch_unwind(AssertUnwindSafe(call));
    GUARDED.set(outer);
    match result {
        Ok(result) => result.map_err(TextError::tokenizer),
        Err(_) => Err(TextError::TokenizerPanic),
    }
}
