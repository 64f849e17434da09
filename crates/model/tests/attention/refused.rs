//! The sentence with which settings are refused.

use attentive_model::{
    Attention, AttentionConfig, Initializer, Place, RelativePositions, Role, Widths,
};
use burn::tensor::Device;

use crate::setting::WIDTH;

/// Why these settings cannot be built in this role and width.
pub fn refusal(words: &str, role: Role, width: usize) -> String {
    of_place(words, &Place::new(role, Widths::all(width), 24))
}

/// Why these settings cannot be built in a model of these positions.
pub fn refusal_with_positions(words: &str, role: Role, positions: RelativePositions) -> String {
    let place = Place {
        positions,
        ..Place::new(role, Widths::all(WIDTH), 24)
    };
    of_place(words, &place)
}

fn of_place(words: &str, place: &Place) -> String {
    let config: AttentionConfig = serde_json::from_str(words).unwrap();
    let initial = &mut Initializer::new(1, &Device::flex());
    let built = Attention::new(&config, place, initial);
    built.expect_err("it is refused").to_string()
}
