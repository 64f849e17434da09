//! The words of the stories: who, where and what. Do not reorder a list: stories are determined by indices into it.

/// Names of girls and female animals.
pub(super) const GIRLS: &[&str] = &[
    "Lily", "Mia", "Anna", "Rosa", "Ella", "Nora", "Zoe", "Ruby", "Clara", "Ida",
];

/// Names of boys and male animals.
pub(super) const BOYS: &[&str] = &[
    "Tom", "Ben", "Max", "Leo", "Sam", "Finn", "Omar", "Jack", "Hugo", "Emil",
];

/// Animals that may be the hero of a story.
pub(super) const ANIMAL_HEROES: &[&str] =
    &["fox", "bear", "rabbit", "mouse", "squirrel", "hedgehog"];

/// What a hero is like.
pub(super) const TRAITS: &[&str] = &[
    "little", "young", "kind", "clever", "brave", "quiet", "cheerful", "curious", "shy", "busy",
];

/// Colours that fit every object.
pub(super) const COLOURS: &[&str] = &[
    "red", "blue", "green", "yellow", "orange", "purple", "white", "brown",
];

/// Adjectives that fit every object, placed before its colour.
pub(super) const QUALITIES: &[&str] = &["little", "big", "old", "new", "pretty", "lovely"];

/// Things that a child can own, carry, lose and share.
pub(super) const OBJECTS: &[&str] = &[
    "kite", "ball", "hat", "scarf", "book", "drum", "boat", "doll", "bell", "cup", "basket",
    "blanket", "button", "lantern", "umbrella", "whistle", "wagon", "bucket", "box", "bag",
];

/// An outdoor place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// "the park"
    pub(super) name: &'static str,
    /// "in the park"
    pub(super) at: &'static str,
}

/// Outdoor places.
pub(super) const PLACES: &[Place] = &[
    Place {
        name: "the park",
        at: "in the park",
    },
    Place {
        name: "the garden",
        at: "in the garden",
    },
    Place {
        name: "the forest",
        at: "in the forest",
    },
    Place {
        name: "the river",
        at: "by the river",
    },
    Place {
        name: "the beach",
        at: "on the beach",
    },
    Place {
        name: "the hill",
        at: "on the hill",
    },
    Place {
        name: "the farm",
        at: "on the farm",
    },
    Place {
        name: "the pond",
        at: "by the pond",
    },
    Place {
        name: "the meadow",
        at: "in the meadow",
    },
    Place {
        name: "the lake",
        at: "by the lake",
    },
];

/// Where a lost thing may be.
pub(super) const HIDING_PLACES: &[&str] = &[
    "under a bush",
    "behind a tall tree",
    "beside the path",
    "between two rocks",
    "in the long grass",
    "under some leaves",
    "next to an old wall",
    "near the gate",
    "under a bench",
    "behind a fence",
];

/// Adult relatives, always used with "her" or "his".
pub(super) const GROWN_UPS: &[&str] = &[
    "mother",
    "father",
    "grandmother",
    "grandfather",
    "aunt",
    "uncle",
];

/// Countable foods, as (singular, plural).
pub(super) const FOODS: &[(&str, &str)] = &[
    ("apple", "apples"),
    ("pear", "pears"),
    ("cookie", "cookies"),
    ("plum", "plums"),
    ("carrot", "carrots"),
    ("nut", "nuts"),
    ("berry", "berries"),
    ("sandwich", "sandwiches"),
];

/// Openings on a fair day. None mentions rain or snow, which have plots of their own.
pub(super) const DAYS: &[&str] = &[
    "One sunny morning",
    "One warm afternoon",
    "One bright day",
    "Early one morning",
    "One quiet afternoon",
    "One lovely day",
    "One spring morning",
    "One summer day",
    "One Sunday",
    "One Monday",
    "On a cool autumn day",
    "After breakfast one day",
];

/// Sentences about fair weather, after the opening.
pub(super) const SKIES: &[&str] = &[
    "The sun was shining.",
    "The sky was clear and blue.",
    "A soft wind was blowing.",
    "The birds were singing.",
    "White clouds moved slowly across the sky.",
    "The air was fresh and sweet.",
    "It was a good day to be outside.",
    "The trees moved gently in the wind.",
];

/// Closings about the hero alone; `{}` stands for the name.
pub(super) const CLOSINGS: &[&str] = &[
    "That evening, {} was still smiling.",
    "That night, {} slept very well.",
    "{} never forgot that day.",
    "It was the best day of the week for {}.",
    "{} went to bed tired but happy.",
    "{} told the story again and again.",
    "{} could not stop smiling.",
    "And {} was happy for the rest of the day.",
];

/// Closings about two friends; the first `{}` stands for the hero, the second for the friend.
pub(super) const CLOSINGS_FOR_TWO: &[&str] = &[
    "{} and {} stayed friends for many, many years.",
    "{} and {} laughed until the sun went down.",
    "After that, {} and {} played together every day.",
    "{} and {} both slept well that night.",
    "It was a day that {} and {} never forgot.",
    "{} and {} were happy for the rest of the day.",
    "That evening, {} and {} were still smiling.",
];
