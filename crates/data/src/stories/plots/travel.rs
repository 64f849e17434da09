//! Plots about going somewhere.

use crate::stories::cast::{Person, with_article};
use crate::stories::teller::Teller;
use crate::stories::words::FOODS;

/// There and back again in a day.
pub(super) fn day_trip(teller: &mut Teller) {
    let Person {
        name, they, their, ..
    } = teller.hero();
    let (grown_up, thing) = (teller.cast.grown_up, teller.cast.thing.called.clone());
    let (vehicle, mishap) = teller.pick(&[
        ("by bus", "The bus was late"),
        ("by train", "The train stopped in a dark tunnel"),
        ("by boat", "The waves were high"),
        ("by car", "The road was long and dusty"),
        ("on foot", "The path was steep"),
        ("by bike", "One wheel lost its air"),
    ]);
    let (where_to, sight, second) = teller.pick(&[
        (
            "the sea",
            "a ship with tall sails",
            "a crab that walked sideways",
        ),
        (
            "the zoo",
            "a lion that slept in the sun",
            "a monkey that made faces",
        ),
        (
            "the mountains",
            "an eagle high in the sky",
            "a goat on a rock",
        ),
        (
            "the city",
            "a tower that almost touched the clouds",
            "a man who sold balloons",
        ),
        ("an old castle", "a gate of iron", "a deep well"),
        ("the museum", "the bones of a dinosaur", "a crown of gold"),
        (
            "a farm",
            "a cow with a calf",
            "a pig that rolled in the mud",
        ),
        (
            "the market",
            "a woman with a parrot",
            "a table full of cheese",
        ),
    ]);
    let (_, foods) = teller.pick(FOODS);
    teller.introduce();
    let day = teller.day();
    teller.say(format!(
        "{day}, {name} and {their} {grown_up} went to {where_to} {vehicle}."
    ));
    teller.say(format!(
        "{name} took {foods} for the trip and, of course, {their} {thing}."
    ));
    teller.say_one(&[
        &format!("{mishap}, but {name} did not mind."),
        &format!("{mishap}, so they sang songs to pass the time."),
    ]);
    let order = teller.pick(&[true, false]);
    let (first, then) = if order {
        (sight, second)
    } else {
        (second, sight)
    };
    teller.say(format!("First they saw {first}, and then they saw {then}."));
    teller.say_one(&[
        &format!("\"Look at that!\" said {name}."),
        &format!("{name} had never seen anything like it."),
        &format!("\"Can we stay here forever?\" {name} asked."),
    ]);
    teller.perhaps(&[
        &format!("At noon, they sat down and ate the {foods}."),
        &format!("The {foods} tasted wonderful after such a long way."),
    ]);
    teller.say_one(&[
        &format!("In the evening, they went home {vehicle}, and {name} soon fell asleep with the {thing} in {their} arms."),
        &format!("On the way back, {they} held {their} {thing} and thought of {sight}."),
        &format!("When they came home, {name} drew a picture of what {they} liked best: {sight}."),
    ]);
    teller.close();
}

/// A visit to someone who is alone or ill.
pub(super) fn the_visit(teller: &mut Teller) {
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
    let (introduced, thing) = (
        teller.cast.thing.introduced.clone(),
        teller.cast.thing.called.clone(),
    );
    let (place, grown_up) = (teller.cast.place.name, teller.cast.grown_up);
    let (_, foods) = teller.pick(FOODS);
    let number = teller.number();
    teller.introduce();
    teller.introduce_friend();
    let day = teller.day();
    let illness = teller.pick(&[
        "had a cold",
        "had a broken leg",
        "had a fever",
        "had a bad tooth",
        "had hurt a foot",
    ]);
    teller.say(format!(
        "{day}, {friend} could not come out to play because {friend_they} {illness}."
    ));
    teller.say_one(&[
        &format!("\"I will visit {friend_them},\" {name} told {their} {grown_up}."),
        &format!("{name} thought about how {they} could make {friend_them} laugh."),
    ]);
    teller.say(format!("{they} packed {number} {foods} and {introduced} and walked past {place} to the house of {friend}."));
    teller.say_one(&[
        &format!("{friend} was lying in bed and looked very bored."),
        &format!("{friend} sat by the window with {friend_their} chin in {friend_their} hands."),
    ]);
    teller.say_one(&[
        &format!("\"I brought you this {thing},\" said {name}."),
        &format!(
            "\"Here are {number} {foods} for you,\" said {name}, \"and {} to play with.\"",
            with_article(&thing)
        ),
    ]);
    teller.say_one(&[
        &format!("They ate the {foods} and told each other funny stories."),
        &format!("They played with the {thing} on the bed all afternoon."),
        &format!("{friend} laughed so much that {friend_they} forgot how ill {friend_they} was."),
    ]);
    teller.say_one(&[
        &format!("\"I feel better already,\" said {friend}."),
        &format!("\"Please come back tomorrow,\" said {friend}."),
    ]);
    teller.close_together();
}
