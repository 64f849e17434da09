//! Plots about learning, courage and effort.

use crate::stories::cast::Person;
use crate::stories::teller::Teller;
use crate::stories::words::FOODS;

/// Something is too hard, until it is not.
pub(super) fn new_skill(teller: &mut Teller) {
    let Person {
        name,
        they,
        them,
        their,
        ..
    } = teller.hero();
    let Person { name: friend, .. } = teller.friend();
    let grown_up = teller.cast.grown_up;
    let (skill, at, failure, advice, success) = teller.pick(&[
        (
            "ride a bike",
            "in the park",
            "fell onto the grass",
            "Look straight ahead and do not stop",
            "rode all the way down the path",
        ),
        (
            "swim",
            "in the lake",
            "went under and swallowed some water",
            "Move your legs like a frog",
            "swam from one side to the other",
        ),
        (
            "whistle",
            "in the garden",
            "made no sound at all",
            "Make your mouth small and round",
            "whistled a whole song",
        ),
        (
            "climb a tree",
            "in the forest",
            "slipped and slid down again",
            "Hold on with both hands",
            "climbed up to the highest branch",
        ),
        (
            "catch a ball",
            "in the park",
            "dropped it",
            "Keep your eyes on the ball",
            "caught it ten times in a row",
        ),
        (
            "fly a kite",
            "on the hill",
            "saw the kite fall to the ground",
            "Run into the wind",
            "made the kite fly high above the trees",
        ),
        (
            "draw a horse",
            "at school",
            "drew something like a potato with legs",
            "Begin with the head",
            "drew a fine horse",
        ),
        (
            "stand on one leg",
            "in the garden",
            "fell over",
            "Look at one thing and breathe slowly",
            "stood still like a tree",
        ),
        (
            "skip stones",
            "by the river",
            "saw the stone sink at once",
            "Choose a flat stone",
            "made a stone skip five times",
        ),
        (
            "play the drum",
            "at home",
            "dropped the stick",
            "Count to four and listen",
            "played a happy song",
        ),
    ]);
    let by_friend = teller.pick(&[true, false]);
    let helper = if by_friend {
        friend.to_owned()
    } else {
        format!("{their} {grown_up}")
    };
    teller.introduce();
    if by_friend {
        teller.introduce_friend();
    }
    teller.say_one(&[
        &format!("{name} wanted to learn how to {skill}."),
        &format!("More than anything, {name} wanted to {skill}."),
    ]);
    let day = teller.day();
    teller.say(format!(
        "{day}, {they} tried it {at}, but {they} {failure}."
    ));
    teller.say_one(&[
        &format!("{they} tried again, and again {they} {failure}."),
        &format!(
            "\"I will never learn it!\" said {name}, and {they} was angry with {}.",
            reflexive(them)
        ),
        &format!("{name} felt sad because it was so hard."),
    ]);
    teller.say(format!("\"{advice},\" said {helper}."));
    teller.say_one(&[
        &format!("{name} listened and tried once more."),
        &format!("{name} tried every day for a week."),
        &format!("{name} took a deep breath and tried again."),
    ]);
    teller.say_one(&[
        &format!("In the end, {they} {success}!"),
        &format!("And then, all at once, {they} {success}."),
    ]);
    teller.say_one(&[
        &format!("\"You did it!\" said {helper}."),
        &format!("{name} was very proud because {they} had not given up."),
    ]);
    teller.close();
}

