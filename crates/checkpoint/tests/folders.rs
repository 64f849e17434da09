//! Model folders: a saved model loads again as the same model, and every mismatch is reported at once.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use attentive_checkpoint::{
    self as checkpoint, CheckpointError, Heads, LoadOptions, model_tensors, write_tensors,
};
use attentive_generation::SpecialTokens;
use attentive_model::positions::{PositionsConfig, RotaryConfig, RotaryScaling};
use attentive_model::{Model, ModelConfig, parameters};
use burn::tensor::{Device, TensorData};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(name)
}

fn config(json: &str) -> ModelConfig {
    serde_json::from_str(json).unwrap()
}

/// A model that no Hugging Face architecture has: norms after the sublayers, GELU with rotary positions, two kinds of
/// blocks.
const UNUSUAL: &str = r#"{
    "vocabulary": 31, "length": 16, "width": 24, "head": "separate",
    "positions": { "kind": "rotary" },
    "blocks": [
        { "placement": "after", "norm": { "kind": "layer" },
          "attention": { "kind": "full", "heads": 4, "key_value_heads": 2 },
          "feed_forward": { "kind": "plain", "hidden_width": 40, "activation": "relu" } },
        { "repeat": 2, "norm": { "kind": "rms" }, "dropout": 0.1,
          "attention": { "kind": "full", "heads": 4, "bias": true },
          "feed_forward": { "kind": "gated", "hidden_width": 20, "activation": "gelu" } }
    ] }"#;

fn check_round_trip(model: &Model, model_type: &str) {
    let folder = tempfile::tempdir().unwrap();
    let special = SpecialTokens {
        bos: Some(1),
        eos: vec![2, 3],
        decoder_start: Some(4),
        pad: Some(5),
    };
    checkpoint::save(folder.path(), model, &special).unwrap();
    let (back, description) = checkpoint::load(folder.path(), &Device::flex()).unwrap();
    assert_eq!(description.model_type, model_type);
    assert_eq!(description.special, special);
    assert_eq!(
        description.config.canonical().without_dropout(),
        model.config().canonical().without_dropout()
    );
    assert_eq!(model_tensors(&back), model_tensors(model));
}

#[test]
fn what_is_saved_loads_as_the_same_model() {
    for (name, model_type) in [
        ("gpt2", "gpt2"),
        ("llama", "llama"),
        ("llama-tied", "llama"),
    ] {
        let (model, _) = checkpoint::load(&fixture(name), &Device::flex()).unwrap();
        check_round_trip(&model, model_type);
    }
    let model = Model::new(&config(UNUSUAL), 5, &Device::flex()).unwrap();
    check_round_trip(&model, "attentive");
}

