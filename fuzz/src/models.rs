//! Model configs, recipes, and the inputs of a forward pass.

use std::path::Path;
use std::sync::LazyLock;

use attentive::assets;
use attentive::checkpoint::{
    Description, RequestedOutputs, TensorFile, describe, forward, forward_recurrent, load,
    load_recurrent,
};
use attentive::generation::{LogitsProcessors, Sampling};
use attentive::model::Model;
use attentive::recurrent::Recurrent;
use attentive::tasks::SentenceTransformersConfig;
use attentive::tensor::device;
use attentive::training::{Recipe, RunFolder};

use crate::model_seeds::{self, CONFIG_FILES, RECIPE, RUN_FILES, SENTENCE_FILES};
use crate::seeds::root;
use crate::texts::{render_all, use_tokenizer};
use crate::{DEFAULT_MEMORY, Files, Form, Target, checked, with_file};

pub(crate) const TARGETS: [Target; 6] = [
    Target {
        name: "config",
        run: |bytes| {
            let files = Files::parse(bytes).named(&CONFIG_FILES);
            files.with_folder(|folder| {
                describe_model(folder);
                let cpu = device("cpu").expect(CPU);
                checked(load_recurrent(folder, &cpu));
            });
        },
        form: Form::Files,
        seeds: model_seeds::configs,
        // Ten thousand layers without weights.
        memory: 16 * DEFAULT_MEMORY,
    },
    Target {
        name: "gguf_model",
        run: |bytes| {
            with_file("model.gguf", bytes, |path| {
                describe_model(path);
                if let Some(Some(tokenizer)) = checked(assets::tokenizer(path)) {
                    use_tokenizer(&tokenizer);
                }
                if let Some(Some(templates)) = checked(assets::chat_templates(path)) {
                    render_all(&templates);
                }
                checked(assets::tokenizer_files(path));
            });
        },
        form: Form::Bytes,
        seeds: model_seeds::gguf_models,
        memory: 16 * DEFAULT_MEMORY,
    },
    Target {
        name: "inputs",
        run: |bytes| {
            with_file("inputs.safetensors", bytes, |path| {
                let Some(file) = checked(TensorFile::open(path)) else {
                    return;
                };
                // A byte of the last tensor, so that the requested outputs vary while the file stays valid.
                let flags = bytes.last().copied().unwrap_or(0);
                let requested = RequestedOutputs {
                    hidden_states: flags & 1 == 0,
                    attentions: flags & 2 == 0,
                    past_key_values: flags & 4 != 0,
                };
                for (model, description) in MODELS.iter() {
                    checked(forward(model, description, &file, "", requested));
                }
                checked(forward_recurrent(&RECURRENT, &file, "", requested));
            });
        },
        form: Form::Safetensors,
        seeds: model_seeds::inputs,
        memory: 8 * DEFAULT_MEMORY,
    },
    Target {
        name: "recipe",
        run: |bytes| {
            let text = String::from_utf8_lossy(bytes);
            if let Some(recipe) = checked(Recipe::parse(&text, &[])) {
                checked(recipe.with_changes(&["training.steps=7".to_owned()]));
            }
            // The same lines as overrides of single keys.
            for line in text.lines().take(8) {
                checked(Recipe::parse(RECIPE, &[line.to_owned()]));
            }
        },
        form: Form::Toml,
        seeds: model_seeds::recipes,
        memory: 16 * DEFAULT_MEMORY,
    },
    Target {
        name: "run_folder",
        run: |bytes| {
            let files = Files::parse(bytes).named(&RUN_FILES);
            files.with_folder(|folder| {
                let run = RunFolder::new(folder);
                checked(run.recipe());
                checked(run.saved_state());
                checked(run.metrics());
                checked(run.tokenizer());
            });
        },
        form: Form::Files,
        seeds: model_seeds::run_folders,
        memory: 16 * DEFAULT_MEMORY,
    },
    Target {
        name: "sentence_folder",
        run: |bytes| {
            let files = Files::parse(bytes).named(&SENTENCE_FILES);
            files.with_folder(|folder| {
                checked(SentenceTransformersConfig::from_folder(folder));
            });
        },
        form: Form::Files,
        seeds: model_seeds::sentence_folders,
        memory: DEFAULT_MEMORY,
    },
];

/// A small encoder, decoder, and encoder-decoder.
static MODELS: LazyLock<Vec<(Model, Description)>> = LazyLock::new(|| {
    ["bert", "transformer-xl", "t5"]
        .map(|name| {
            let folder = root("fixtures/models").join(name);
            let cpu = device("cpu").expect(CPU);
            load(&folder, &cpu).expect("the fixture is valid")
        })
        .into()
});

static RECURRENT: LazyLock<Recurrent> = LazyLock::new(|| {
    let folder = root("fixtures/models/bahdanau-gru");
    let loaded = load_recurrent(&folder, &device("cpu").expect(CPU));
    loaded.expect("the fixture is valid").0
});

const CPU: &str = "the CPU is always available";

/// Describes a model, and loads it with a weight file that has no tensors.
fn describe_model(path: &Path) {
    if let Some(description) = checked(describe(path)) {
        let config = &description.config;
        let _ = (config.flops(), config.stack.cache_values_per_token());
        let _ = (config.stack.fixed_cache_values(), config.canonical());
        let settings = &description.generation;
        if let Some(processors) = checked(LogitsProcessors::from_settings(
            &description.special,
            settings,
            1,
        )) {
            checked(processors.validate());
        }
        checked(Sampling::from_settings(settings));
    }
    if path.is_dir() {
        let empty = b"\x08\0\0\0\0\0\0\0{}      ";
        std::fs::write(path.join("model.safetensors"), empty).expect("a file can be written");
    }
    checked(load(path, &device("cpu").expect(CPU)));
}