/// A sound in the dark has a small cause.
pub(super) fn noise_at_night(teller: &mut Teller) {
    let Person {
        name,
        they,
        them,
        their,
        ..
    } = teller.hero();
    let (grown_up, thing) = (teller.cast.grown_up, teller.cast.thing.called.clone());
    let (sound, cause) = teller.pick(&[
        ("a tap at the window", "a branch that moved in the wind"),
        ("a scratch at the door", "the cat, who wanted to come in"),
        (
            "a bump under the bed",
            "a toy that had rolled over the floor",
        ),
        ("a soft cry outside", "an owl that sat on the roof"),
        (
            "a crack on the stairs",
            "a mouse that was looking for cheese",
        ),
        ("a drip in the kitchen", "some water that fell into a cup"),
        ("a low hum in the hall", "the old clock on the wall"),
    ]);
    teller.introduce();
    teller.say_one(&[
        &format!("One night, {name} lay in bed with {their} {thing} and could not sleep."),
        &format!(
            "It was late, and {name} lay in bed and looked at {their} {thing} in the moonlight."
        ),
        &format!(
            "One dark night, {name} put {their} {thing} next to the bed and turned off the light."
        ),
    ]);
    teller.say(format!("Suddenly, {they} heard {sound}."));
    teller.say_one(&[
        &format!("{name} was afraid and hid under the blanket."),
        &format!("\"Who is there?\" {name} asked, but nobody answered."),
        &format!("The heart of poor {name} beat very fast."),
    ]);
    teller.say_one(&[
        &format!("{name} called {their} {grown_up}, who came with a light."),
        &format!("{their} {grown_up} came in and took {them} by the hand."),
    ]);
    teller.say_one(&[
        "\"Let us see what it is,\" they both said.",
        &format!("\"We will look together,\" said {their} {grown_up}."),
    ]);
    teller.say_one(&[
        &format!("It was only {cause}."),
        &format!("They looked everywhere and found the cause: {cause}!"),
    ]);
    teller.say_one(&[
        &format!("{name} laughed because {they} had been afraid of such a small thing."),
        &format!("\"Now I am not afraid any more,\" said {name}."),
        &format!("After that, the dark did not seem so dark to {name}."),
    ]);
    teller.say_one(&[
        &format!("{name} closed {their} eyes and was soon asleep."),
        &format!("{their} {grown_up} sang a quiet song, and {name} fell asleep."),
        &format!("That night, {name} slept very well."),
    ]);
}

/// Slow and steady, or fast and careless.
pub(super) fn the_race(teller: &mut Teller) {
    let Person { name, they, .. } = teller.hero();
    let Person {
        name: friend,
        they: friend_they,
        them: friend_them,
        their: friend_their,
        ..
    } = teller.friend();
    let (at, thing) = (teller.cast.place.at, teller.cast.thing.introduced.clone());
    let called = teller.cast.thing.called.clone();
    let (_, foods) = teller.pick(FOODS);
    teller.introduce();
    teller.introduce_friend();
    let day = teller.day();
    teller.say(format!(
        "{day}, there was a race {at}, and the prize was {thing}."
    ));
    teller.say_one(&[
        &format!("\"I am faster than you,\" said {friend}, \"so I will win.\""),
        &format!("{friend} was sure that {friend_they} would win."),
    ]);
    teller.say_one(&[
        "\"One, two, three, go!\" somebody called, and they ran.",
        "They stood in a line, and then they ran.",
    ]);
    let stop = teller.pick(&[
        "to rest under a tree",
        "to look at some ducks",
        "to eat some",
        "to tie a shoe",
    ]);
    let stop = if stop == "to eat some" {
        format!("to eat some {foods}")
    } else {
        stop.to_owned()
    };
    if teller.pick(&[true, false]) {
        teller.say(format!(
            "{friend} ran ahead, but halfway {friend_they} stopped {stop}."
        ));
        teller.say(format!(
            "{name} was slower, but {they} did not stop, and {they} came in first."
        ));
        teller.say_one(&[
            &format!(
                "{name} won the {called}, and {friend} learned to finish what {friend_they} began."
            ),
            &format!("\"You won the {called} because you did not stop,\" said {friend}."),
        ]);
    } else {
        teller.say(format!(
            "Halfway, {friend} fell and hurt {friend_their} knee."
        ));
        teller.say(format!(
            "{name} could have won the {called}, but {they} stopped and helped {friend_them} up."
        ));
        teller.say_one(&[
            "They finished the race side by side, and everybody cheered.",
            &format!(
                "They came in last, but everybody cheered, and they got the {called} to share."
            ),
        ]);
    }
    teller.close_together();
}

fn reflexive(them: &str) -> String {
    format!("{them}self")
}
