//! Plots that the weather makes.

use crate::stories::cast::Person;
use crate::stories::teller::Teller;
use crate::stories::words::COLOURS;

/// Rain spoils a plan, and a better one comes.
pub(super) fn rain_changes_the_plan(teller: &mut Teller) {
    let Person {
        name, they, their, ..
    } = teller.hero();
    let Person { name: friend, .. } = teller.friend();
    let (place, thing) = (teller.cast.place, teller.cast.thing.called.clone());
    let (place, at) = (place.name, place.at);
    let plan = teller.pick(&[
        "have a picnic",
        "play ball",
        "ride their bikes",
        "run races",
        "play hide and seek",
        "fly their kites",
    ]);
    teller.introduce();
    teller.introduce_friend();
    teller.say_one(&[
        &format!("One morning, they wanted to {plan} {at}."),
        &format!("All week, they had planned to {plan} {at}."),
    ]);
    teller.say_one(&[
        "But dark clouds came, and it began to rain.",
        "But then they heard thunder, and the rain came down hard.",
    ]);
    teller.say_one(&[
        &format!(
            "\"Now we cannot {},\" said {friend}, and they were both sad.",
            plan.replace("their", "our")
        ),
        &format!("{name} looked out at {place} and felt sad because the day was spoiled."),
    ]);
    let (idea, result) = teller.pick(&[
        (
            "build a castle out of blankets",
            "The castle was so big that it filled the whole room",
        ),
        ("bake some bread", "Soon the whole house smelled good"),
        (
            "make a boat out of paper",
            "The boat sailed across the kitchen floor",
        ),
        ("put on a play", "The cat and the dog had to watch it twice"),
        ("paint the rain", "The picture was full of big blue drops"),
        (
            "jump in the puddles",
            "They were wet from head to foot, and they did not mind",
        ),
        (
            "look for treasure in the attic",
            "They found an old map and a box of buttons",
        ),
    ]);
    teller.say_one(&[
        &format!("\"I know!\" said {name}. \"We can {idea}.\""),
        &format!("Then {name} took {their} {thing} and said, \"Let us {idea}!\""),
        &format!("\"We could {idea},\" {they} said, and {friend} liked the plan."),
    ]);
    teller.say(format!("{result}."));
    teller.perhaps(&[
        "They laughed so much that their sides hurt.",
        "They forgot all about the rain.",
    ]);
    teller.say_one(&[
        "When they looked up, there was a rainbow in the sky.",
        "It was more fun than the first plan.",
        "\"I hope that it rains again tomorrow,\" they said.",
    ]);
    teller.close_together();
}

/// Snow in the morning and a snowman by noon.
pub(super) fn first_snow(teller: &mut Teller) {
    let Person {
        name, they, their, ..
    } = teller.hero();
    let Person {
        name: friend,
        they: friend_they,
        ..
    } = teller.friend();
    let (at, grown_up) = (teller.cast.place.at, teller.cast.grown_up);
    let (colour, other) = teller.pick_two(COLOURS);
    let (nose, eyes) = (
        teller.pick(&["carrot", "stick", "potato", "pear"]),
        teller.pick(&["stones", "buttons", "nuts", "berries"]),
    );
    teller.introduce();
    teller.say_one(&[
        &format!("One winter morning, {name} looked out of the window, and everything was white."),
        &format!("It had snowed all night, and {name} could not wait to go out."),
    ]);
    teller.say(format!(
        "{they} put on {their} {colour} coat and ran out to meet {their} friend {friend}."
    ));
    teller.say_one(&[
        &format!("\"Let us make a snowman!\" said {friend}."),
        &format!("{at}, they began to make a snowman."),
    ]);
    teller.say(format!(
        "They gave it a {nose} for a nose and two {eyes} for eyes."
    ));
    teller.say_one(&[
        &format!("\"It looks cold,\" said {name}, and {they} gave it {their} {other} scarf."),
        &format!(
            "Then {friend} ran home, and {friend_they} came back with an old {other} hat for it."
        ),
    ]);
    teller.say_one(&[
        &format!(
            "When their hands were cold, they went in, and {their} {grown_up} gave them hot milk."
        ),
        "Then they threw snowballs until they were warm again.",
        "They slid down the slope on a sled until noon.",
    ]);
    teller.say_one(&[
        "When it got dark, the snowman stood alone under the moon.",
        "\"Good night, snowman!\" they called when it was time to go home.",
        &format!("A bird came and looked at the {nose}, but it did not eat it."),
        &format!("The {eyes} seemed to look at them, and they had to laugh."),
    ]);
    teller.perhaps(&[
        "\"We will make another one next year,\" they said.",
        "Everybody who came by stopped and smiled.",
    ]);
    teller.close_together();
}

/// The wind takes a thing and somebody brings it back.
pub(super) fn strong_wind(teller: &mut Teller) {
    let Person {
        name, they, their, ..
    } = teller.hero();
    let at = teller.cast.place.at;
    let colour = teller.pick(COLOURS);
    let light = teller.pick(&["hat", "scarf", "kite", "umbrella", "ribbon", "balloon"]);
    let (where_to, helper, how) = teller.pick(&[
        (
            "into a tall tree",
            "a squirrel",
            "climbed up and threw it down",
        ),
        ("over the water", "a duck", "swam out and brought it back"),
        ("onto a roof", "a cat", "jumped up and pushed it down"),
        ("across a field", "a dog", "ran after it and caught it"),
        (
            "over a high wall",
            "a tall man",
            "reached over and picked it up",
        ),
        (
            "up to the clouds",
            "a big bird",
            "caught it and let it fall",
        ),
    ]);
    let thing = format!("{colour} {light}");
    teller.introduce();
    teller.say(format!(
        "One windy day, {name} was walking {at} with {their} {thing}."
    ));
    teller.say_one(&[
        "The wind blew harder and harder.",
        "The wind made the leaves dance and the trees bend.",
        &format!("\"What a wind!\" said {name}."),
    ]);
    teller.say(format!(
        "Suddenly, it took the {thing} and carried it {where_to}."
    ));
    teller.say_one(&[
        &format!("\"Stop!\" cried {name}, but the wind did not listen."),
        &format!("{name} ran and jumped, but {they} could not reach it."),
        &format!("{name} was sad because {they} liked {their} {thing} very much."),
    ]);
    teller.say_one(&[
        &format!("Then {helper} came by and saw what had happened."),
        &format!("\"Who will help me?\" {they} asked, and just then {helper} came by."),
    ]);
    let helper = helper.split_once(' ').map_or(helper, |(_, noun)| noun);
    teller.say(format!("The {helper} {how}."));
    teller.say_one(&[
        &format!("{name} thanked the {helper} and held the {thing} with both hands."),
        &format!("\"Thank you, thank you!\" said {name}, and the {helper} looked pleased."),
        &format!("{name} was so happy to have the {thing} back that {they} danced in the wind."),
    ]);
    teller.close();
}
