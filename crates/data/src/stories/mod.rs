//! The built-in corpus: short children's stories, generated from templates written for this library.
//!
//! A story has an opening, a plot and a closing, five to ten sentences in all. Its people, things and places are
//! sampled before the first sentence and do not change: the red kite that is lost is the one that is found. So there
//! are long-range dependencies to learn, with a vocabulary small enough for a laptop.

mod cast;
mod plots;
mod teller;
mod words;

use teller::Teller;

/// Story `index` of the infinite sequence determined by `seed`: one line of plain English.
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
