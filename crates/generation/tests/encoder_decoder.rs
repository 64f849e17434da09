//! Greedy decoding and beam search of encoder-decoders against Hugging Face's ids and scores.

use std::ops::ControlFlow;
use std::path::PathBuf;

use attentive_checkpoint::{self as checkpoint, Description, TensorFile};
use attentive_generation::{
    Beam, BeamConfig, EarlyStopping, GenerationConfig, GenerationError, LogitsProcessors, Sampling,
    Session, StopReason, beam_search, generate,
};
use attentive_model::Model;
use attentive_model::attention::Memory;
use attentive_testing::{SCORES, Scale, assert_near, ulps};
use burn::tensor::{Device, Tensor, TensorData};

struct Golden {
    model: Model,
    description: Description,
    file: TensorFile,
}

impl Golden {
    fn open(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../fixtures/models")
            .join(name);
        let (model, description) = checkpoint::load(&folder, &Device::flex()).unwrap();
        Self {
            model,
            description,
            file: TensorFile::open(&folder.join("golden.safetensors")).unwrap(),
        }
    }

    fn ids(&self, name: &str) -> Vec<u32> {
        let ids = self.file.integers(name).unwrap();
        ids.into_iter().map(|id| id as u32).collect()
    }

    fn processors(&self) -> LogitsProcessors {
        let description = &self.description;
        LogitsProcessors::from_settings(&description.special, &description.generation, 1).unwrap()
    }

    fn search(&self) -> BeamConfig {
        BeamConfig {
            max_new_tokens: 24,
            num_beams: 4,
            num_return_sequences: 4,
            length_penalty: 1.0,
            early_stopping: EarlyStopping::False,
            renormalize_logits: false,
            tokenizer_vocabulary: None,
            processors: self.processors(),
        }
    }

    /// The sources of the searches, without padding.
    fn sources(&self) -> Vec<Vec<u32>> {
        let width = self.file.shape("beams.input_ids").unwrap()[1];
        let ids = self.ids("beams.input_ids");
        let mask = self.ids("beams.attention_mask");
        let rows = ids.chunks(width).zip(mask.chunks(width));
        rows.map(|(ids, mask)| {
            let unpadded = ids.iter().zip(mask).filter(|(_, mask)| **mask == 1);
            unpadded.map(|(id, _)| *id).collect()
        })
        .collect()
    }

    /// The expected texts of a search, without padding.
    fn texts(&self, name: &str) -> Vec<Vec<u32>> {
        let ids = self.ids(&format!("beams.{name}.ids"));
        let width = self.file.shape(&format!("beams.{name}.ids")).unwrap()[1];
        let eos = self.processors().eos;
        let cut = |row: &[u32]| {
            let generated = &row[1..];
            let length = generated.iter().position(|id| eos.contains(id));
            generated[..length.unwrap_or(generated.len())].to_vec()
        };
        ids.chunks(width).map(cut).collect()
    }

    fn check(&self, model: &str, name: &str, config: &BeamConfig) {
        let found = beam_search(&self.model, &self.sources(), config).unwrap();
        assert!(found.iter().all(|texts| texts.len() == 4));
        let found: Vec<Beam> = found.into_iter().flatten().collect();
        let ids: Vec<Vec<u32>> = found.iter().map(|beam| beam.ids.clone()).collect();
        assert_eq!(ids, self.texts(name), "{model} {name}");
        let scores = self.file.floats(&format!("beams.{name}.scores")).unwrap();
        for (beam, score) in found.iter().zip(scores) {
            let what = format!("{model} {name}: {beam:?}");
            assert_near(what, beam.score, score, Scale::EachOrOne, SCORES);
        }
    }
}

