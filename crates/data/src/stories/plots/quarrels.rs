//! Plots about small conflicts and how they end.

use crate::stories::cast::{Person, with_article};
use crate::stories::teller::Teller;

/// One thing and two who want it.
pub(super) fn both_want_it(teller: &mut Teller) {
    let Person { name, they, .. } = teller.hero();
    let Person {
        name: friend,
        they: friend_they,
        ..
    } = teller.friend();
    let (introduced, thing) = (
        teller.cast.thing.introduced.clone(),
        teller.cast.thing.called.clone(),
    );
    let at = teller.cast.place.at;
    teller.introduce();
    teller.introduce_friend();
    let day = teller.day();
    teller.say(format!("{day}, they found {introduced} {at}."));
    teller.say_one(&[
        &format!("\"It is mine because I saw it first!\" said {name}."),
        &format!("\"I want the {thing}!\" said {name}."),
    ]);
    teller.say_one(&[
        &format!("\"No, it is mine!\" said {friend}, and {friend_they} pulled at the {thing}."),
        &format!("\"But I picked it up,\" said {friend}, and {friend_they} would not let go."),
    ]);
    teller.say_one(&[
        "Both of them were angry, and they did not speak for a long time.",
        &format!("They pulled so hard that the {thing} almost broke."),
        &format!("{name} went one way, and {friend} went the other."),
    ]);
    teller.say_one(&[
        &format!("Then {name} felt sorry because a friend is worth more than a thing."),
        &format!("But it was no fun to be alone, and {name} missed {friend}."),
    ]);
    teller.say_one(&[
        &format!("\"Let us share it,\" {they} said, \"you today and I tomorrow.\""),
        &format!("\"I am sorry,\" {they} said. \"You can have the {thing} first.\""),
    ]);
    teller.say_one(&[
        &format!("\"That is a good plan,\" said {friend}."),
        &format!("{friend} smiled and shook hands with {name}."),
        &format!("{friend} was happy to hear it."),
    ]);
    teller.close_together();
}

/// An accident and the courage to tell.
pub(super) fn broken_by_accident(teller: &mut Teller) {
    let Person {
        name,
        they,
        them,
        their,
        ..
    } = teller.hero();
    let Person { name: friend, .. } = teller.friend();
    let (grown_up, toy) = (teller.cast.grown_up, teller.cast.thing.called.clone());
    let thing = teller.pick(&[
        "lamp", "vase", "plate", "clock", "mirror", "bowl", "jug", "pot",
    ]);
    teller.introduce();
    let day = teller.day();
    teller.say(format!(
        "{day}, {name} ran through the house with {their} {toy} and broke a {thing}."
    ));
    teller.say_one(&[
        &format!("It was the {thing} that {their} {grown_up} loved best."),
        &format!("The {thing} had been in the family for many years."),
    ]);
    teller.say_one(&[
        &format!("{name} was afraid because {their} {grown_up} would be angry."),
        &format!("First, {name} wanted to hide the pieces."),
        &format!(
            "\"You could say that the cat did it,\" said {their} friend {friend}, but {name} did not want to lie."
        ),
    ]);
    teller.say_one(&[
        &format!("In the end, {they} went to {their} {grown_up} and told the truth."),
        &format!("{they} took a deep breath and said, \"I broke the {thing}, and I am sorry.\""),
    ]);
    teller.say_one(&[
        &format!("\"Thank you for telling me,\" said {their} {grown_up}."),
        &format!("{their} {grown_up} was sad for a moment, but then gave {them} a hug."),
    ]);
    teller.say_one(&[
        &format!("Together they mended the {thing} with glue."),
        &format!("\"Next time, take the {toy} outside,\" said {their} {grown_up}."),
        "Together they picked up the pieces and cleaned the floor.",
    ]);
    teller.say_one(&[
        &format!("{name} felt light again because {they} had told the truth."),
        &format!("After that, {name} only played with the {toy} outside."),
    ]);
    teller.perhaps(&[
        "A true word is better than a new thing.",
        "It is not always easy to tell the truth.",
    ]);
    teller.close();
}

/// A joke that hurts, and an apology.
pub(super) fn unkind_words(teller: &mut Teller) {
    let Person { name, they, .. } = teller.hero();
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
    let (place, grown_up, hero_their) =
        (teller.cast.place, teller.cast.grown_up, teller.hero().their);
    let (place, at) = (place.name, place.at);
    teller.introduce();
    teller.introduce_friend();
    let day = teller.day();
    teller.say(format!(
        "{day}, {friend} came to {place} with {introduced}."
    ));
    let word = teller.pick(&["silly", "ugly", "strange", "boring"]);
    teller.say_one(&[
        &format!(
            "\"What {} {thing}!\" said {name}, and {they} laughed.",
            with_article(word)
        ),
        &format!("{name} laughed and said, \"That {thing} looks {word}!\""),
    ]);
    teller.say_one(&[
        &format!("{friend} was hurt because {friend_they} liked {friend_their} {thing} very much."),
        &format!("{friend} did not laugh, and {friend_their} eyes were full of tears."),
        &format!("{friend} turned around and went home without a word."),
    ]);
    teller.say_one(&[
        &format!("Then {name} was sorry and wanted to take back every word."),
        &format!(
            "\"How would you feel?\" asked {hero_their} {grown_up}, and {name} had no answer."
        ),
    ]);
    let flower = teller.pick(&[
        "a flower",
        "a shell",
        "a pretty stone",
        "a feather",
        "a drawing",
    ]);
    teller.say(format!(
        "So {they} looked for {friend} and gave {friend_them} {flower}."
    ));
    teller.say_one(&[
        &format!("\"I am sorry for what I said about your {thing},\" said {name}."),
        &format!("\"Your {thing} is nice,\" said {name}, \"and I was wrong.\""),
    ]);
    teller.say_one(&[
        &format!("\"That is all right,\" said {friend}."),
        &format!("{friend} thought about it and then let {name} play with the {thing}."),
        &format!("Soon they were both playing with the {thing} {at}."),
    ]);
    teller.close_together();
}
