//! Names of a file in messages.

/// A name as a message shows it: one line, and no longer than a line, whatever a hostile file calls its tensors.
pub(crate) fn shown(name: &str) -> String {
    const LONGEST: usize = 100;
    let mut characters = name.escape_debug();
    let mut shown: String = characters.by_ref().take(LONGEST).collect();
    if characters.next().is_some() {
        shown.push('…');
    }
    shown
}