fn greedy(
    golden: &Golden,
    source: &[u32],
    max_new_tokens: usize,
    processors: LogitsProcessors,
) -> Vec<u32> {
    let config = GenerationConfig {
        max_new_tokens,
        sampling: Sampling::greedy(),
        stop_strings: Vec::new(),
        processors,
    };
    let go_on = |_: attentive_generation::TextChunk| ControlFlow::Continue(());
    let done = generate(&golden.model, None, source, &config, go_on);
    done.unwrap().ids
}

#[test]
fn greedy_ids_match_transformers() {
    for name in [
        "bart",
        "t5",
        "t5-v1.1",
        "marian",
        "bert-generation-both",
        "bert-bert",
        "roberta-roberta",
        "bert-gpt2",
    ] {
        let golden = Golden::open(name);
        let expected = golden.ids("greedy_ids");
        let ids = greedy(&golden, &golden.ids("prompt_ids"), 32, golden.processors());
        assert_eq!(ids, expected[1..], "{name}");
        assert_eq!(
            golden.processors().decoder_start,
            Some(expected[0]),
            "{name}"
        );
    }
}

#[test]
fn a_decoder_runs_alone_or_with_external_memory() {
    let golden = Golden::open("bert-generation-decoder");
    let prompt = golden.ids("alone.prompt_ids");
    let ids = greedy(&golden, &prompt, 32, golden.processors());
    assert_eq!(ids, golden.ids("alone.greedy_ids")[prompt.len()..]);

    let [_, length, width] = golden.file.shape("encoder_hidden_states").unwrap() else {
        panic!("states are [batch, length, width]");
    };
    let states = golden.file.floats("encoder_hidden_states").unwrap();
    let states = TensorData::new(states[..length * width].to_vec(), [1, *length, *width]);
    let mask = golden.ids("encoder_attention_mask");
    let unpadded = mask[..*length].iter().filter(|flag| **flag == 1).count();
    let start = mask.iter().position(|flag| *flag == 1).unwrap();
    let memory = Memory {
        non_padding: Some(std::iter::once(start..start + unpadded).collect()),
        ..Memory::new(Tensor::from_data(states, &Device::flex()))
    };
    let mut session = Session::with_memory(&golden.model, memory);
    let mut sequence = golden.ids("prompt_ids");
    let expected = golden.ids("greedy_ids");
    let mut logits = session.prefill(&sequence);
    loop {
        let id = Sampling::greedy().sample(logits, sequence.len()).unwrap();
        sequence.push(id);
        if sequence.len() >= expected.len() {
            break;
        }
        logits = session.step(id);
    }
    assert_eq!(sequence, expected);
}

#[test]
fn beams_match_transformers() {
    for model in ["bart", "t5", "t5-v1.1", "bert-generation-both"] {
        let golden = Golden::open(model);
        for (name, length_penalty, early_stopping) in [
            ("plain", 1.0, EarlyStopping::False),
            ("long", 2.0, EarlyStopping::False),
            ("short", -1.0, EarlyStopping::False),
            ("early", 1.0, EarlyStopping::True),
            ("never", 0.5, EarlyStopping::Never),
        ] {
            let config = BeamConfig {
                length_penalty,
                early_stopping,
                ..golden.search()
            };
            golden.check(model, name, &config);
        }
    }
}

#[test]
fn eos_can_be_forced_at_the_maximum_length() {
    let golden = Golden::open("bart");
    let mut config = BeamConfig {
        early_stopping: EarlyStopping::True,
        ..golden.search()
    };
    config.processors.forced_eos = vec![2];
    golden.check("bart", "forced", &config);
}

