//! Names of models, and what a cache holds of one.

use attentive_hub::{ModelId, Network, Proxy, Settings, Wanted, resolve};

use crate::{Files, Form, LITTLE, Target, seeds, told};

pub(crate) const TARGETS: [Target; 2] = [
    Target {
        name: "model_id",
        run: |bytes| {
            if let Some(id) = told(String::from_utf8_lossy(bytes).parse::<ModelId>()) {
                let again: ModelId = id.to_string().parse().expect("what was shown can be read");
                assert_eq!(again, id);
            }
        },
        form: Form::Text,
        seeds: seeds::model_ids,
        memory: LITTLE,
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
                    for wanted in [Wanted::Description, Wanted::Tokenizer, Wanted::Model] {
                        told(resolve(&id, wanted, &settings, &mut |_| {}));
                    }
                });
        },
        form: Form::Files,
        seeds: seeds::caches,
        memory: LITTLE,
    },
];

/// The files of a cache that a test may write.
pub(crate) const CACHE_FILES: [&str; 5] = [
    "models--owner--name/refs/main",
    "models--owner--name/snapshots/0123456789012345678901234567890123456789/config.json",
    "models--owner--name/snapshots/0123456789012345678901234567890123456789/modules.json",
    "models--owner--name/snapshots/0123456789012345678901234567890123456789/model.safetensors.index.json",
    "models--owner--name/snapshots/0123456789012345678901234567890123456789/1.safetensors",
];
