//! The people and things of one story, sampled once so that they are the same in all of its sentences.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::words::{
    ANIMAL_HEROES, BOYS, COLOURS, GIRLS, GROWN_UPS, HIDING_PLACES, OBJECTS, PLACES, Place,
    QUALITIES, TRAITS,
};

/// Someone with a name. The pronouns are fields so that sentences read as English: `{they}` is "she" or "he".
#[derive(Clone, Debug)]
pub(super) struct Person {
    /// "Lily"
    pub(super) name: &'static str,
    /// "girl", "boy" or an animal
    pub(super) kind: &'static str,
    /// "she" or "he"
    pub(super) they: &'static str,
    /// "her" or "him"
    pub(super) them: &'static str,
    /// "her" or "his"
    pub(super) their: &'static str,
}

/// An object with its colour: "red kite".
#[derive(Clone, Debug)]
pub(super) struct Thing {
    /// "a lovely red kite"
    pub(super) introduced: String,
    /// "red kite"
    pub(super) called: String,
}

/// What a plot may refer to.
#[derive(Debug)]
pub(super) struct Cast {
    pub(super) hero: Person,
    /// What the hero is like.
    pub(super) nature: &'static str,
    /// Of the opposite gender, so that "she" and "he" are unambiguous.
    pub(super) friend: Person,
    pub(super) thing: Thing,
    pub(super) place: Place,
    /// "mother", used with the hero's `their`.
    pub(super) grown_up: &'static str,
    pub(super) hiding_place: &'static str,
}

impl Cast {
    pub(super) fn random(generator: &mut ChaCha8Rng) -> Self {
        let girl_leads = generator.random_bool(0.5);
        // An animal's friends are animals: a fox and a bear, never a fox and a schoolboy.
        let animals = generator.random_bool(0.3);
        Self {
            hero: Person::random(generator, girl_leads, animals),
            nature: pick(generator, TRAITS),
            friend: Person::random(generator, !girl_leads, animals),
            thing: Thing::random(generator),
            place: pick(generator, PLACES),
            grown_up: pick(generator, GROWN_UPS),
            hiding_place: pick(generator, HIDING_PLACES),
        }
    }
}

impl Person {
    fn random(generator: &mut ChaCha8Rng, female: bool, animal: bool) -> Self {
        let animal = animal.then(|| pick(generator, ANIMAL_HEROES));
        if female {
            let name = pick(generator, GIRLS);
            Self {
                name,
                kind: animal.unwrap_or("girl"),
                they: "she",
                them: "her",
                their: "her",
            }
        } else {
            let name = pick(generator, BOYS);
            Self {
                name,
                kind: animal.unwrap_or("boy"),
                they: "he",
                them: "him",
                their: "his",
            }
        }
    }
}

impl Thing {
    fn random(generator: &mut ChaCha8Rng) -> Self {
        let called = format!("{} {}", pick(generator, COLOURS), pick(generator, OBJECTS));
        let introduced = with_article(&format!("{} {called}", pick(generator, QUALITIES)));
        Self { introduced, called }
    }
}

/// A uniformly random element of `choices`.
pub(super) fn pick<T: Copy>(generator: &mut ChaCha8Rng, choices: &[T]) -> T {
    // Sampled as u32, so that stories do not depend on the word size of the machine.
    choices[generator.random_range(0..choices.len() as u32) as usize]
}

/// Prepends "a" or "an" by the first letter; the stories contain no exception such as "hour".
pub(super) fn with_article(words: &str) -> String {
    let article = if words.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    };
    format!("{article} {words}")
}

/// The words with a capital first letter, to begin a sentence.
pub(super) fn capital(words: &str) -> String {
    let mut characters = words.chars();
    characters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(characters).collect()
    })
}