#[test]
fn beams_do_not_depend_on_the_rest_of_the_batch() {
    let golden = Golden::open("t5");
    let config = golden.search();
    let together = beam_search(&golden.model, &golden.sources(), &config).unwrap();
    for (source, expected) in golden.sources().into_iter().zip(&together) {
        let alone = beam_search(&golden.model, &[source], &config).unwrap();
        for (beam, other) in alone[0].iter().zip(expected) {
            assert_eq!((&beam.ids, beam.reason), (&other.ids, other.reason));
            // As `SCORES`, for the logits of this model: at most 2.5.
            assert_near("score", beam.score, other.score, Scale::EachOrOne, ulps(25));
        }
    }
    let two = BeamConfig {
        num_return_sequences: 2,
        ..config
    };
    let best = beam_search(&golden.model, &golden.sources(), &two).unwrap();
    assert!(best.iter().zip(&together).all(|(a, b)| *a == b[..2]));
}

#[test]
fn one_beam_is_greedy_decoding() {
    for name in ["bart", "marian", "bert-generation-decoder"] {
        let golden = Golden::open(name);
        let prefix = match golden.model.config().encoder {
            Some(_) => "",
            None => "alone.",
        };
        let source = golden.ids(&format!("{prefix}prompt_ids"));
        let config = BeamConfig {
            max_new_tokens: 32,
            num_beams: 1,
            num_return_sequences: 1,
            ..golden.search()
        };
        let found = beam_search(&golden.model, std::slice::from_ref(&source), &config).unwrap();
        assert_eq!(found[0][0].reason, StopReason::Length);
        assert_eq!(
            found[0][0].ids,
            greedy(&golden, &source, 32, golden.processors()),
            "{name}"
        );
    }
}

#[test]
fn texts_end_at_the_decoders_length() {
    let golden = Golden::open("bart");
    let processors = LogitsProcessors {
        eos: Vec::new(),
        ..golden.processors()
    };
    let source = golden.ids("prompt_ids");
    let length = golden.model.config().stack.length;
    assert_eq!(
        greedy(&golden, &source, 1000, processors.clone()).len(),
        length
    );
    let config = BeamConfig {
        max_new_tokens: 1000,
        processors,
        ..golden.search()
    };
    let found = beam_search(&golden.model, &[source], &config).unwrap();
    assert!(found[0].iter().all(|beam| beam.ids.len() == length));
}

#[test]
fn impossible_settings_are_reported() {
    let golden = Golden::open("bert-generation-both");
    let error = |source: &[u32], change: &dyn Fn(&mut BeamConfig)| {
        let mut config = golden.search();
        change(&mut config);
        let found = beam_search(&golden.model, &[source.to_vec()], &config);
        found.unwrap_err().to_string()
    };
    let unchanged = |_: &mut BeamConfig| {};
    for (message, expected) in [
        (
            error(&[], &unchanged),
            "the source is empty; give a text for the encoder to read",
        ),
        (
            error(&[5; 23], &unchanged),
            "the source has 23 tokens and the encoder reads at most 22; shorten it",
        ),
        (
            error(&[63], &unchanged),
            "token id 63 is outside the vocabulary of 63; use 0 to 62",
        ),
        (
            error(&[5], &|it| it.processors.decoder_start = None),
            "the model's files have no decoder_start_token_id; add one to its generation settings",
        ),
        (
            error(&[5], &|it| it.processors.forced_eos = vec![67]),
            "forced_eos_token_id: token 67 is outside the vocabulary of 67; correct the model's generation settings",
        ),
        (
            error(&[5], &|it| it.num_beams = 0),
            "num_beams: 0 is out of range; use 1 to 1000",
        ),
        (
            error(&[5], &|it| it.num_return_sequences = 5),
            "num_return_sequences: 5 is out of range; use 1 to 4, the number of beams",
        ),
        (
            error(&[5], &|it| {
                it.processors.bad_words = (0..67).map(|id| vec![id]).collect();
                it.processors.eos.clear();
            }),
            "every next token is masked; loosen the model's generation settings",
        ),
    ] {
        assert_eq!(message, expected);
    }
    let encoder = Golden::open("bert");
    let found = beam_search(&encoder.model, &[vec![5]], &golden.search());
    assert!(matches!(found, Err(GenerationError::NoDecoder)));
}
