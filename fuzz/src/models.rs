//! Settings of models, recipes, and the inputs of a pass.

use std::path::Path;
use std::sync::LazyLock;

use attentive::companions;
use attentive::generation::{Rules, Sampling};
use attentive::model::checkpoint::{
    Description, TensorFile, Wanted, describe, forward, forward_recurrent, load, load_recurrent,
};
use attentive::model::{Model, Recurrent};
use attentive::tasks::SentenceFolder;
use attentive::tensor::device;
use attentive::training::{Recipe, RunFolder};

use crate::model_seeds::{self, CONFIG_FILES, RECIPE, RUN_FILES, SENTENCE_FILES};
use crate::seeds::root;
use crate::texts::{render_all, use_tokenizer};
use crate::{Files, Form, LITTLE, Target, told, with_file};

pub(crate) const TARGETS: [Target; 6] = [
    Target {
        name: "config",
        run: |bytes| {
            let files = Files::parse(bytes).named(&CONFIG_FILES);
            files.with_folder(|folder| {
                describe_model(folder);
                let cpu = device("cpu").expect(CPU);
                told(load_recurrent(folder, &cpu));
            });
        },
        form: Form::Files,
        seeds: model_seeds::configs,
        // Ten thousand blocks of layers without numbers.
        memory: 16 * LITTLE,
    },
    Target {
        name: "gguf_model",
        run: |bytes| {
            with_file("model.gguf", bytes, |path| {
                describe_model(path);
                if let Some(Some(tokenizer)) = told(companions::tokenizer(path)) {
                    use_tokenizer(&tokenizer);
                }
                if let Some(Some(templates)) = told(companions::chat_templates(path)) {
                    render_all(&templates);
                }
                told(companions::tokenizer_files(path));
            });
        },
        form: Form::Bytes,
        seeds: model_seeds::gguf_models,
        memory: 16 * LITTLE,
    },
    Target {
        name: "inputs",
        run: |bytes| {
            with_file("inputs.safetensors", bytes, |path| {
                let Some(file) = told(TensorFile::open(path)) else {
                    return;
                };
                // A number of the last tensor: what is asked for changes, and the file stays good.
                let asked = bytes.last().copied().unwrap_or(0);
                let wanted = Wanted {
                    hidden_states: asked & 1 == 0,
                    attentions: asked & 2 == 0,
                    past_key_values: asked & 4 != 0,
                };
                for (model, description) in MODELS.iter() {
                    told(forward(model, description, &file, "", wanted));
                }
                told(forward_recurrent(&RECURRENT, &file, "", wanted));
            });
        },
        form: Form::Safetensors,
        seeds: model_seeds::inputs,
        memory: 8 * LITTLE,
    },
    Target {
        name: "recipe",
        run: |bytes| {
            let text = String::from_utf8_lossy(bytes);
            if let Some(recipe) = told(Recipe::parse(&text, &[])) {
                told(recipe.with_changes(&["training.steps=7".to_owned()]));
            }
            // The same as changes of single keys.
            for line in text.lines().take(8) {
                told(Recipe::parse(RECIPE, &[line.to_owned()]));
            }
        },
        form: Form::Toml,
        seeds: model_seeds::recipes,
        memory: 16 * LITTLE,
    },
    Target {
        name: "run_folder",
        run: |bytes| {
            let files = Files::parse(bytes).named(&RUN_FILES);
            files.with_folder(|folder| {
                let run = RunFolder::new(folder);
                told(run.recipe());
                told(run.saved_state());
                told(run.metrics());
                told(run.tokenizer());
            });
        },
        form: Form::Files,
        seeds: model_seeds::run_folders,
        memory: 16 * LITTLE,
    },
    Target {
        name: "sentence_folder",
        run: |bytes| {
            let files = Files::parse(bytes).named(&SENTENCE_FILES);
            files.with_folder(|folder| {
                told(SentenceFolder::of(folder));
            });
        },
        form: Form::Files,
        seeds: model_seeds::sentence_folders,
        memory: LITTLE,
    },
];

/// A small model of each way to read: ids that see each other, ids one after the other, and two sequences.
static MODELS: LazyLock<Vec<(Model, Description)>> = LazyLock::new(|| {
    ["bert", "transformer-xl", "t5"]
        .map(|name| {
            let folder = root("fixtures/models").join(name);
            let cpu = device("cpu").expect(CPU);
            load(&folder, &cpu).expect("the fixture is in order")
        })
        .into()
});

static RECURRENT: LazyLock<Recurrent> = LazyLock::new(|| {
    let folder = root("fixtures/models/bahdanau-gru");
    let loaded = load_recurrent(&folder, &device("cpu").expect(CPU));
    loaded.expect("the fixture is in order").0
});

const CPU: &str = "there is a processor";

/// What a model is, and all of it but the weights: a file without tensors lacks them all.
fn describe_model(path: &Path) {
    if let Some(description) = told(describe(path)) {
        let config = &description.config;
        let _ = (config.operations(), config.cache_numbers());
        let _ = (config.constant_cache_numbers(), config.canonical());
        let settings = &description.generation;
        if let Some(rules) = told(Rules::of_folder(&description.special, settings, 1)) {
            told(rules.validate());
        }
        told(Sampling::of_folder(settings));
    }
    if path.is_dir() {
        let empty = b"\x08\0\0\0\0\0\0\0{}      ";
        std::fs::write(path.join("model.safetensors"), empty).expect("a file can be written");
    }
    told(load(path, &device("cpu").expect(CPU)));
}
