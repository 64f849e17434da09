//! Stories must be deterministic, plain, consistent and mostly distinct. The snapshot is meant to be read.

use std::collections::{BTreeMap, BTreeSet};

use super::cast::{capital, with_article};
use super::story;

const SAMPLE: u64 = 4_000;

fn sample() -> impl Iterator<Item = String> {
    (0..SAMPLE).map(|index| story(7, index))
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|character: char| !character.is_alphabetic())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
}

#[test]
fn three_stories_read_well() {
    let stories: Vec<String> = (0..3).map(|index| story(1, index)).collect();
    insta::assert_snapshot!("three_stories", stories.join("\n\n"));
}

#[test]
fn a_story_is_a_function_of_seed_and_index() {
    assert_eq!(story(3, 9), story(3, 9));
    assert_ne!(story(3, 9), story(3, 10));
    assert_ne!(story(3, 9), story(4, 9));
}

#[test]
fn fewer_than_one_in_a_hundred_is_a_duplicate() {
    let distinct: BTreeSet<String> = sample().collect();
    assert!(
        SAMPLE as usize - distinct.len() < SAMPLE as usize / 100,
        "{} distinct",
        distinct.len()
    );
}

#[test]
fn the_vocabulary_is_small_but_not_tiny() {
    let distinct: BTreeSet<String> = sample()
        .flat_map(|story| words(&story).collect::<Vec<_>>())
        .collect();
    assert!(
        (350..=900).contains(&distinct.len()),
        "{} distinct words",
        distinct.len()
    );
}

#[test]
fn every_story_is_short() {
    for story in sample() {
        // Sentences inside a quotation are counted separately, so a story of ten sentences may count more.
        let ends = story
            .split(". ")
            .flat_map(|part| part.split("! "))
            .flat_map(|part| part.split(".\" "));
        let sentences = ends.flat_map(|part| part.split("!\" ")).count();
        assert!(
            (5..=13).contains(&sentences),
            "{sentences} sentences: {story}"
        );
    }
}

#[test]
fn every_story_is_clean_text() {
    for story in sample() {
        let mistakes = [
            "{",
            "}",
            "  ",
            " .",
            " ,",
            "..",
            "\n",
            ",,",
            " she self",
            "a a ",
            "the the ",
        ];
        for mistake in mistakes {
            assert!(!story.contains(mistake), "{mistake:?} in: {story}");
        }
        assert!(story.is_ascii(), "{story}");
        assert!(
            story.starts_with(char::is_uppercase) && story.ends_with(['.', '!', '"']),
            "{story}"
        );
        assert_eq!(story.matches('"').count() % 2, 0, "{story}");
        for pair in words(&story).collect::<Vec<_>>().windows(2) {
            let vowel = pair[1].starts_with(['a', 'e', 'i', 'o', 'u']);
            assert!(pair[0] != "a" || !vowel, "a {}: {story}", pair[1]);
            assert!(pair[0] != "an" || vowel, "an {}: {story}", pair[1]);
        }
    }
}

#[test]
fn a_story_has_one_or_two_names() {
    // At least one name, the main character, occurs three times or more.
    let names: Vec<&str> = super::words::GIRLS
        .iter()
        .chain(super::words::BOYS)
        .copied()
        .collect();
    for story in sample() {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for word in story.split(|character: char| !character.is_alphabetic()) {
            if let Some(name) = names.iter().find(|name| **name == word) {
                *counts.entry(name).or_default() += 1;
            }
        }
        assert!((1..=2).contains(&counts.len()), "{story}");
        assert!(counts.values().any(|count| *count >= 3), "{story}");
    }
}

#[test]
fn articles_and_capitals() {
    assert_eq!(with_article("old hat"), "an old hat");
    assert_eq!(with_article("red kite"), "a red kite");
    assert_eq!(capital("\"no,\" he said"), "\"no,\" he said");
    assert_eq!(capital("on the hill"), "On the hill");
    assert_eq!(capital(""), "");
}