#[test]
fn without_heads_a_folder_of_our_format_has_its_stack() {
    let options = LoadOptions {
        heads: Heads::None,
        ..LoadOptions::default()
    };
    let model = Model::new(&config(UNUSUAL), 5, &Device::flex()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    checkpoint::save(folder.path(), &model, &SpecialTokens::default()).unwrap();
    let (stack, _) = checkpoint::load_with(folder.path(), &options, &Device::flex()).unwrap();
    let mut expected = model_tensors(&model);
    expected.retain(|name, _| name.starts_with("stack."));
    assert!(expected.len() < model_tensors(&model).len());
    assert_eq!(model_tensors(&stack), expected);
    // A layer that the settings do not have is still reported.
    change_config(folder.path(), |json| {
        json["attentive"]["blocks"].as_array_mut().unwrap().pop();
    });
    let error = checkpoint::load_with(folder.path(), &options, &Device::flex()).unwrap_err();
    let problems = match error {
        CheckpointError::Tensors { problems, .. } => problems,
        other => panic!("{other}"),
    };
    assert!(problems.missing.is_empty() && problems.misshapen.is_empty());
    assert!(!problems.unexpected.is_empty());
    for name in problems.unexpected {
        assert!(name.starts_with("stack.blocks."), "{name}");
    }
}

#[test]
fn saving_a_loaded_model_gives_the_tensors_that_were_loaded() {
    for name in ["gpt2", "llama", "llama-tied"] {
        let (model, _) = checkpoint::load(&fixture(name), &Device::flex()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        checkpoint::save(folder.path(), &model, &SpecialTokens::default()).unwrap();
        let open = |folder: &Path| {
            checkpoint::TensorFile::open(&folder.join("model.safetensors")).unwrap()
        };
        let (theirs, ours) = (open(&fixture(name)), open(folder.path()));
        assert_eq!(ours.names(), theirs.names());
        for tensor in ours.names() {
            assert_eq!(ours.shape(&tensor), theirs.shape(&tensor), "{tensor}");
            assert_eq!(
                ours.floats(&tensor).unwrap(),
                theirs.floats(&tensor).unwrap()
            );
        }
    }
}

#[test]
fn sharded_weights_load_as_one() {
    let whole = fixture("gpt2");
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(whole.join("config.json"), folder.path().join("config.json")).unwrap();
    let file = checkpoint::TensorFile::open(&whole.join("model.safetensors")).unwrap();
    let mut shards = [BTreeMap::new(), BTreeMap::new()];
    let mut weight_map = serde_json::Map::new();
    for (index, name) in file.names().into_iter().enumerate() {
        let shape = file.shape(&name).unwrap().to_vec();
        let data = TensorData::new(file.floats(&name).unwrap(), shape);
        let shard = format!("model-{}.safetensors", index % 2);
        weight_map.insert(name.clone(), shard.into());
        shards[index % 2].insert(name, data);
    }
    for (index, tensors) in shards.into_iter().enumerate() {
        let path = folder.path().join(format!("model-{index}.safetensors"));
        write_tensors(&path, tensors, HashMap::new()).unwrap();
    }
    let index = serde_json::json!({ "weight_map": weight_map }).to_string();
    std::fs::write(folder.path().join("model.safetensors.index.json"), index).unwrap();
    let load = |folder: &Path| checkpoint::load(folder, &Device::flex()).unwrap().0;
    assert_eq!(
        model_tensors(&load(folder.path())),
        model_tensors(&load(&whole))
    );
}

#[test]
fn dropout_does_not_prevent_saving_in_a_hugging_face_format() {
    let mut gpt2 = checkpoint::describe(&fixture("gpt2")).unwrap().config;
    gpt2.stack.blocks[0].dropout = 0.2;
    check_round_trip(&Model::new(&gpt2, 0, &Device::flex()).unwrap(), "gpt2");
    let mut llama = checkpoint::describe(&fixture("llama")).unwrap().config;
    llama.stack.blocks[0].dropout = 0.2;
    check_round_trip(&Model::new(&llama, 0, &Device::flex()).unwrap(), "llama");
}

/// RoPE scaling as transformers writes it, in the style of version 5 and in the older one.
#[test]
fn scaled_rotary_positions_are_read_and_written() {
    use serde_json::json;
    for (theirs, ours) in [
        (
            json!({ "rope_type": "linear", "factor": 4.0 }),
            json!({ "kind": "linear", "factor": 4.0 }),
        ),
        (
            json!({ "rope_type": "dynamic", "factor": 2.0 }),
            json!({ "kind": "ntk", "factor": 2.0, "original_length": 64 }),
        ),
        (
            json!({ "rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32,
                "low_freq_factor": 1.5, "high_freq_factor": 3.0 }),
            json!({ "kind": "llama3", "factor": 8.0, "original_length": 32,
                "low_frequency_factor": 1.5, "high_frequency_factor": 3.0 }),
        ),
        (
            json!({ "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 16.0,
                "attention_factor": 1.25, "truncate": false }),
            json!({ "kind": "yarn", "factor": 4.0, "original_length": 16, "beta_fast": 16.0,
                "attention_factor": 1.25, "truncate": false }),
        ),
        (
            json!({ "rope_type": "yarn", "original_max_position_embeddings": 16, "mscale": 0.5, "mscale_all_dim": 1.0 }),
            json!({ "kind": "yarn", "factor": 4.0, "original_length": 16,
                "attention_factor": (0.05 * 4f64.ln() + 1.0) / (0.1 * 4f64.ln() + 1.0) }),
        ),
    ] {
        let ours: RotaryScaling = serde_json::from_value(ours).unwrap();
        let old_style = |json: &mut serde_json::Value| {
            json["rope_parameters"] = serde_json::Value::Null;
            json["rope_theta"] = json!(500.0);
            json["rope_scaling"] = theirs.clone();
        };
        let new_style = |json: &mut serde_json::Value| {
            json["rope_parameters"] = theirs.clone();
            json["rope_parameters"]["rope_theta"] = json!(500.0);
        };
        let read = |change: &dyn Fn(&mut serde_json::Value)| {
            let folder = copy_of("llama");
            change_config(folder.path(), change);
            checkpoint::load(folder.path(), &Device::flex()).unwrap().0
        };
        for model in [read(&old_style), read(&new_style)] {
            let PositionsConfig::Rotary(rotary) = &model.config().stack.positions else {
                panic!("Llama's positions are rotary");
            };
            assert_eq!(
                (rotary.theta, rotary.scaling.as_ref()),
                (500.0, Some(&ours))
            );
            check_round_trip(&model, "llama");
        }
    }
    // Llama's config cannot express dynamic NTK scaling from an original length other than the model's.
    let mut config = checkpoint::describe(&fixture("llama")).unwrap().config;
    config.stack.positions = PositionsConfig::Rotary(RotaryConfig {
        theta: 500.0,
        scaling: Some(RotaryScaling::Ntk {
            factor: 2.0,
            original_length: 32,
        }),
    });
    let model = Model::new(&config, 0, &Device::flex()).unwrap();
    check_round_trip(&model, "attentive");
}

#[test]
fn parameter_names_and_shapes() {
    for (name, config) in [
        (
            "gpt2",
            checkpoint::describe(&fixture("gpt2")).unwrap().config,
        ),
        (
            "llama",
            checkpoint::describe(&fixture("llama")).unwrap().config,
        ),
        ("unusual", config(UNUSUAL)),
    ] {
        let model = Model::new(&config, 0, &Device::flex()).unwrap();
        let lines: Vec<String> = parameters(&model)
            .iter()
            .map(|parameter| format!("{} {:?}", parameter.name, parameter.shape))
            .collect();
        insta::assert_snapshot!(format!("parameters_{name}"), lines.join("\n"));
    }
}

fn copy_of(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture(name).join(file), folder.path().join(file)).unwrap();
    }
    folder
}

