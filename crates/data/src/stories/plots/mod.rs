//! The plots, a few to a file. Each tells a whole story with the teller's cast: opening, plot, closing.
//!
//! To add a plot, write a function in one of these files and add it to [`PLOTS`]. Every sentence must be correct for
//! every cast: use the pronoun fields of the person, never a singular "they", and mention only what was introduced.

mod finding;
mod kindness;
mod learning;
mod making;
mod quarrels;
mod travel;
mod weather;

use super::teller::Teller;

/// All plots, chosen uniformly.
pub(super) const PLOTS: &[fn(&mut Teller)] = &[
    finding::lost_and_found,
    finding::hide_and_seek,
    finding::found_and_returned,
    kindness::animal_in_need,
    kindness::shared_meal,
    kindness::new_in_town,
    learning::new_skill,
    learning::noise_at_night,
    learning::the_race,
    making::handmade_gift,
    making::the_seed,
    making::surprise_party,
    quarrels::both_want_it,
    quarrels::broken_by_accident,
    quarrels::unkind_words,
    travel::day_trip,
    travel::the_visit,
    weather::rain_changes_the_plan,
    weather::first_snow,
    weather::strong_wind,
];
