//! Tensor files: headers and data.

use attentive_formats::{TensorSet, gguf, pickle, safetensors};

use crate::{DEFAULT_MEMORY, Files, Form, Target, checked, seeds, with_file};

pub(crate) const TARGETS: [Target; 4] = [
    Target {
        name: "safetensors",
        run: |bytes| {
            with_file("model.safetensors", bytes, |path| {
                if let Some((set, _)) = checked(safetensors::open(path)) {
                    read(&set);
                }
            });
        },
        form: Form::Safetensors,
        seeds: seeds::safetensors,
        memory: DEFAULT_MEMORY,
    },
    Target {
        name: "index",
        run: |bytes| {
            let files = Files::parse(bytes).named(&SHARDED);
            files.with_folder(|folder| {
                let sets = [
                    checked(safetensors::open_sharded(&folder.join(SHARDED[0]))),
                    checked(pickle::open_sharded(&folder.join(SHARDED[1]))),
                ];
                sets.iter().flatten().for_each(read);
            });
        },
        form: Form::Files,
        seeds: seeds::indices,
        memory: DEFAULT_MEMORY,
    },
    Target {
        name: "gguf",
        run: |bytes| {
            with_file("model.gguf", bytes, |path| {
                if let Some((set, _)) = checked(gguf::open(path)) {
                    read(&set);
                }
            });
        },
        form: Form::Bytes,
        seeds: seeds::gguf,
        memory: DEFAULT_MEMORY,
    },
    Target {
        name: "pickle",
        run: |bytes| {
            with_file("pytorch_model.bin", bytes, |path| {
                if let Some(set) = checked(pickle::open(path)) {
                    read(&set);
                }
            });
        },
        form: Form::Bytes,
        seeds: seeds::pickles,
        memory: DEFAULT_MEMORY,
    },
];

/// The two indices, and the shards that they may name.
pub(crate) const SHARDED: [&str; 6] = [
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
    "1.safetensors",
    "2.safetensors",
    "1.bin",
    "2.bin",
];

/// Reads every tensor.
fn read(set: &TensorSet) {
    for name in set.names() {
        let elements: usize = set.shape(name).into_iter().flatten().product();
        if let Some(floats) = set.floats(name) {
            assert_eq!(floats.len(), elements, "the shape's number of floats");
        }
        if let Some(integers) = set.integers(name) {
            assert_eq!(integers.len(), elements, "the shape's number of integers");
        }
        if let Some(bytes) = set.shared_floats(name) {
            assert_eq!(bytes.len(), 4 * elements, "the shape's number of bytes");
        }
    }
}
