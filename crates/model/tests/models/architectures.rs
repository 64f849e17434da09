//! Every architecture against transformers: tiny checkpoints with random weights and what Hugging Face makes of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use attentive_model::Model;
use attentive_model::checkpoint::{
    self, Description, GenerationSettings, SaveOptions, SavedAs, SavedNumbers, TensorFile, Wanted,
};
use attentive_model::models::{TransformerSizes, transformer};
use burn::tensor::{Device, TensorData};

pub fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/models")
        .join(name)
}

pub struct Golden {
    pub name: &'static str,
    pub file: TensorFile,
    pub model: Model,
    description: Description,
}

impl Golden {
    pub fn open(name: &'static str) -> Self {
        let folder = folder(name);
        let (model, description) = checkpoint::load(&folder, &Device::flex())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        Self {
            name,
            file: TensorFile::open(&folder.join("golden.safetensors")).unwrap(),
            model,
            description,
        }
    }

    /// Runs the case of a prefix and compares everything that the file holds of it; gives what was compared.
    fn check(&self, prefix: &str, bound: f32) -> Vec<String> {
        let wanted = Wanted {
            hidden_states: true,
            attentions: true,
            past_key_values: false,
        };
        let outputs =
            checkpoint::forward(&self.model, &self.description, &self.file, prefix, wanted)
                .unwrap_or_else(|error| panic!("{} {prefix}: {error}", self.name));
        let mut compared = Vec::new();
        for (output, ours) in outputs {
            let mut key = format!("{prefix}{output}");
            // Of sparse attentions, transformers returns what it keeps; the matrix of all pairs stands beside.
            let dense = format!("{prefix}dense_{output}");
            if self.file.shape(&dense).is_some() {
                key = dense;
            }
            if self.file.shape(&key).is_none() {
                continue;
            }
            let apart = self.difference(prefix, &key, ours);
            assert!(apart < bound, "{} {key} differs by {apart}", self.name);
            compared.push(output);
        }
        compared
    }

    /// The largest difference relative to the largest number, where the mask of the case says that a position is real.
    pub fn difference(&self, prefix: &str, key: &str, ours: TensorData) -> f32 {
        let shape = self.file.shape(key).unwrap().to_vec();
        assert_eq!(ours.shape().to_vec(), shape, "{} {key}", self.name);
        let ours = ours.try_to_vec::<f32>().unwrap();
        let theirs = self.file.floats(key).unwrap();
        let masks = ["decoder_attention_mask", "attention_mask"];
        let masks = masks.map(|mask| format!("{prefix}{mask}"));
        let real = masks.iter().find_map(|mask| {
            let fits = self.file.shape(mask)? == shape.get(..2)?;
            (fits && shape.len() == 3).then(|| self.file.integers(mask).unwrap())
        });
        let width = shape.last().copied().unwrap_or(1);
        let largest = theirs.iter().fold(1e-6f32, |most, x| most.max(x.abs()));
        let pairs = ours.iter().zip(&theirs).enumerate();
        let kept = pairs.filter(|(i, _)| real.as_ref().is_none_or(|real| real[i / width] == 1));
        kept.map(|(_, (a, b))| (a - b).abs()).fold(0.0, f32::max) / largest
    }
}

/// The models, the cases of each, and how many tensors of the first case there are to compare.
const CASES: &[(&str, &[&str], usize)] = &[
    ("albert", &["", "padded."], 19),
    ("bart", &["", "padded."], 14),
    ("bert", &["", "padded.", "untyped."], 9),
    ("bert-answers", &["", "padded."], 8),
    ("bert-bert", &["", "padded."], 14),
    ("bert-classifier", &["", "padded."], 8),
    ("bert-generation-both", &["", "padded."], 14),
    ("bert-generation-decoder", &["", "padded.", "alone."], 9),
    ("bert-generation-encoder", &["", "padded."], 6),
    ("bert-gpt2", &["", "padded."], 14),
    ("bert-tokens", &["", "padded."], 7),
    ("big-bird", &["", "padded.", "short.", "uneven."], 7),
    ("deit", &["", "interpolated."], 11),
    ("distilbert", &["", "padded."], 9),
    ("gpt2-classifier", &["", "padded."], 6),
    ("longformer", &["", "local.", "padded.", "uneven."], 7),
    ("marian", &["", "padded."], 14),
    ("mistral-classifier", &[""], 6),
    ("reformer", &["", "padded.", "short.", "uneven."], 9),
    ("reformer-masked", &["", "padded.", "short.", "uneven."], 7),
    ("roberta", &["", "padded."], 7),
    ("roberta-roberta", &["", "padded."], 9),
    ("t5", &["", "padded."], 14),
    ("t5-v1.1", &["", "padded."], 16),
    ("transformer", &["", "padded."], 3),
    ("transformer-xl", &["first."], 8),
    ("vit", &["", "interpolated."], 7),
];

#[test]
fn all_outputs_are_those_of_transformers() {
    for (name, prefixes, least) in CASES {
        let golden = Golden::open(name);
        for (i, prefix) in prefixes.iter().enumerate() {
            let compared = golden.check(prefix, 1e-5);
            let least = if i == 0 { *least } else { 1 };
            assert!(
                compared.len() >= least,
                "{name} {prefix}: only {compared:?} were compared"
            );
        }
    }
}

