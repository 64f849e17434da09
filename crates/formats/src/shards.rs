//! Several files that an index of JSON holds together.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::shown::shown;
use crate::{Entry, FileError, Mapped, TensorSet};

/// Opens the files that an index (`….index.json`) names, all of them in its folder; `parse` finds the tensors of one file.
pub(crate) fn open(
    index: &Path,
    parse: impl Fn(&[u8]) -> Result<BTreeMap<String, Entry>, String>,
) -> Result<TensorSet, FileError> {
    let text = Mapped::open(index)?;
    let broken = |problem: String| text.broken(problem);
    let words: Value = serde_json::from_slice(&text).map_err(|error| broken(error.to_string()))?;
    let Some(map) = words["weight_map"].as_object() else {
        return Err(broken("it has no weight_map".to_owned()));
    };
    let mut shards: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (tensor, shard) in map {
        let shard = shard.as_str().unwrap_or_default();
        // A name alone: an index must not lead out of its folder, nor write more than a line into a message.
        let name = Path::new(shard).file_name();
        if name.is_none_or(|name| name != shard) || shard.contains(char::is_control) {
            return Err(broken(format!(
                "weight_map: {} stands for {}, which is no file name",
                shown(tensor),
                shown(shard)
            )));
        }
        shards.entry(shard).or_default().push(tensor);
    }
    let mut set = TensorSet::default();
    for (shard, tensors) in shards {
        let file = Mapped::open(&index.with_file_name(shard))?;
        let entries = parse(&file).map_err(|problem| file.broken(problem))?;
        let missing = tensors
            .into_iter()
            .find(|name| !entries.contains_key(*name));
        if let Some(name) = missing {
            return Err(file.broken(format!(
                "the index says that tensor {} is in it, and it is not",
                shown(name)
            )));
        }
        set.add(file, entries)?;
    }
    Ok(set)
}
