//! The golden texts of the fixtures are numerically stable: no comparison that decides a token is so close that rounding
//! on another CPU could flip it.
//!
//! The margin of a comparison is the difference of the two scores in units of [`attentive_testing::EPSILON`], relative to
//! their size. A naive beam search, one source at a time and without a cache, repeats and measures every comparison; greedy
//! decoding is beam search with one beam.

use std::path::{Path, PathBuf};

use attentive_checkpoint::{self as checkpoint, TensorFile};
use attentive_formats::json;
use attentive_model::attention::Memory;
use attentive_model::{ForwardOptions, Input, Model, ids_tensor};
use attentive_testing::{CLEAR_MARGIN, EPSILON};
use burn::tensor::Device;
use serde_json::{Map, Value};

use super::{BeamConfig, score_tokens};
use crate::logits_processors::ProcessorContext;
use crate::{EarlyStopping, GenerationSettings, LogitsProcessors, SpecialTokens, encode};

/// The smallest margin so far.
struct Margin(f64);

impl Margin {
    /// Records the margin between two scores that may be off by the rounding errors of values of this size.
    fn compare(&mut self, one: f64, other: f64, size: f64) {
        let size = size.max(one.abs()).max(other.abs());
        self.0 = self.0.min((one - other).abs() / (EPSILON * size));
    }
}

/// The logits after a sequence, without a cache.
fn logits(model: &Model, memory: Option<&Memory>, sequence: &[u32]) -> Vec<f32> {
    let input = Input {
        memory: memory.cloned(),
        ..Input::new(ids_tensor(&[sequence], &model.device()))
    };
    let hidden = model.hidden_states(input, ForwardOptions::default()).states;
    let last = hidden.narrow(1, sequence.len() - 1, 1);
    model.logits(last).into_data().try_to_vec().unwrap()
}

/// The texts of a naive beam search, best first, and its smallest margin.
fn search(model: &Model, source: &[u32], config: &BeamConfig) -> (Vec<Vec<u32>>, f64) {
    let sources = [source.to_vec()];
    let memory = (model.config().encoder.is_some()).then(|| encode(model, &sources, 0));
    let prompt = match &memory {
        Some(_) => vec![config.processors.decoder_start.unwrap()],
        None => source.to_vec(),
    };
    let mut margin = Margin(f64::INFINITY);
    let mut running = vec![(Vec::<u32>::new(), 0.0)];
    let mut largest = 0.0f64;
    let mut finished: Vec<(Vec<u32>, f64)> = Vec::new();
    for generated in 0..config.max_new_tokens {
        let divisor = |length: usize| (length as f64).powf(config.length_penalty);
        let mut candidates = Vec::new();
        for (ids, score) in &running {
            let tokens = [&prompt, ids.as_slice()].concat();
            let mut scores = logits(model, memory.as_ref(), &tokens);
            let finite = scores.iter().map(|it| f64::from(it.abs()));
            largest = finite.filter(|it| it.is_finite()).fold(largest, f64::max);
            let context = ProcessorContext {
                source,
                tokens: &tokens,
                generated,
                max_new_tokens: config.max_new_tokens,
            };
            // Greedy decoding processes the logits, not log-probabilities.
            match config.num_beams {
                1 => config.processors.apply(&mut scores, context),
                _ => score_tokens(&mut scores, context, config).unwrap(),
            }
            candidates.extend(
                (0..scores.len())
                    .filter(|id| scores[*id].is_finite())
                    .map(|id| {
                        let ids = [ids.as_slice(), &[id as u32]].concat();
                        (ids, score + f64::from(scores[id]))
                    }),
            );
        }
        candidates.sort_by(|a, b| b.1.total_cmp(&a.1));
        // A score sums one log-probability per step; their errors are independent, so they grow with the square root.
        let size = largest * ((generated + 1) as f64).sqrt();
        let ends = |ids: &[u32]| {
            let last = ids.last().unwrap();
            generated + 1 == config.max_new_tokens || config.processors.eos.contains(last)
        };
        // Only the best num_beams candidates may end a text.
        for (rank, (ids, score)) in candidates.iter().enumerate() {
            if ends(ids) {
                let rival = match rank < config.num_beams {
                    true => candidates.get(config.num_beams),
                    false => candidates.get(config.num_beams - 1),
                };
                if let Some((_, rival)) = rival {
                    margin.compare(*score, *rival, size);
                }
            }
        }
        let best = &candidates[..config.num_beams.min(candidates.len())];
        for (ids, score) in best.iter().filter(|(ids, _)| ends(ids)) {
            let is_eos = config.processors.eos.contains(ids.last().unwrap());
            let length = ids.len() - usize::from(is_eos);
            finished.push((ids[..length].to_vec(), score / divisor(generated + 1)));
        }
        finished.sort_by(|a, b| b.1.total_cmp(&a.1));
        for pair in finished.windows(2).take(config.num_beams) {
            margin.compare(pair[0].1, pair[1].1, size / divisor(generated + 1));
        }
        finished.truncate(config.num_beams);
        candidates.retain(|(ids, _)| !ends(ids));
        if let Some((_, next)) = candidates.get(config.num_beams) {
            margin.compare(candidates[config.num_beams - 1].1, *next, size);
        }
        candidates.truncate(config.num_beams);
        running = candidates;
        let (Some((_, best)), Some((_, worst))) = (running.first(), finished.last()) else {
            continue;
        };
        if finished.len() < config.num_beams {
            continue;
        }
        let divisor = match config.early_stopping {
            EarlyStopping::Never if config.length_penalty > 0.0 => divisor(config.max_new_tokens),
            _ => divisor(generated + 1),
        };
        if config.early_stopping == EarlyStopping::True {
            break;
        }
        margin.compare(best / divisor, *worst, size / divisor);
        if best / divisor <= *worst {
            break;
        }
    }
    let texts = finished.into_iter().map(|(ids, _)| ids);
    (texts.collect(), margin.0)
}

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// A folder of the fixtures.
struct Golden {
    name: String,
    model: Model,
    special: SpecialTokens,
    settings: GenerationSettings,
}

