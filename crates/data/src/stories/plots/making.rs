//! Plots about making, growing and giving.

use crate::stories::cast::{Person, with_article};
use crate::stories::teller::Teller;
use crate::stories::words::{COLOURS, FOODS};

/// Something made by hand for somebody.
pub(super) fn handmade_gift(teller: &mut Teller) {
    let Person {
        name, they, their, ..
    } = teller.hero();
    let grown_up = teller.cast.grown_up;
    let colour = teller.pick(COLOURS);
    let (gift, from, step, trouble, mend) = teller.pick(&[
        (
            "cake",
            "eggs, milk and flour",
            "put the cake into the oven",
            "It was a little black at the bottom",
            "covered it with sugar",
        ),
        (
            "card",
            "paper and paint",
            "painted a flower on it",
            "A drop of water fell on it",
            "turned the drop into a cloud",
        ),
        (
            "scarf",
            "soft wool",
            "worked on it every evening",
            "There was a hole in the middle",
            "sewed a heart over the hole",
        ),
        (
            "necklace",
            "beads and string",
            "put the beads on one by one",
            "The string broke",
            "took a stronger string",
        ),
        (
            "bird house",
            "wood and nails",
            "painted the roof",
            "One wall was too short",
            "found a longer piece of wood",
        ),
        (
            "picture",
            "paper and glue",
            "glued dry leaves on it",
            "The wind blew the leaves away",
            "picked new ones",
        ),
        (
            "basket",
            "thin branches",
            "bent them with care",
            "One branch broke",
            "chose a softer one",
        ),
        (
            "pillow",
            "cloth and feathers",
            "sewed the sides",
            "The feathers flew all over the room",
            "caught them one by one",
        ),
    ]);
    let made = with_article(&format!("{colour} {gift}"));
    teller.introduce();
    teller.say_one(&[
        &format!(
            "It was almost the birthday of {their} {grown_up}, and {name} wanted to make a gift."
        ),
        &format!("{their} {grown_up} was ill, and {name} wanted to make a gift."),
        &format!("{name} wanted to thank {their} {grown_up} with a gift."),
    ]);
    teller.say_one(&[
        &format!("\"I will make {made},\" said {name}."),
        &format!("{they} decided to make {made}."),
    ]);
    teller.say(format!("{they} took {from}, and then {they} {step}."));
    teller.say(format!("{trouble}, so {name} {mend}."));
    teller.perhaps(&[
        "It took a long time.",
        "It was hard work, but it was fun.",
        "Nobody was allowed to look.",
    ]);
    teller.say_one(&[
        &format!("When the {colour} {gift} was ready, {name} carried it to {their} {grown_up}."),
        &format!("At last, {they} gave the {colour} {gift} to {their} {grown_up}."),
    ]);
    teller.say_one(&[
        &format!("\"What a beautiful {gift}!\" said {their} {grown_up}."),
        &format!("{their} {grown_up} gave {} a big hug.", teller.hero().them),
        &format!("\"This is the best {gift} in the world,\" said {their} {grown_up}."),
    ]);
    teller.close();
}

/// A seed, a wait, a harvest.
pub(super) fn the_seed(teller: &mut Teller) {
    let Person {
        name,
        they,
        them,
        their,
        ..
    } = teller.hero();
    let Person { name: friend, .. } = teller.friend();
    let (grown_up, thing) = (teller.cast.grown_up, teller.cast.thing.called.clone());
    let (plant, parts) = teller.pick(&[
        ("sunflower", "seeds"),
        ("rose", "flowers"),
        ("bean plant", "beans"),
        ("berry bush", "berries"),
        ("pumpkin", "leaves"),
        ("tomato plant", "tomatoes"),
    ]);
    teller.introduce();
    teller.say_one(&[
        &format!("One spring day, {their} {grown_up} gave {them} a small seed."),
        &format!("One spring day, {name} found a small seed in the pocket of an old coat."),
    ]);
    teller.say(format!("{name} put it into the ground, gave it water and laid {their} {thing} beside it to mark the place."));
    teller.say_one(&[
        &format!("Every morning {they} looked, but there was nothing to see."),
        &format!("\"When will it grow?\" {they} asked every day."),
    ]);
    teller.say_one(&[
        &format!("\"You must wait,\" said {their} {grown_up}, \"because good things take time.\""),
        &format!(
            "{their} friend {friend} said that nothing would come, but {name} did not give up."
        ),
    ]);
    teller.say_one(&[
        "After two weeks, a tiny green leaf came out of the ground.",
        "Then, after the rain, there was a tiny green leaf.",
    ]);
    teller.say(format!(
        "It grew and grew, and by summer it was {} with many {parts}.",
        with_article(&format!("tall {plant}"))
    ));
    teller.say_one(&[
        &format!("{name} gave some of the {parts} to all {their} friends."),
        &format!("\"I grew it all by myself,\" said {name}."),
        &format!("{name} was proud because {they} had waited so long."),
    ]);
    teller.say_one(&[
        &format!("Every spring after that, {name} planted another seed."),
        &format!("And that is how {name} got a garden."),
        &format!("The next year, {name} planted ten seeds."),
    ]);
}

/// Everybody seems to have forgotten, but nobody has.
pub(super) fn surprise_party(teller: &mut Teller) {
    let Person {
        name,
        they,
        them,
        their,
        ..
    } = teller.hero();
    let Person {
        name: friend,
        they: friend_they,
        ..
    } = teller.friend();
    let (introduced, thing) = (
        teller.cast.thing.introduced.clone(),
        teller.cast.thing.called.clone(),
    );
    let (at, grown_up) = (teller.cast.place.at, teller.cast.grown_up);
    let (_, foods) = teller.pick(FOODS);
    teller.introduce();
    teller.introduce_friend();
    teller.say_one(&[
        &format!("It was the birthday of {name}, but nobody said a word about it."),
        &format!("{name} woke up early because it was {their} birthday."),
    ]);
    teller.say_one(&[
        &format!("\"Do you have time to play?\" {they} asked, but {friend} said, \"Not today.\""),
        &format!("{they} looked for {friend}, but {friend_they} was not at home."),
        &format!("{friend} ran past with a big box and did not even stop."),
    ]);
    teller.say_one(&[
        &format!("{name} felt sad because {they} thought that everybody had forgotten {them}."),
        &format!("{name} sat by the window alone and felt lonely."),
    ]);
    teller.say(format!(
        "In the afternoon, {their} {grown_up} said, \"Come with me. I want to show you something.\""
    ));
    teller.say_one(&[
        &format!("{at}, all {their} friends were waiting with {foods} and a cake."),
        &format!(
            "When they came to the right place, {friend} jumped out and called, \"Surprise!\""
        ),
    ]);
    teller.say(format!("{friend} gave {them} {introduced}."));
    teller.say_one(&[
        &format!(
            "\"I have always wanted {}!\" said {name}.",
            with_article(&thing)
        ),
        &format!("{name} held the {thing} up high and laughed."),
        &format!("\"Thank you for the {thing}!\" said {name}."),
    ]);
    teller.close();
}