/// What an encoder may have and its decoder does not read, so that it is not kept.
const UNREAD: [&str; 2] = ["encoder.pooler.dense.weight", "encoder.pooler.dense.bias"];

#[test]
fn without_a_pad_token_rows_are_read_one_by_one() {
    let golden = Golden::open("mistral-classifier");
    let place = std::env::temp_dir().join(format!("attentive-rows-{}", std::process::id()));
    let ids = TensorData::new(vec![5i64, 9, 4, 7, 3, 8], [2, 3]);
    let tensors = BTreeMap::from([("input_ids".to_owned(), ids)]);
    checkpoint::write_tensors(&place, tensors, Default::default()).unwrap();
    let file = TensorFile::open(&place).unwrap();
    let (model, said) = (&golden.model, &golden.description);
    let refused = checkpoint::forward(model, said, &file, "", Wanted::default()).unwrap_err();
    std::fs::remove_file(&place).unwrap();
    assert!(
        refused.to_string().ends_with("there are 2 rows, and config.json names no pad_token_id by which the last token of each is found; give one row, or add it"),
        "{refused}"
    );
}

#[test]
fn what_is_saved_is_what_was_loaded() {
    for (name, ..) in CASES {
        let golden = Golden::open(name);
        let place =
            std::env::temp_dir().join(format!("attentive-models-{}-{name}", std::process::id()));
        let options = SaveOptions::default();
        checkpoint::convert(&place, &golden.model, &golden.description, options).unwrap();
        let (again, description) = checkpoint::load(&place, &Device::flex()).unwrap();
        assert_eq!(
            description.model_type, golden.description.model_type,
            "{name}"
        );
        assert_eq!(
            again.config().canonical(),
            golden.model.config().canonical(),
            "{name}"
        );
        assert_eq!(description.special, golden.description.special, "{name}");
        assert_eq!(description.problem, golden.description.problem, "{name}");
        let settings = |said: &Description| GenerationSettings {
            path: PathBuf::new(),
            ..said.generation.clone()
        };
        assert_eq!(
            settings(&description),
            settings(&golden.description),
            "{name}"
        );
        let described = checkpoint::describe(&folder(name)).unwrap();
        assert_eq!(described.config, golden.description.config, "{name}");
        let theirs = TensorFile::of_folder(&folder(name)).unwrap();
        let ours = TensorFile::of_folder(&place).unwrap();
        let tensors = |file: &TensorFile| -> BTreeMap<String, Vec<usize>> {
            let shape = |name: &String| file.shape(name).unwrap().to_vec();
            file.names()
                .into_iter()
                .filter(|name| !UNREAD.contains(&name.as_str()))
                .map(|name| (name.clone(), shape(&name)))
                .collect()
        };
        assert_eq!(tensors(&ours), tensors(&theirs), "{name}");
        for key in tensors(&theirs).into_keys() {
            assert_eq!(
                ours.floats(&key).unwrap(),
                theirs.floats(&key).unwrap(),
                "{name} {key}"
            );
        }
        std::fs::remove_dir_all(&place).unwrap();
    }
}

#[test]
fn weights_in_several_files_and_in_half_the_bits_load_again() {
    let golden = Golden::open("bert");
    let place = std::env::temp_dir().join(format!("attentive-shards-{}", std::process::id()));
    for (numbers, bound) in [
        (SavedNumbers::Float16, 1e-3),
        (SavedNumbers::BFloat16, 1e-2),
    ] {
        let options = SaveOptions {
            format: SavedAs::Attentive,
            numbers,
            shard_bytes: 5_000,
        };
        checkpoint::convert(&place, &golden.model, &golden.description, options).unwrap();
        assert!(place.join("model.safetensors.index.json").exists());
        assert!(!place.join("model.safetensors").exists());
        let (again, description) = checkpoint::load(&place, &Device::flex()).unwrap();
        assert_eq!(description.model_type, "attentive");
        for (ours, theirs) in parameter_values(&again)
            .iter()
            .zip(parameter_values(&golden.model))
        {
            let apart = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs());
            assert!(apart.fold(0.0, f32::max) < bound);
        }
        std::fs::remove_dir_all(&place).unwrap();
    }
}

fn parameter_values(model: &Model) -> Vec<Vec<f32>> {
    let values = checkpoint::model_tensors(model).into_values();
    values.map(|it| it.try_to_vec::<f32>().unwrap()).collect()
}

#[test]
fn names_and_shapes_of_parameters() {
    for (name, ..) in CASES {
        let golden = Golden::open(name);
        let lines = attentive_model::parameters(&golden.model);
        let lines = lines.iter().map(|it| format!("{} {:?}", it.name, it.shape));
        let lines: Vec<String> = lines.collect();
        insta::assert_snapshot!(format!("parameters_{name}"), lines.join("\n"));
    }
}

#[test]
fn the_transformer_of_the_paper_is_the_one_that_is_held_to_pytorch() {
    let sizes = TransformerSizes {
        vocabulary: 61,
        length: 40,
        width: 16,
        heads: 4,
        hidden_width: 28,
        layers: 2,
        dropout: 0.0,
    };
    let golden = Golden::open("transformer");
    assert_eq!(
        transformer(sizes).canonical(),
        golden.model.config().canonical()
    );
}
