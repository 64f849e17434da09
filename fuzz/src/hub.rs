//! Model ids, and the cache of a model.

use attentive_hub::{FileSet, ModelId, Network, Proxy, Settings, resolve};

use crate::{DEFAULT_MEMORY, Files, Form, Target, checked, seeds};

pub(crate) const TARGETS: [Target; 2] = [
    Target {
        name: "model_id",
        run: |bytes| {
            if let Some(id) = checked(String::from_utf8_lossy(bytes).parse::<ModelId>()) {
                let again: ModelId = id
                    .to_string()
                    .parse()
                    .expect("a displayed id can be parsed");
                assert_eq!(again, id);
            }
        },
        form: Form::Text,
        seeds: seeds::model_ids,
        memory: DEFAULT_MEMORY,
    },
    Target {
        name: "cache",
        run: |bytes| {
            let id: ModelId = "owner/name".parse().expect("a name");
            Files::parse(bytes)
                .named(&CACHE_FILES)
                .with_folder(|cache| {
                    let settings = Settings {
                        network: Network::Offline,
                        cache: cache.to_owned(),
                        endpoint: None,
                        token: None,
                        proxy: Proxy::None,
                    };
                    for file_set in [FileSet::Config, FileSet::Tokenizer, FileSet::Model] {
                        checked(resolve(&id, file_set, &settings, &mut |_| {}));
                    }
                });
        },
        form: Form::Files,
        seeds: seeds::caches,
        memory: DEFAULT_MEMORY,
    },
];

/// The files that a cache may contain.
pub(crate) const CACHE_FILES: [&str; 5] = [
    "models--owner--name/refs/main",
    "models--owner--name/snapshots/0123456789012345678901234567890123456789/config.json",
    "models--owner--name/snapshots/0123456789012345678901234567890123456789/modules.json",
    "models--owner--name/snapshots/0123456789012345678901234567890123456789/model.safetensors.index.json",
    "models--owner--name/snapshots/0123456789012345678901234567890123456789/1.safetensors",
];