impl Golden {
    fn open(name: &str) -> Self {
        Self::from_folder(name.to_owned(), &fixtures().join(name))
    }

    /// Reads the settings itself: those that `checkpoint` returns are types of this crate's non-test build.
    fn from_folder(name: String, folder: &Path) -> Self {
        let (model, _) = checkpoint::load(folder, &Device::flex()).unwrap();
        let config = json::read(&folder.join("config.json")).unwrap();
        let (special, settings) = crate::settings::read(folder, &config).unwrap();
        Self {
            name,
            model,
            special,
            settings,
        }
    }

    fn file(&self) -> TensorFile {
        TensorFile::open(&fixtures().join(&self.name).join("golden.safetensors")).unwrap()
    }

    fn processors(&self, prompt_length: usize) -> LogitsProcessors {
        LogitsProcessors::from_settings(&self.special, &self.settings, prompt_length).unwrap()
    }

    /// Checks that the search finds the expected texts with clear margins.
    fn check(&self, what: &str, source: &[u32], config: &BeamConfig, expected: &[Vec<u32>]) -> f64 {
        let (texts, margin) = search(&self.model, source, config);
        println!("{:8.0} ulps: {} {what}", margin, self.name);
        assert_eq!(texts, expected, "{} {what}", self.name);
        assert!(margin >= CLEAR_MARGIN, "{} {what}: {margin}", self.name);
        margin
    }
}

fn ids(file: &TensorFile, name: &str) -> Vec<u32> {
    let ids = file.integers(name).unwrap();
    ids.into_iter().map(|id| id as u32).collect()
}

fn config(beams: usize, max_new_tokens: usize, processors: LogitsProcessors) -> BeamConfig {
    BeamConfig {
        max_new_tokens,
        num_beams: beams,
        num_return_sequences: beams,
        length_penalty: 1.0,
        early_stopping: match beams {
            1 => EarlyStopping::True,
            _ => EarlyStopping::False,
        },
        renormalize_logits: false,
        tokenizer_vocabulary: None,
        processors,
    }
}

#[test]
fn greedy_texts_have_clear_margins() {
    for (name, prefix) in [
        ("gpt2", ""),
        ("llama", ""),
        ("llama-tied", ""),
        ("models/mistral", ""),
        ("models/qwen2", ""),
        ("models/qwen3", ""),
        ("models/mixtral", ""),
        ("models/bart", ""),
        ("models/t5", ""),
        ("models/t5-v1.1", ""),
        ("models/marian", ""),
        ("models/bert-generation-both", ""),
        ("models/bert-generation-decoder", "alone."),
        ("models/bert-bert", ""),
        ("models/roberta-roberta", ""),
        ("models/bert-gpt2", ""),
    ] {
        let golden = Golden::open(name);
        let file = golden.file();
        let [prompt, text] =
            ["prompt_ids", "greedy_ids"].map(|it| ids(&file, &format!("{prefix}{it}")));
        let (prompt_length, processors) = match golden.model.config().encoder.is_some() {
            true => (1, golden.processors(1)),
            false => (prompt.len(), LogitsProcessors::default()),
        };
        let text = text[prompt_length..].to_vec();
        let config = config(1, text.len(), processors);
        golden.check("greedy", &prompt, &config, &[text]);
    }
}

