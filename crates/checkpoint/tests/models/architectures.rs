//! Every architecture against transformers: tiny checkpoints with random weights and Hugging Face's outputs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use attentive_checkpoint as checkpoint;
use attentive_checkpoint::{
    self, Description, RequestedOutputs, SaveDType, SaveFormat, SaveOptions, TensorFile,
};
use attentive_generation::GenerationSettings;
use attentive_model::Model;
use attentive_model::models::{TransformerSizes, transformer};
use attentive_testing::{Scale, assert_close};
use burn::tensor::{Device, TensorData};

use crate::support::{Golden, folder};

/// A model of a fixture and its golden outputs.
pub struct Loaded {
    pub golden: Golden,
    pub model: Model,
    description: Description,
}

impl Loaded {
    pub fn open(name: &str) -> Self {
        let (model, description) = checkpoint::load(&folder(name), &Device::flex())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        Self {
            golden: Golden::open(name),
            model,
            description,
        }
    }

    /// Runs the case with this prefix and compares every output that the file has; returns their names.
    fn check(&self, prefix: &str) -> Vec<String> {
        let requested = RequestedOutputs {
            hidden_states: true,
            attentions: true,
            past_key_values: false,
        };
        let Golden { name, file, .. } = &self.golden;
        let outputs = checkpoint::forward(&self.model, &self.description, file, prefix, requested)
            .unwrap_or_else(|error| panic!("{name} {prefix}: {error}"));
        let mut compared = Vec::new();
        for (output, ours) in outputs {
            let mut key = format!("{prefix}{output}");
            // For sparse attention, transformers returns the sparse weights; the file has the dense matrix too.
            let dense = format!("{prefix}dense_{output}");
            if file.shape(&dense).is_some() {
                key = dense;
            }
            if file.shape(&key).is_none() {
                continue;
            }
            self.golden.check_unpadded(prefix, &key, ours);
            compared.push(output);
        }
        compared
    }
}

/// The models, the cases of each, and the number of tensors of the first case to compare.
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
fn all_outputs_match_transformers() {
    for (name, prefixes, min_compared) in CASES {
        let loaded = Loaded::open(name);
        for (i, prefix) in prefixes.iter().enumerate() {
            let compared = loaded.check(prefix);
            let min_compared = if i == 0 { *min_compared } else { 1 };
            assert!(
                compared.len() >= min_compared,
                "{name} {prefix}: only {compared:?} were compared"
            );
        }
    }
}

/// An encoder's unused pooler, which is not loaded.
const UNUSED: [&str; 2] = ["encoder.pooler.dense.weight", "encoder.pooler.dense.bias"];

#[test]
fn without_a_pad_token_a_batch_is_refused() {
    let loaded = Loaded::open("mistral-classifier");
    let input = std::env::temp_dir().join(format!("attentive-rows-{}", std::process::id()));
    let ids = TensorData::new(vec![5i64, 9, 4, 7, 3, 8], [2, 3]);
    let tensors = BTreeMap::from([("input_ids".to_owned(), ids)]);
    checkpoint::write_tensors(&input, tensors, Default::default()).unwrap();
    let file = TensorFile::open(&input).unwrap();
    let (model, description) = (&loaded.model, &loaded.description);
    let refused = checkpoint::forward(model, description, &file, "", RequestedOutputs::default())
        .unwrap_err();
    std::fs::remove_file(&input).unwrap();
    assert!(
        refused.to_string().ends_with("there are 2 rows, and config.json has no pad_token_id, which locates the last token of each; give one row, or add it"),
        "{refused}"
    );
}

#[test]
fn loaded_models_are_saved_unchanged() {
    for (name, ..) in CASES {
        let loaded = Loaded::open(name);
        let saved =
            std::env::temp_dir().join(format!("attentive-models-{}-{name}", std::process::id()));
        let options = SaveOptions::default();
        checkpoint::convert(&saved, &loaded.model, &loaded.description, options).unwrap();
        let (again, description) = checkpoint::load(&saved, &Device::flex()).unwrap();
        assert_eq!(
            description.model_type, loaded.description.model_type,
            "{name}"
        );
        assert_eq!(
            again.config().canonical(),
            loaded.model.config().canonical(),
            "{name}"
        );
        assert_eq!(description.special, loaded.description.special, "{name}");
        assert_eq!(
            description.problem_type, loaded.description.problem_type,
            "{name}"
        );
        let settings = |description: &Description| GenerationSettings {
            path: PathBuf::new(),
            ..description.generation.clone()
        };
        assert_eq!(
            settings(&description),
            settings(&loaded.description),
            "{name}"
        );
        let described = checkpoint::describe(&folder(name)).unwrap();
        assert_eq!(described.config, loaded.description.config, "{name}");
        let theirs = TensorFile::from_folder(&folder(name)).unwrap();
        let ours = TensorFile::from_folder(&saved).unwrap();
        let tensors = |file: &TensorFile| -> BTreeMap<String, Vec<usize>> {
            let shape = |name: &String| file.shape(name).unwrap().to_vec();
            file.names()
                .into_iter()
                .filter(|name| !UNUSED.contains(&name.as_str()))
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
        std::fs::remove_dir_all(&saved).unwrap();
    }
}

#[test]
fn sharded_half_precision_weights_load_again() {
    let loaded = Loaded::open("bert");
    let saved = std::env::temp_dir().join(format!("attentive-shards-{}", std::process::id()));
    for (dtype, bits) in [(SaveDType::Float16, 11), (SaveDType::BFloat16, 8)] {
        let options = SaveOptions {
            format: SaveFormat::Attentive,
            dtype,
            max_shard_bytes: 5_000,
        };
        checkpoint::convert(&saved, &loaded.model, &loaded.description, options).unwrap();
        assert!(saved.join("model.safetensors.index.json").exists());
        assert!(!saved.join("model.safetensors").exists());
        let (again, description) = checkpoint::load(&saved, &Device::flex()).unwrap();
        assert_eq!(description.model_type, "attentive");
        for (ours, theirs) in parameter_values(&again)
            .iter()
            .zip(parameter_values(&loaded.model))
        {
            let half_ulp = 0.5f64.powi(bits);
            assert_close("weights", ours, &theirs, Scale::Largest, half_ulp);
        }
        std::fs::remove_dir_all(&saved).unwrap();
    }
}

fn parameter_values(model: &Model) -> Vec<Vec<f32>> {
    let values = checkpoint::model_tensors(model).into_values();
    values.map(|it| it.try_to_vec::<f32>().unwrap()).collect()
}

#[test]
fn names_and_shapes_of_parameters() {
    for (name, ..) in CASES {
        let loaded = Loaded::open(name);
        let lines = attentive_model::parameters(&loaded.model);
        let lines = lines.iter().map(|it| format!("{} {:?}", it.name, it.shape));
        let lines: Vec<String> = lines.collect();
        insta::assert_snapshot!(format!("parameters_{name}"), lines.join("\n"));
    }
}

#[test]
fn the_papers_transformer_is_the_one_compared_with_pytorch() {
    let sizes = TransformerSizes {
        vocabulary: 61,
        length: 40,
        width: 16,
        heads: 4,
        hidden_width: 28,
        layers: 2,
        dropout: 0.0,
    };
    let loaded = Loaded::open("transformer");
    assert_eq!(
        transformer(sizes).canonical(),
        loaded.model.config().canonical()
    );
}
