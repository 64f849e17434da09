//! Files since PyTorch 1.6: a zip archive with an entry for the pickle and one for each storage.

mod zip;

use std::collections::BTreeMap;

use crate::error_text::excerpt;
use crate::pickle::state_dict;
use crate::pickle::unpickler::run;
use crate::{ParseError, TensorInfo};

use self::zip::Archive;

/// Whether a file is a zip archive.
pub(super) fn is_zip(bytes: &[u8]) -> bool {
    bytes.starts_with(&zip::LOCAL_HEADER)
}

/// Finds the tensors in a file's bytes.
pub(super) fn parse(bytes: &[u8]) -> Result<BTreeMap<String, TensorInfo>, ParseError> {
    let archive = Archive::parse(bytes)?;
    if let Some(order) = archive.find("byteorder")? {
        let order = String::from_utf8_lossy(&bytes[order]);
        if order != "little" {
            return Err(ParseError::Unsupported(format!(
                "its byte order is {}; only little is supported",
                excerpt(&order)
            )));
        }
    }
    let pickle = archive
        .find("data.pkl")?
        .ok_or("it is a zip archive without a data.pkl, so not written by PyTorch")?;
    let unpickled = run(&bytes[pickle], 0)?;
    state_dict::tensors(&unpickled, |storage| {
        archive
            .find(&format!("data/{}", storage.key))?
            .ok_or_else(|| format!("its storage {} is missing", excerpt(storage.key)).into())
    })
}
