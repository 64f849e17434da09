//! Plots about helping, sharing and making someone welcome.

use crate::stories::cast::{Person, with_article};
use crate::stories::teller::Teller;
use crate::stories::words::{COLOURS, FOODS};

/// A small animal has a trouble, and the hero knows what to do about it.
pub(super) fn animal_in_need(teller: &mut Teller) {
    let Person {
        name, they, their, ..
    } = teller.hero();
    let (at, place) = (teller.cast.place.at, teller.cast.place.name);
    let colour = teller.pick(COLOURS);
    let (food, foods) = teller.pick(FOODS);
    let helped_with = teller.cast.thing.called.clone();
    let (animal, trouble, asked, help) = teller.pick(&[
        (
            "kitten",
            "was stuck in a tree",
            "Are you afraid to come down?",
            "climbed up and carried it down",
        ),
        (
            "puppy",
            "had a thorn in its foot",
            "Does your foot hurt?",
            "pulled the thorn out with care",
        ),
        (
            "bird",
            "had fallen out of its nest",
            "Did you fall?",
            "put it back into the nest",
        ),
        (
            "lamb",
            "had lost its mother",
            "Where is your mother?",
            "led it back to the other sheep",
        ),
        (
            "duck",
            "was caught in some string",
            "Can you not swim?",
            "cut the string and set it free",
        ),
        (
            "turtle",
            "was lying on its back",
            "Can you not get up?",
            "turned it over",
        ),
        (
            "pony",
            "was tired and thirsty",
            "Do you want some water?",
            "brought it some water",
        ),
        (
            "kitten",
            "was cold and wet",
            "Are you cold?",
            "made it warm and dry",
        ),
    ]);
    teller.introduce();
    let day = teller.day();
    teller.say(format!(
        "{day}, {name} went to {place} with {their} {helped_with}."
    ));
    teller.sky();
    let found = with_article(&format!("{colour} {animal}"));
    // No pony is purple.
    let found = match colour {
        "brown" | "white" => found,
        _ => format!("a little {animal}"),
    };
    teller.say_one(&[
        &format!("There {they} saw {found} that {trouble}."),
        &format!("{at}, {they} found {found} that {trouble}."),
    ]);
    teller.say_one(&[
        &format!("\"Poor little {animal},\" said {name}. \"I will help you.\""),
        &format!("\"{asked}\" {name} asked, but the {animal} only looked up."),
        &format!("{name} felt sorry for the {animal} and wanted to help."),
    ]);
    teller.say(format!("So {they} {help}."));
    teller.perhaps(&[
        &format!("Then {they} gave the {animal} {}.", with_article(food)),
        &format!(
            "{they} had some {foods} with {}, and the {animal} ate one.",
            teller.hero().them
        ),
    ]);
    teller.say_one(&[
        &format!("The {animal} was not afraid any more."),
        &format!("The {animal} looked at {name} as if it wanted to say thank you."),
        &format!("Now the {animal} was happy again, and so was {name}."),
    ]);
    teller.perhaps(&[
        &format!("The next day, the {animal} was waiting for {name}."),
        &format!("It followed {name} all the way home."),
    ]);
    teller.close();
}

/// One has food, the other has none.
pub(super) fn shared_meal(teller: &mut Teller) {
    let Person {
        name, they, their, ..
    } = teller.hero();
    let Person {
        name: friend,
        they: friend_they,
        them: friend_them,
        their: friend_their,
        ..
    } = teller.friend();
    let thing = teller.cast.thing.called.clone();
    let (at, grown_up) = (teller.cast.place.at, teller.cast.grown_up);
    let (food, foods) = teller.pick(FOODS);
    let number = teller.number();
    teller.introduce();
    let day = teller.day();
    teller.say(format!(
        "{day}, {their} {grown_up} gave {} {number} {foods} for lunch.",
        teller.hero().them
    ));
    let owner = teller.pick(&[their, friend_their]);
    teller.say(format!(
        "{name} met {their} friend {friend} {at}, and they played with {owner} {thing}."
    ));
    teller.sky();
    teller.say_one(&[
        &format!("When they sat down to eat, {friend} was sad because {friend_they} had left {friend_their} lunch at home."),
        &format!("At noon, {friend} was hungry, but {friend_they} had nothing to eat."),
        &format!("Then a dog came and ran away with the lunch of poor {friend}."),
    ]);
    teller.say_one(&[
        &format!("\"You can have some of my {foods},\" said {name}."),
        &format!(
            "\"I have {number} {foods},\" said {name}, \"so there is enough for both of us.\""
        ),
        &format!(
            "{name} thought for a moment and gave {friend_them} {}.",
            with_article(food)
        ),
    ]);
    teller.say_one(&[
        &format!("\"You are a good friend,\" said {friend}."),
        &format!("{friend} smiled again and said, \"Thank you, {name}!\""),
    ]);
    teller.say_one(&[
        &format!("They ate the {foods} together, and nothing had ever tasted so good."),
        &format!("The {foods} tasted very good, and soon they were all gone."),
    ]);
    teller.perhaps(&[
        &format!("The next day, {friend} brought {number} {foods} and shared them with {name}."),
        &format!("{name} was still a little hungry, but {they} did not mind."),
    ]);
    teller.close_together();
}

/// Somebody is new and alone.
pub(super) fn new_in_town(teller: &mut Teller) {
    let Person { name, they, .. } = teller.hero();
    let Person {
        name: friend,
        kind,
        they: friend_they,
        them: friend_them,
        their: friend_their,
    } = teller.friend();
    let (introduced, thing) = (
        teller.cast.thing.introduced.clone(),
        teller.cast.thing.called.clone(),
    );
    let at = teller.cast.place.at;
    teller.introduce();
    let newcomer = with_article(&format!(
        "{} {kind}",
        teller.pick(&["new", "young", "little", "quiet"])
    ));
    let day = teller.day();
    teller.say_one(&[
        &format!("{day}, {newcomer} named {friend} moved into the house across the street."),
        &format!("{day}, {name} met {newcomer} named {friend} {at}."),
    ]);
    teller.say_one(&[
        &format!("{friend} stood alone because {friend_they} did not know anybody."),
        &format!("{friend} felt lonely because all {friend_their} friends were far away."),
        &format!("{friend} was too shy to say a word."),
    ]);
    teller.say(format!(
        "{name} had {introduced} and showed it to {friend_them}."
    ));
    teller.say_one(&[
        &format!("\"Would you like to play with me?\" {they} asked."),
        &format!("\"Do you want to have a look at my {thing}?\" {they} asked."),
        &format!("\"Hello, my name is {name},\" {they} said. \"Do you want to see my {thing}?\""),
    ]);
    teller.say_one(&[
        &format!(
            "\"Yes, please!\" said {friend}, and {friend_they} smiled for the first time that day."
        ),
        &format!("{friend} looked at the {thing} and slowly began to smile."),
    ]);
    teller.say_one(&[
        &format!("They played with the {thing} {at} until it was dark."),
        &format!("{name} showed {friend_them} all the best places to play."),
        "Soon they were talking and laughing like old friends.",
    ]);
    teller.close_together();
}
