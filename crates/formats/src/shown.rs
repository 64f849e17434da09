//! Words of a file in messages.

/// What a file says, as a message shows it: on one line, and not much longer than a line, whatever a hostile file holds.
pub fn shown(text: &str) -> String {
    const LONGEST: usize = 160;
    let mut characters = text.escape_debug();
    let mut shown: String = characters.by_ref().take(LONGEST).collect();
    if characters.next().is_some() {
        shown.push('…');
    }
    shown
}
