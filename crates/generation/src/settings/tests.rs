//! Settings of generation_config.json, read and written, and those that are refused.

use serde_json::{Map, Value, json};

use super::{EarlyStopping, ExponentialDecayLengthPenalty, GenerationSettings, SequenceBias};

#[test]
fn settings_are_read_back_as_they_were_written() {
    let settings = GenerationSettings {
        forced_bos: Some(3),
        forced_eos: vec![2, 5],
        max_length: Some(142),
        min_length: Some(56),
        num_beams: Some(4),
        num_return_sequences: Some(2),
        length_penalty: Some(-0.5),
        early_stopping: Some(EarlyStopping::Never),
        renormalize_logits: Some(true),
        no_repeat_ngram_size: Some(3),
        encoder_no_repeat_ngram_size: Some(0),
        repetition_penalty: Some(1.2),
        bad_words: vec![vec![9], vec![7, 8]],
        suppress_tokens: vec![1],
        begin_suppress_tokens: vec![4, 6],
        sequence_bias: vec![SequenceBias::from((vec![3, 4], -1.5))],
        exponential_decay_length_penalty: Some(ExponentialDecayLengthPenalty::from((4, 1.01))),
        do_sample: Some(true),
        temperature: Some(0.6),
        top_p: Some(0.9),
        others: Map::from_iter([("cache_implementation".to_owned(), json!("static"))]),
        ..GenerationSettings::default()
    };
    let mut config = json!({});
    settings.write(&mut config);
    assert_eq!(GenerationSettings::read(&config), Ok(settings));
    assert_eq!(config["early_stopping"], "never");
    assert_eq!(config["sequence_bias"], json!([[[3, 4], -1.5]]));
    assert_eq!(config["exponential_decay_length_penalty"], json!([4, 1.01]));
    let mut nothing = json!({});
    GenerationSettings::default().write(&mut nothing);
    assert_eq!(nothing, json!({}));
}

#[test]
fn invalid_settings_are_reported() {
    for (config, problem) in [
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
            "num_return_sequences: 3 is out of range; use 1 to 2, the value of num_beams",
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
        assert_eq!(GenerationSettings::read(&config), Err(problem.to_owned()));
    }
    // Without sampling, transformers does not check them either.
    let unused = json!({ "do_sample": false, "temperature": 0.0, "min_p": 2 });
    let unused = GenerationSettings::read(&unused).unwrap();
    assert!(unused.check().is_ok() && unused.check_sampling().is_err());
}

#[test]
fn unsupported_settings_are_refused_where_texts_are_generated() {
    let read = |config: Value| GenerationSettings::read(&config).unwrap();
    for (config, refused) in [
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
        assert_eq!(read(config.clone()).check().is_err(), refused, "{config}");
    }
    let sampled = read(json!({ "top_h": 0.4, "epsilon_cutoff": 0.0 }));
    let problem = sampled.check_sampling().unwrap_err().to_string();
    assert_eq!(
        problem.trim_start_matches(": "),
        "top_h 0.4 would change the texts and is not supported; remove it to generate without it"
    );
}
