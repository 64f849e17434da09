//! Settings of generation_config.json, both ways, and those that are refused.

use serde_json::{Map, Value, json};

use super::{Bias, EndPull, GenerationSettings, SearchEnd};

#[test]
fn settings_are_read_back_as_they_were_written() {
    let settings = GenerationSettings {
        first: Some(3),
        last: vec![2, 5],
        longest: Some(142),
        shortest: Some(56),
        beams: Some(4),
        returned: Some(2),
        length_penalty: Some(-0.5),
        search_end: Some(SearchEnd::Impossible),
        renormalized: Some(true),
        no_repeat: Some(3),
        no_repeat_of_source: Some(0),
        repetition_penalty: Some(1.2),
        forbidden: vec![vec![9], vec![7, 8]],
        suppressed: vec![1],
        suppressed_first: vec![4, 6],
        biases: vec![Bias::from((vec![3, 4], -1.5))],
        end_pull: Some(EndPull::from((4, 1.01))),
        drawn: Some(true),
        temperature: Some(0.6),
        top_p: Some(0.9),
        others: Map::from_iter([("cache_implementation".to_owned(), json!("static"))]),
        ..GenerationSettings::default()
    };
    let mut words = json!({});
    settings.write(&mut words);
    assert_eq!(GenerationSettings::read(&words), Ok(settings));
    assert_eq!(words["early_stopping"], "never");
    assert_eq!(words["sequence_bias"], json!([[[3, 4], -1.5]]));
    assert_eq!(words["exponential_decay_length_penalty"], json!([4, 1.01]));
    let mut nothing = json!({});
    GenerationSettings::default().write(&mut nothing);
    assert_eq!(nothing, json!({}));
}

#[test]
fn settings_that_mean_nothing_are_told() {
    for (words, problem) in [
        (
            json!({ "early_stopping": "maybe" }),
            "early_stopping: there is no \"maybe\"; use true, false or \"never\"",
        ),
        (
            json!({ "num_beams": 0 }),
            "num_beams: 0 is out of range; use 1 to 1000",
        ),
        (
            json!({ "num_beams": -1 }),
            "num_beams: invalid value: integer `-1`, expected 0 or more",
        ),
        (
            json!({ "forced_eos_token_id": "x" }),
            "forced_eos_token_id: \"x\" is not a token id; use whole numbers",
        ),
        (
            json!({ "num_beams": 2, "num_return_sequences": 3 }),
            "num_return_sequences: 3 is out of range; use 1 to 2, which num_beams is",
        ),
        (
            json!({ "encoder_repetition_penalty": 0 }),
            "encoder_repetition_penalty: 0 is out of range; use more than 0",
        ),
        (
            json!({ "do_sample": true, "temperature": 0 }),
            "temperature: 0 is out of range; use more than 0",
        ),
        (
            json!({ "do_sample": true, "min_p": 2 }),
            "min_p: 2 is out of range; use 0 to 1",
        ),
        (
            json!({ "do_sample": true, "typical_p": 0.0 }),
            "typical_p: 0 is out of range; use more than 0 and at most 1",
        ),
        (
            json!({ "bad_words_ids": [[3], []] }),
            "bad_words_ids: one of its lists of tokens is empty; name tokens or remove it",
        ),
    ] {
        assert_eq!(GenerationSettings::read(&words), Err(problem.to_owned()));
    }
    // Where nothing is drawn, transformers does not look at them either.
    let unused = json!({ "do_sample": false, "temperature": 0.0, "min_p": 2 });
    let unused = GenerationSettings::read(&unused).unwrap();
    assert!(unused.check().is_ok() && unused.check_drawing().is_err());
}

#[test]
fn settings_that_nothing_follows_are_refused_by_who_makes_texts() {
    let read = |words: Value| GenerationSettings::read(&words).unwrap();
    for (words, refused) in [
        (json!({ "guidance_scale": 1.5 }), true),
        (
            json!({ "guidance_scale": 1, "watermarking_config": null }),
            false,
        ),
        (json!({ "num_beam_groups": 2 }), true),
        (
            json!({ "num_beam_groups": 1, "remove_invalid_values": false }),
            false,
        ),
        (json!({ "stop_strings": ["."] }), true),
        (json!({ "forced_decoder_ids": [] }), false),
        (
            json!({ "top_h": 0.4, "transformers_version": "5.0" }),
            false,
        ),
    ] {
        assert_eq!(read(words.clone()).check().is_err(), refused, "{words}");
    }
    let drawn = read(json!({ "top_h": 0.4, "epsilon_cutoff": 0.0 }));
    let problem = drawn.check_drawing().unwrap_err().to_string();
    assert_eq!(
        problem.trim_start_matches(": "),
        "top_h 0.4 would change the texts and is not supported; remove it to make texts without it"
    );
}
