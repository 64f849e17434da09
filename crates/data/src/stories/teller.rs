//! The teller: makes the random choices of one story and collects its sentences.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::cast::{self, Cast, Person, capital, with_article};
use super::words::{CLOSINGS, CLOSINGS_FOR_TWO, DAYS, SKIES};

/// A story under construction.
pub(super) struct Teller {
    generator: ChaCha8Rng,
    /// Who and what the story is about.
    pub(super) cast: Cast,
    sentences: Vec<String>,
}

impl Teller {
    pub(super) fn new(seed: u64, index: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&index.to_le_bytes());
        let mut generator = ChaCha8Rng::from_seed(key);
        let cast = Cast::random(&mut generator);
        Self {
            generator,
            cast,
            sentences: Vec::with_capacity(12),
        }
    }

    /// The hero, as an owned copy so that sentences can borrow it while the teller is used.
    pub(super) fn hero(&self) -> Person {
        self.cast.hero.clone()
    }

    /// The friend, likewise.
    pub(super) fn friend(&self) -> Person {
        self.cast.friend.clone()
    }

    /// A random element of `choices`.
    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        cast::pick(&mut self.generator, choices)
    }

    /// Two distinct elements of `choices`.
    pub(super) fn pick_two<T: Copy>(&mut self, choices: &[T]) -> (T, T) {
        let first = self.generator.random_range(0..choices.len() as u32) as usize;
        let step = self.generator.random_range(1..choices.len() as u32) as usize;
        (choices[first], choices[(first + step) % choices.len()])
    }

    /// A number in words, for counted things: always more than one.
    pub(super) fn number(&mut self) -> &'static str {
        self.pick(&["two", "three", "four", "five", "six"])
    }

    /// Adds a sentence, with a capital first letter.
    pub(super) fn say(&mut self, sentence: impl AsRef<str>) {
        self.sentences.push(capital(sentence.as_ref()));
    }

    /// Adds a random one of the sentences.
    pub(super) fn say_one(&mut self, sentences: &[&str]) {
        let sentence = self.pick(sentences);
        self.say(sentence);
    }

    /// Adds one of the sentences, or none.
    pub(super) fn perhaps(&mut self, sentences: &[&str]) {
        if self.generator.random_bool(0.5) {
            self.say_one(sentences);
        }
    }

    /// Introduces the hero: "Once upon a time there was a clever girl named Mia."
    pub(super) fn introduce(&mut self) {
        let Person { name, kind, .. } = self.hero();
        let described = with_article(&format!("{} {kind}", self.cast.nature));
        let sentence = match self.pick(&[0, 1, 2, 3]) {
            0 => format!("Once upon a time, there was {described} named {name}."),
            1 => format!("{name} was {described}."),
            2 => format!("Once there was {described} called {name}."),
            _ => format!("There was once {described} whose name was {name}."),
        };
        self.say(sentence);
    }

    /// Introduces the friend, for plots in which both appear from the start.
    pub(super) fn introduce_friend(&mut self) {
        let Person { name, their, .. } = self.hero();
        let friend = self.friend();
        let described = with_article(friend.kind);
        let (friend, kind) = (friend.name, friend.kind);
        self.say_one(&[
            &format!("{name} had a friend, {described} named {friend}."),
            &format!("{their} best friend was {described} named {friend}."),
            &format!("{name} liked to play with {friend}, the {kind} next door."),
        ]);
    }

    /// The start of a sentence about a fair day: "One sunny morning".
    pub(super) fn day(&mut self) -> &'static str {
        self.pick(DAYS)
    }

    /// Adds a sentence about fair weather, or none.
    pub(super) fn sky(&mut self) {
        self.perhaps(SKIES);
    }

    /// Adds a closing about the hero.
    pub(super) fn close(&mut self) {
        let closing = self.pick(CLOSINGS).replace("{}", self.cast.hero.name);
        self.say(closing);
    }

    /// Adds a closing about both friends.
    pub(super) fn close_together(&mut self) {
        let closing = self.pick(CLOSINGS_FOR_TWO);
        let closing =
            closing
                .replacen("{}", self.cast.hero.name, 1)
                .replacen("{}", self.cast.friend.name, 1);
        self.say(closing);
    }

    /// The whole story as one line.
    pub(super) fn finish(self) -> String {
        self.sentences.join(" ")
    }
}
