//! Corpora: named documents from files or generated stories, and their split into training and held-out tokens.

use std::path::{Path, PathBuf};

use attentive_text::{TextError, Tokenizer, read_bytes};

use crate::DataError;
use crate::stories::story;

/// From this number of documents on, the split is between documents, so that none is in both parts.
const MIN_DOCUMENTS_TO_SPLIT_BETWEEN: usize = 20;

/// Documents and their names.
#[derive(Clone, Debug)]
pub struct Corpus {
    names: Vec<String>,
    documents: Vec<String>,
}

/// The token ids of a corpus, split in two parts.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitTokens {
    /// For training.
    pub training: Vec<u32>,
    /// For evaluation only.
    pub held_out: Vec<u32>,
}

impl Corpus {
    /// Reads files of UTF-8 text, each one document. A byte order mark at the start is dropped.
    pub fn read(paths: &[PathBuf]) -> Result<Self, DataError> {
        if paths.is_empty() {
            return Err(DataError::NoFiles);
        }
        let documents = paths
            .iter()
            .map(|path| read_text(path))
            .collect::<Result<_, TextError>>()?;
        Ok(Self {
            names: paths
                .iter()
                .map(|path| path.display().to_string())
                .collect(),
            documents,
        })
    }

    /// The built-in corpus: `count` children's stories, each a line of its own. See [`crate::stories`].
    pub fn stories(seed: u64, count: usize) -> Self {
        // The newline separates stories for tokenizers without an end-of-text token.
        let documents = (0..count as u64)
            .map(|index| story(seed, index) + "\n")
            .collect();
        Self {
            names: (0..count).map(|index| format!("story {index}")).collect(),
            documents,
        }
    }

    /// The text of each document.
    pub fn documents(&self) -> &[String] {
        &self.documents
    }

    /// A hash of the contents without the names (FNV-1a, 64 bits), the same on every machine, to detect data that changed
    /// between two runs.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325;
        let mut update = |bytes: &[u8]| {
            for &byte in bytes {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        };
        for document in &self.documents {
            // The length first, so that moving text from one document to the next changes the hash.
            update(&(document.len() as u64).to_le_bytes());
            update(document.as_bytes());
        }
        hash
    }

    /// Tokenizes the corpus and holds out its last `held_out` fraction.
    ///
    /// With twenty or more documents the split is between documents (the fraction then counts bytes), otherwise
    /// inside the sequence of ids. With several documents each is followed by the end-of-text id, if the tokenizer
    /// has one. A fraction above 0 holds out at least one id or document and leaves at least one to train on.
    pub fn split(&self, tokenizer: &Tokenizer, held_out: f64) -> Result<SplitTokens, DataError> {
        if !(0.0..1.0).contains(&held_out) {
            return Err(DataError::HeldOutFraction { fraction: held_out });
        }
        let ids = tokenizer
            .encode_documents(&self.documents)
            .map_err(|located| match located.error {
                TextError::UnknownCharacter {
                    character, offset, ..
                } => TextError::UnknownCharacter {
                    character,
                    offset,
                    text: self.names[located.document].clone(),
                },
                other => other,
            })?;
        let separator = if ids.len() > 1 {
            tokenizer.end_of_text()
        } else {
            None
        };
        let join = |ids: &[Vec<u32>]| -> Vec<u32> {
            ids.iter()
                .flat_map(|document| document.iter().copied().chain(separator))
                .collect()
        };
        if ids.len() >= MIN_DOCUMENTS_TO_SPLIT_BETWEEN {
            let (training, held) = ids.split_at(self.first_held_out(held_out));
            return Ok(SplitTokens {
                training: join(training),
                held_out: join(held),
            });
        }
        let mut training = join(&ids);
        let held = fraction_of(training.len(), held_out);
        let held_out = training.split_off(training.len() - held);
        Ok(SplitTokens { training, held_out })
    }

    /// The first document of the held-out part: the last documents that together hold the fraction of the bytes.
    fn first_held_out(&self, fraction: f64) -> usize {
        let total: usize = self.documents.iter().map(String::len).sum();
        let wanted = fraction_of(total, fraction);
        let mut held = 0;
        let mut first = self.documents.len();
        while held < wanted && first > 1 {
            first -= 1;
            held += self.documents[first].len();
        }
        first
    }
}

impl SplitTokens {
    /// An error if a part is shorter than one window of `length + 1` ids. An empty held-out part is allowed.
    pub fn require_windows(&self, length: usize) -> Result<(), DataError> {
        require_window("training", &self.training, length)?;
        if self.held_out.is_empty() {
            Ok(())
        } else {
            require_window("held-out", &self.held_out, length)
        }
    }
}

fn require_window(part: &'static str, tokens: &[u32], length: usize) -> Result<(), DataError> {
    if tokens.len() > length {
        return Ok(());
    }
    Err(DataError::TooShort {
        part,
        tokens: tokens.len(),
        length,
    })
}

/// A fraction of `total`: at least one if the fraction is above 0, and never all.
fn fraction_of(total: usize, fraction: f64) -> usize {
    if fraction == 0.0 {
        return 0;
    }
    ((total as f64 * fraction).round() as usize)
        .max(1)
        .min(total.saturating_sub(1))
}

fn read_text(path: &Path) -> Result<String, TextError> {
    let mut text = String::from_utf8(read_bytes(path)?).map_err(|error| TextError::NotUtf8 {
        path: path.to_owned(),
        offset: error.utf8_error().valid_up_to(),
    })?;
    const BYTE_ORDER_MARK: char = '\u{FEFF}';
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len_utf8());
    }
    if text.is_empty() {
        Err(TextError::EmptyFile {
            path: path.to_owned(),
        })
    } else {
        Ok(text)
    }
}

#[cfg(test)]
mod tests;
