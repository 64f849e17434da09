//! Greedy decoding and beam search of encoder-decoders against Hugging Face's ids and scores.

use std::ops::ControlFlow;
use std::path::PathBuf;

use attentive_generation::{
    Beam, BeamConfig, Changes, GenerationConfig, GenerationError, Rules, Sampling, SearchEnd,
    Session, StopReason, beam_search, generate,
};
use attentive_model::checkpoint::{self, Description, TensorFile};
use attentive_model::{Memory, Model};
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

    fn rules(&self) -> Rules {
        let said = &self.description;
        Rules::of_folder(&said.special, &said.generation, 1).unwrap()
    }

    fn search(&self) -> BeamConfig {
        BeamConfig {
            max_tokens: 24,
            beams: 4,
            returned: 4,
            length_penalty: 1.0,
            end: SearchEnd::Unlikely,
            changes: Changes::Lost,
            possible: None,
            rules: self.rules(),
        }
    }

    /// The sources of the searches, without what fills them up.
    fn sources(&self) -> Vec<Vec<u32>> {
        let width = self.file.shape("beams.input_ids").unwrap()[1];
        let ids = self.ids("beams.input_ids");
        let mask = self.ids("beams.attention_mask");
        let rows = ids.chunks(width).zip(mask.chunks(width));
        rows.map(|(ids, mask)| {
            let real = ids.iter().zip(mask).filter(|(_, mask)| **mask == 1);
            real.map(|(id, _)| *id).collect()
        })
        .collect()
    }

    /// The texts of a search in the file, cut at their ends: what follows is filling.
    fn texts(&self, name: &str) -> Vec<Vec<u32>> {
        let ids = self.ids(&format!("beams.{name}.ids"));
        let width = self.file.shape(&format!("beams.{name}.ids")).unwrap()[1];
        let end = self.rules().end;
        let cut = |row: &[u32]| {
            let made = &row[1..];
            let length = made.iter().position(|id| end.contains(id));
            made[..length.unwrap_or(made.len())].to_vec()
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
            let apart = (beam.score - f64::from(score)).abs();
            assert!(apart < 1e-4, "{model} {name}: {beam:?} and {score}");
        }
    }
}

fn greedy(golden: &Golden, source: &[u32], max_tokens: usize, rules: Rules) -> Vec<u32> {
    let config = GenerationConfig {
        max_tokens,
        sampling: Sampling::greedy(),
        stop: Vec::new(),
        rules,
    };
    let go_on = |_: attentive_generation::Piece| ControlFlow::Continue(());
    let done = generate(&golden.model, None, source, &config, go_on);
    done.unwrap().ids
}

#[test]
fn greedy_ids_are_those_of_transformers() {
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
        let ids = greedy(&golden, &golden.ids("prompt_ids"), 32, golden.rules());
        assert_eq!(ids, expected[1..], "{name}");
        assert_eq!(golden.rules().start, Some(expected[0]), "{name}");
    }
}

#[test]
fn a_decoder_continues_alone_or_over_states_from_elsewhere() {
    let golden = Golden::open("bert-generation-decoder");
    let prompt = golden.ids("alone.prompt_ids");
    let ids = greedy(&golden, &prompt, 32, golden.rules());
    assert_eq!(ids, golden.ids("alone.greedy_ids")[prompt.len()..]);

    let [_, length, width] = golden.file.shape("encoder_hidden_states").unwrap() else {
        panic!("states are [batch, length, width]");
    };
    let states = golden.file.floats("encoder_hidden_states").unwrap();
    let states = TensorData::new(states[..length * width].to_vec(), [1, *length, *width]);
    let mask = golden.ids("encoder_attention_mask");
    let real = mask[..*length].iter().filter(|flag| **flag == 1).count();
    let start = mask.iter().position(|flag| *flag == 1).unwrap();
    let memory = Memory {
        real: Some(std::iter::once(start..start + real).collect()),
        ..Memory::new(Tensor::from_data(states, &Device::flex()))
    };
    let mut session = Session::over(&golden.model, memory);
    let mut sequence = golden.ids("prompt_ids");
    let expected = golden.ids("greedy_ids");
    let mut unread = sequence.clone();
    while sequence.len() < expected.len() {
        let scores = session.read(&unread);
        unread = vec![Sampling::greedy().choose(scores, sequence.len()).unwrap()];
        sequence.extend(&unread);
    }
    assert_eq!(sequence, expected);
}