/// The error of loading a folder, with its path replaced.
fn loading_error(folder: &Path) -> String {
    let error = checkpoint::load(folder, &Device::flex())
        .unwrap_err()
        .to_string();
    error.replace(&folder.display().to_string(), "FOLDER")
}

fn change_config(folder: &Path, change: impl FnOnce(&mut serde_json::Value)) {
    let path = folder.join("config.json");
    let mut json = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut json);
    std::fs::write(path, json.to_string()).unwrap();
}

#[test]
fn all_tensors_that_do_not_fit_are_reported_at_once() {
    let folder = copy_of("llama");
    change_config(folder.path(), |json| {
        json["num_hidden_layers"] = 2.into();
        json["vocab_size"] = 100.into();
        json["attention_bias"] = true.into();
    });
    insta::assert_snapshot!(loading_error(folder.path()));
}

#[test]
fn broken_folders_are_refused_in_a_sentence() {
    let mut errors = Vec::new();
    let mut check = |what: &str, breakage: &dyn Fn(&Path)| {
        let folder = copy_of("gpt2");
        breakage(folder.path());
        errors.push(format!("{what}\n  {}", loading_error(folder.path())));
    };
    check("no folder", &|folder| {
        std::fs::remove_dir_all(folder).unwrap()
    });
    check("no config", &|folder| {
        std::fs::remove_file(folder.join("config.json")).unwrap()
    });
    check("config is a list", &|folder| {
        std::fs::write(folder.join("config.json"), "[1]").unwrap()
    });
    check("config is cut", &|folder| {
        std::fs::write(folder.join("config.json"), "{\"n").unwrap()
    });
    check("no weights", &|folder| {
        std::fs::remove_file(folder.join("model.safetensors")).unwrap();
    });
    check("weights are cut", &|folder| {
        let path = folder.join("model.safetensors");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    });
    check("weights are empty", &|folder| {
        std::fs::write(folder.join("model.safetensors"), []).unwrap();
    });
    check("weights are a directory", &|folder| {
        std::fs::remove_file(folder.join("model.safetensors")).unwrap();
        std::fs::create_dir(folder.join("model.safetensors")).unwrap();
    });
    check("config is a directory", &|folder| {
        std::fs::remove_file(folder.join("config.json")).unwrap();
        std::fs::create_dir(folder.join("config.json")).unwrap();
    });
    check("weights of 8 bits", &|folder| {
        let header =
            br#"{"wte.weight":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}}"#.to_vec();
        let size = (header.len() as u64).to_le_bytes().to_vec();
        let file = [size, header, vec![0; 2]].concat();
        std::fs::write(folder.join("model.safetensors"), file).unwrap();
    });
    check("an index that is none", &|folder| {
        let path = folder.join("model.safetensors");
        std::fs::rename(&path, folder.join("model.safetensors.index.json")).unwrap();
    });
    check("a shard that is missing", &|folder| {
        std::fs::remove_file(folder.join("model.safetensors")).unwrap();
        let index = r#"{"weight_map":{"wte.weight":"model-00001-of-00002.safetensors"}}"#;
        std::fs::write(folder.join("model.safetensors.index.json"), index).unwrap();
    });
    check("a pickle that is none", &|folder| {
        let path = folder.join("model.safetensors");
        std::fs::rename(&path, folder.join("pytorch_model.bin")).unwrap();
    });
    check("unknown type", &|folder| {
        change_config(folder, |json| json["model_type"] = "mamba".into())
    });
    check("odd heads", &|folder| {
        change_config(folder, |json| json["n_head"] = 5.into())
    });
    check("no layers", &|folder| {
        change_config(folder, |json| json["n_layer"] = 0.into())
    });
    check("huge width", &|folder| {
        change_config(folder, |json| json["n_embd"] = u64::MAX.into())
    });
    check("wrong type", &|folder| {
        change_config(folder, |json| json["n_head"] = "four".into())
    });
    check("unknown activation", &|folder| {
        change_config(folder, |json| json["activation_function"] = "mish".into());
    });
    check("unsupported setting", &|folder| {
        change_config(folder, |json| {
            json["scale_attn_by_inverse_layer_idx"] = true.into()
        });
    });
    check("RoPE scaling without a type", &|folder| {
        let llama = fixture("llama").join("config.json");
        std::fs::copy(llama, folder.join("config.json")).unwrap();
        change_config(folder, |json| {
            json["rope_scaling"] = serde_json::json!({ "factor": 8.0 });
        });
    });
    check("unknown RoPE scaling", &|folder| {
        let llama = fixture("llama").join("config.json");
        std::fs::copy(llama, folder.join("config.json")).unwrap();
        change_config(folder, |json| {
            json["rope_parameters"]["rope_type"] = "longrope".into();
        });
    });
    check("no id", &|folder| {
        change_config(folder, |json| json["eos_token_id"] = "</s>".into());
    });
    check("our format without settings", &|folder| {
        change_config(folder, |json| json["model_type"] = "attentive".into());
    });
    check("our format with a wrong setting", &|folder| {
        change_config(folder, |json| {
            json["model_type"] = "attentive".into();
            json["attentive"] = serde_json::json!({ "length": "long" });
        });
    });
    check("integer weights under a name with a newline", &|folder| {
        let tensors = [("a\nb".to_owned(), TensorData::new(vec![1i64], [1]))];
        let path = folder.join("model.safetensors");
        change_config(folder, |json| {
            json["n_layer"] = 1.into();
        });
        write_tensors(&path, tensors.into(), Default::default()).unwrap();
    });
    insta::assert_snapshot!(errors.join("\n"));
}
