//! Sharded checkpoints: several files under a JSON index.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::error_text::excerpt;
use crate::{FileError, MappedFile, ParseError, TensorInfo, TensorSet};

/// Opens the shards of an index (`….index.json`), which must be in its folder; `parse` reads one shard.
pub(crate) fn open(
    index: &Path,
    parse: impl Fn(&[u8]) -> Result<BTreeMap<String, TensorInfo>, ParseError>,
) -> Result<TensorSet, FileError> {
    let text = MappedFile::open(index)?;
    let broken = |problem: String| text.broken(problem);
    let index_json: Value =
        serde_json::from_slice(&text).map_err(|error| broken(error.to_string()))?;
    let Some(map) = index_json["weight_map"].as_object() else {
        return Err(broken("it has no weight_map".to_owned()));
    };
    let mut shards: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (tensor, shard) in map {
        let shard = shard.as_str().unwrap_or_default();
        // A bare file name: an index must not escape its folder, nor inject line breaks into a message.
        let name = Path::new(shard).file_name();
        if name.is_none_or(|name| name != shard) || shard.contains(char::is_control) {
            return Err(broken(format!(
                "weight_map maps {} to {}, which is not a file name",
                excerpt(tensor),
                excerpt(shard)
            )));
        }
        shards.entry(shard).or_default().push(tensor);
    }
    let mut set = TensorSet::default();
    for (shard, tensors) in shards {
        let file = MappedFile::open(&index.with_file_name(shard))?;
        let tensors_of_shard = parse(&file).map_err(|error| file.refused(error))?;
        let missing = tensors
            .into_iter()
            .find(|name| !tensors_of_shard.contains_key(*name));
        if let Some(name) = missing {
            return Err(file.broken(format!(
                "the index says that tensor {} is in it, and it is not",
                excerpt(name)
            )));
        }
        set.add(file, tensors_of_shard)?;
    }
    Ok(set)
}
