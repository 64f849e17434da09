//! Plots about losing and finding.

use crate::stories::cast::{Person, capital};
use crate::stories::teller::Teller;
use crate::stories::words::HIDING_PLACES;

/// The hero loses a thing; the friend helps to find it.
pub(super) fn lost_and_found(teller: &mut Teller) {
    let Person {
        name,
        they,
        them,
        their,
        ..
    } = teller.hero();
    let Person { name: friend, .. } = teller.friend();
    let (introduced, thing) = (
        teller.cast.thing.introduced.clone(),
        teller.cast.thing.called.clone(),
    );
    let (place, hiding_place) = (teller.cast.place, teller.cast.hiding_place);
    let (at, place) = (place.at, place.name);
    let grown_up = teller.cast.grown_up;
    teller.introduce();
    teller.say_one(&[
        &format!("{name} had {introduced}, and {they} took it everywhere."),
        &format!("{their} {grown_up} had given {them} {introduced}."),
        &format!("{name} loved {their} {thing} more than anything else."),
    ]);
    let day = teller.day();
    teller.say(format!(
        "{day}, {name} played {at}, but when it was time to go home, the {thing} was gone."
    ));
    teller.say_one(&[
        &format!("{name} felt sad because {they} missed {their} {thing}."),
        &format!("\"Where is my {thing}?\" {name} cried."),
        &format!("{name} sat down and began to cry."),
    ]);
    teller.say_one(&[
        &format!("{their} friend {friend} heard {them} and came to help."),
        &format!(
            "\"Do not worry,\" said {their} friend {friend}. \"We will look for it together.\""
        ),
    ]);
    let (first, second) = teller.pick_two(HIDING_PLACES);
    let wrong = if first == hiding_place { second } else { first };
    teller.perhaps(&[
        &format!("They looked {wrong}, but the {thing} was not there."),
        &format!("They walked all around {place} and looked {wrong}, but found nothing."),
    ]);
    teller.say_one(&[
        &format!("At last, {friend} found the {thing} {hiding_place}."),
        &format!("Then {friend} looked {hiding_place}, and there was the {thing}!"),
        &format!("\"Look!\" called {friend}, who had found the {thing} {hiding_place}."),
    ]);
    teller.say_one(&[
        &format!("\"Thank you, {friend}!\" said {name}, and {they} held the {thing} tight."),
        &format!("{name} was so glad that {they} hugged {friend}."),
    ]);
    teller.close_together();
}

/// A game in which one child hides and the other seeks.
pub(super) fn hide_and_seek(teller: &mut Teller) {
    let Person {
        name, they, them, ..
    } = teller.hero();
    let Person {
        name: friend,
        they: friend_they,
        them: friend_them,
        ..
    } = teller.friend();
    let (at, hiding_place) = (teller.cast.place.at, teller.cast.hiding_place);
    teller.introduce();
    teller.introduce_friend();
    let day = teller.day();
    teller.say(format!("{day}, they played hide and seek {at}."));
    teller.sky();
    let number = teller.pick(&["ten", "twenty", "a hundred"]);
    teller.say(format!(
        "{friend} closed {} eyes and counted to {number}, and {name} hid {hiding_place}.",
        teller.friend().their
    ));
    let (first, second) = teller.pick_two(HIDING_PLACES);
    let wrong = if first == hiding_place { second } else { first };
    teller.say(format!(
        "{friend} looked {wrong}, but {name} was not there."
    ));
    let (cause, sound) = teller.pick(&[
        ("a leaf fell on", "laugh"),
        ("a fly sat on", "sneeze"),
        ("an ant walked over", "giggle"),
        ("some dust blew onto", "cough"),
    ]);
    let their = teller.hero().their;
    teller.say(format!(
        "Then {cause} {their} nose, and {name} had to {sound}."
    ));
    teller.say_one(&[
        &format!("{friend} heard the sound and ran to {them}."),
        &format!("\"I can hear you!\" said {friend}, and {friend_they} found {them} at once."),
    ]);
    teller.say_one(&[
        &format!("\"Now it is your turn to hide,\" said {name}."),
        &format!("\"You are good at this game,\" {name} told {friend_them}."),
        &format!("{name} did not mind because {they} liked to seek, too."),
    ]);
    teller.close_together();
}

/// The hero finds a thing and gives it back to its owner.
pub(super) fn found_and_returned(teller: &mut Teller) {
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
    let (at, hiding_place, grown_up) = (
        teller.cast.place.at,
        teller.cast.hiding_place,
        teller.cast.grown_up,
    );
    teller.introduce();
    let day = teller.day();
    teller.say(format!(
        "{day}, {name} was walking {at} and saw {introduced} {hiding_place}."
    ));
    teller.say_one(&[
        &format!("{name} wanted to keep it, but {they} knew that it was not right."),
        &format!("\"Who can have lost this {thing}?\" {name} asked."),
        &format!("{they} picked it up and looked for a name on it."),
    ]);
    teller.say_one(&[
        &format!("Soon {they} met a {kind} named {friend}, who looked very sad."),
        &format!("Not far away, a {kind} named {friend} sat on a stone and cried."),
    ]);
    teller.say_one(&[
        &format!("\"I have lost my {thing},\" said {friend}, \"and I cannot find it.\""),
        &format!("\"My {grown_up} gave me {introduced}, and now it is gone,\" said {friend}."),
    ]);
    teller.say_one(&[
        &format!("\"Here it is!\" said {name}, and {they} gave {friend_them} the {thing}."),
        &format!("{name} smiled and held out the {thing}."),
    ]);
    teller.say_one(&[
        &format!("{friend} was so happy that {friend_they} jumped up and down."),
        &format!("{} thanked {name} again and again.", capital(friend_they)),
        &format!("{friend} took {friend_their} {thing} and thanked {name}."),
    ]);
    teller.perhaps(&[
        "It felt good to do the right thing.",
        "Giving it back felt better than keeping it.",
    ]);
    teller.close_together();
}