/// The rows of a tensor of ids.
fn rows(file: &TensorFile, name: &str) -> Vec<Vec<u32>> {
    let width = file.shape(name).unwrap()[1];
    ids(file, name).chunks(width).map(<[u32]>::to_vec).collect()
}

#[test]
fn beams_have_clear_margins() {
    for name in ["bart", "t5", "t5-v1.1", "bert-generation-both"] {
        let golden = Golden::open(&format!("models/{name}"));
        let file = golden.file();
        let mask = rows(&file, "beams.attention_mask");
        let sources = rows(&file, "beams.input_ids")
            .into_iter()
            .zip(mask)
            .map(|(ids, mask)| {
                let unpadded = ids.into_iter().zip(mask).filter(|(_, mask)| *mask == 1);
                unpadded.map(|(id, _)| id).collect::<Vec<u32>>()
            });
        let sources: Vec<_> = sources.collect();
        for (case, length_penalty, early_stopping) in [
            ("plain", 1.0, EarlyStopping::False),
            ("long", 2.0, EarlyStopping::False),
            ("short", -1.0, EarlyStopping::False),
            ("early", 1.0, EarlyStopping::True),
            ("never", 0.5, EarlyStopping::Never),
            ("forced", 1.0, EarlyStopping::True),
        ] {
            let mut config = BeamConfig {
                length_penalty,
                early_stopping,
                ..config(4, 24, golden.processors(1))
            };
            if case == "forced" {
                if name != "bart" {
                    continue;
                }
                config.processors.forced_eos = vec![2];
            }
            let texts = rows(&file, &format!("beams.{case}.ids"))
                .into_iter()
                .map(|row| {
                    let length = row[1..]
                        .iter()
                        .position(|id| config.processors.eos.contains(id));
                    row[1..][..length.unwrap_or(row.len() - 1)].to_vec()
                });
            let texts: Vec<Vec<u32>> = texts.collect();
            for (source, expected) in sources.iter().zip(texts.chunks(4)) {
                golden.check(case, source, &config, expected);
            }
        }
    }
}

#[test]
fn texts_with_logits_processors_have_clear_margins() {
    let text = std::fs::read_to_string(fixtures().join("logits_processors.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let tokens = file["tokens"].as_u64().unwrap() as usize;
    let lists = |it: &Value| serde_json::from_value::<Vec<Vec<u32>>>(it.clone()).unwrap();
    for case in file["cases"].as_array().unwrap() {
        let golden = Golden::open(case["model"].as_str().unwrap());
        let beams = case["beams"].as_u64().unwrap() as usize;
        let settings = case["settings"].as_object().unwrap();
        let (sources, texts) = (lists(&case["sources"]), lists(&case["ids"]));
        let prompt_length = match golden.model.config().encoder {
            Some(_) => 1,
            None => sources[0].len(),
        };
        let golden = golden.with_settings(settings);
        let mut config = config(beams, tokens, golden.processors(prompt_length));
        config.renormalize_logits = golden.settings.renormalize_logits == Some(true);
        for (source, expected) in sources.iter().zip(texts.chunks(beams)) {
            golden.check(
                &format!("{} {beams}", case["name"]),
                source,
                &config,
                expected,
            );
        }
    }
}

impl Golden {
    /// The same folder with more settings in its generation_config.json.
    fn with_settings(self, settings: &Map<String, Value>) -> Self {
        let (from, to) = (fixtures().join(&self.name), tempfile::tempdir().unwrap());
        for file in ["config.json", "model.safetensors"] {
            std::fs::copy(from.join(file), to.path().join(file)).unwrap();
        }
        let text = std::fs::read_to_string(from.join("generation_config.json")).unwrap();
        let mut all: Map<String, Value> = serde_json::from_str(&text).unwrap();
        all.extend(settings.clone());
        let file = to.path().join("generation_config.json");
        std::fs::write(file, Value::Object(all).to_string()).unwrap();
        Self::from_folder(self.name, to.path())
    }
}
