//! Corpora: named documents from files or from the built-in stories, and their split into tokens to train on and
//! tokens held out.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::stories::story;
use crate::{TextError, Tokenizer};

/// With at least this many documents the split falls between two of them, so that no document is in both parts.
const DOCUMENTS_TO_SPLIT_BETWEEN: usize = 20;

/// Documents and their names.
#[derive(Clone, Debug)]
pub struct Corpus {
    names: Vec<String>,
    documents: Vec<String>,
}

/// The ids of a corpus in two parts.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitTokens {
    /// To learn from.
    pub training: Vec<u32>,
    /// To measure with; never learned from.
    pub held_out: Vec<u32>,
}

impl Corpus {
    /// Reads files of UTF-8 text, each one document. A byte order mark at the start is dropped.
    pub fn read(paths: &[PathBuf]) -> Result<Self, TextError> {
        if paths.is_empty() {
            return Err(TextError::NoFiles);
        }
        let documents = paths
            .iter()
            .map(|path| read_text(path))
            .collect::<Result<_, _>>()?;
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
        // The newline parts the stories for tokenizers that have no end-of-text token.
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

    /// A hash of the contents (FNV-1a, 64 bits), the same on every machine, to notice that data changed between two
    /// runs. Names do not count.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325;
        let mut take = |bytes: &[u8]| {
            for &byte in bytes {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        };
        for document in &self.documents {
            // The length first, so that moving text from one document to the next changes the hash.
            take(&(document.len() as u64).to_le_bytes());
            take(document.as_bytes());
        }
        hash
    }

    /// Encodes the corpus and holds out its last `held_out` fraction.
    ///
    /// With twenty or more documents the split falls between documents (the fraction then counts bytes), otherwise
    /// inside the sequence of ids. With several documents each is followed by the end-of-text id, if the tokenizer
    /// has one. A fraction above 0 holds out at least one id or document and leaves at least one to train on.
    pub fn split(&self, tokenizer: &Tokenizer, held_out: f64) -> Result<SplitTokens, TextError> {
        if !(0.0..1.0).contains(&held_out) {
            return Err(TextError::HeldOutFraction { fraction: held_out });
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
        if ids.len() >= DOCUMENTS_TO_SPLIT_BETWEEN {
            let (training, held) = ids.split_at(self.first_held_out(held_out));
            return Ok(SplitTokens {
                training: join(training),
                held_out: join(held),
            });
        }
        let mut training = join(&ids);
        let held = share(training.len(), held_out);
        let held_out = training.split_off(training.len() - held);
        Ok(SplitTokens { training, held_out })
    }

    /// The first document of the held-out part: the last documents that together hold the fraction of the bytes.
    fn first_held_out(&self, fraction: f64) -> usize {
        let total: usize = self.documents.iter().map(String::len).sum();
        let wanted = share(total, fraction);
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
    /// An error with both sizes if a part does not hold one window of `length + 1` ids. A held-out part that is
    /// empty, because nothing was to be held out, is in order.
    pub fn require_windows(&self, length: usize) -> Result<(), TextError> {
        require_window("training", &self.training, length)?;
        if self.held_out.is_empty() {
            Ok(())
        } else {
            require_window("held-out", &self.held_out, length)
        }
    }
}

fn require_window(part: &'static str, tokens: &[u32], length: usize) -> Result<(), TextError> {
    if tokens.len() > length {
        return Ok(());
    }
    Err(TextError::TooShort {
        part,
        tokens: tokens.len(),
        length,
    })
}

/// How many of `total` the fraction is: at least one if it is above 0, and never all of them.
fn share(total: usize, fraction: f64) -> usize {
    if fraction == 0.0 {
        return 0;
    }
    ((total as f64 * fraction).round() as usize)
        .max(1)
        .min(total.saturating_sub(1))
}

/// Reads a whole file, telling apart the mistakes that people make.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, TextError> {
    let path_buffer = || path.to_owned();
    if path.is_dir() {
        return Err(TextError::Directory {
            path: path_buffer(),
        });
    }
    let bytes = std::fs::read(path).map_err(|source| match source.kind() {
        ErrorKind::NotFound => TextError::MissingFile {
            path: path_buffer(),
        },
        _ => TextError::Io {
            path: path_buffer(),
            source,
        },
    })?;
    if bytes.is_empty() {
        Err(TextError::EmptyFile {
            path: path_buffer(),
        })
    } else {
        Ok(bytes)
    }
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
