//! The built-in corpus: small children's stories from a grammar, written for this library.
//!
//! A story has an opening, a plot and a closing, five to ten sentences in all. Its people, things and places are
//! chosen before the first sentence and kept to the last: the red kite that is lost is the one that is found. So a
//! model has something to learn beyond the next word, in a vocabulary small enough for a laptop.

mod cast;
mod plots;
mod teller;
mod words;

use teller::Teller;

/// The story number `index` of the endless book that `seed` names: one line of plain English.
///
/// ```
/// assert_eq!(attentive_data::stories::story(1, 42), attentive_data::stories::story(1, 42));
/// ```
pub fn story(seed: u64, index: u64) -> String {
    let mut teller = Teller::new(seed, index);
    let plot = teller.pick(plots::PLOTS);
    plot(&mut teller);
    teller.finish()
}

#[cfg(test)]
mod tests;