#[test]
fn beams_are_those_of_transformers() {
    for model in ["bart", "t5", "t5-v1.1", "bert-generation-both"] {
        let golden = Golden::open(model);
        for (name, length_penalty, end) in [
            ("plain", 1.0, SearchEnd::Unlikely),
            ("long", 2.0, SearchEnd::Unlikely),
            ("short", -1.0, SearchEnd::Unlikely),
            ("early", 1.0, SearchEnd::Full),
            ("never", 0.5, SearchEnd::Impossible),
        ] {
            let config = BeamConfig {
                length_penalty,
                end,
                ..golden.search()
            };
            golden.check(model, name, &config);
        }
    }
}

#[test]
fn the_last_token_of_the_longest_texts_can_be_forced() {
    let golden = Golden::open("bart");
    let mut config = BeamConfig {
        end: SearchEnd::Full,
        ..golden.search()
    };
    config.rules.last = vec![2];
    golden.check("bart", "forced", &config);
}

#[test]
fn sources_side_by_side_find_what_each_finds_alone() {
    let golden = Golden::open("t5");
    let config = golden.search();
    let together = beam_search(&golden.model, &golden.sources(), &config).unwrap();
    for (source, expected) in golden.sources().into_iter().zip(&together) {
        let alone = beam_search(&golden.model, &[source], &config).unwrap();
        for (beam, other) in alone[0].iter().zip(expected) {
            assert_eq!((&beam.ids, beam.reason), (&other.ids, other.reason));
            assert!((beam.score - other.score).abs() < 1e-5);
        }
    }
    let two = BeamConfig {
        returned: 2,
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
            max_tokens: 32,
            beams: 1,
            returned: 1,
            ..golden.search()
        };
        let found = beam_search(&golden.model, std::slice::from_ref(&source), &config).unwrap();
        assert_eq!(found[0][0].reason, StopReason::Length);
        assert_eq!(
            found[0][0].ids,
            greedy(&golden, &source, 32, golden.rules()),
            "{name}"
        );
    }
}

#[test]
fn the_decoder_ends_where_its_length_does() {
    let golden = Golden::open("bart");
    let rules = Rules {
        end: Vec::new(),
        ..golden.rules()
    };
    let source = golden.ids("prompt_ids");
    let length = golden.model.config().length;
    assert_eq!(greedy(&golden, &source, 1000, rules.clone()).len(), length);
    let config = BeamConfig {
        max_tokens: 1000,
        rules,
        ..golden.search()
    };
    let found = beam_search(&golden.model, &[source], &config).unwrap();
    assert!(found[0].iter().all(|beam| beam.ids.len() == length));
}

#[test]
fn what_cannot_be_is_told() {
    let golden = Golden::open("bert-generation-both");
    let ask = |source: &[u32], change: &dyn Fn(&mut BeamConfig)| {
        let mut config = golden.search();
        change(&mut config);
        let found = beam_search(&golden.model, &[source.to_vec()], &config);
        found.unwrap_err().to_string()
    };
    let nothing = |_: &mut BeamConfig| {};
    for (message, expected) in [
        (
            ask(&[], &nothing),
            "the source is empty; give a text for the encoder to read",
        ),
        (
            ask(&[5; 23], &nothing),
            "the source has 23 tokens and the encoder reads at most 22; shorten it",
        ),
        (
            ask(&[63], &nothing),
            "token id 63 is outside the vocabulary of 63; use 0 to 62",
        ),
        (
            ask(&[5], &|it| it.rules.start = None),
            "the model's files name no token that its decoder starts with; add one to its generation settings",
        ),
        (
            ask(&[5], &|it| it.rules.last = vec![67]),
            "the model's files want the last token to be 67, which is outside the vocabulary of 67; correct the model's generation settings",
        ),
        (
            ask(&[5], &|it| it.beams = 0),
            "beams: 0 is out of range; use 1 to 1000",
        ),
        (
            ask(&[5], &|it| it.returned = 5),
            "return: 5 is out of range; use 1 to 4, the number of beams",
        ),
        (
            ask(&[5], &|it| {
                it.rules.forbidden = (0..67).map(|id| vec![id]).collect();
                it.rules.end.clear();
            }),
            "every token that could come next is forbidden; loosen the rules of the model's generation settings",
        ),
    ] {
        assert_eq!(message, expected);
    }
    let encoder = Golden::open("bert");
    let found = beam_search(&encoder.model, &[vec![5]], &golden.search());
    assert!(matches!(found, Err(GenerationError::NoDecoder)));
}
