//! Files since PyTorch 1.6: a zip archive with one entry for the pickle and one for each storage.

mod zip;

use std::collections::BTreeMap;

use crate::Entry;
use crate::pickle::machine::run;
use crate::pickle::state;
use crate::shown::shown;

use self::zip::Archive;

/// Whether a file is an archive.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    bytes.starts_with(&zip::LOCAL_HEADER)
}

/// Finds the tensors in a file's bytes.
pub(super) fn parse(bytes: &[u8]) -> Result<BTreeMap<String, Entry>, String> {
    let archive = Archive::parse(bytes)?;
    if let Some(order) = archive.find("byteorder")? {
        let order = String::from_utf8_lossy(&bytes[order]);
        if order != "little" {
            return Err(format!(
                "the order of its bytes is {}, and only little is supported",
                shown(&order)
            ));
        }
    }
    let pickle = archive
        .find("data.pkl")?
        .ok_or("it is a zip archive without a data.pkl, so not of PyTorch")?;
    let built = run(&bytes[pickle], 0)?;
    state::entries(&built, |storage| {
        archive
            .find(&format!("data/{}", storage.key))?
            .ok_or_else(|| format!("its storage {} is not there", shown(storage.key)))
    })
}
