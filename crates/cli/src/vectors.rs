//! Files of vectors: NumPy's .npy, safetensors, or JSON lines, by the name's ending. A file appears when it is complete.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use attentive::checkpoint::{NamedOutputs, replace_file_with, write_tensors};
use attentive::tensor::TensorData;
use serde_json::json;

use crate::failure::Usage;

/// The tensor of a safetensors file.
const TENSOR: &str = "embeddings";

#[derive(Clone, Copy)]
enum Format {
    Npy,
    Safetensors,
    JsonLines,
}

/// A file of vectors that are all of one length.
pub struct VectorFile {
    path: PathBuf,
    format: Format,
    texts: Vec<String>,
    values: Vec<f32>,
}

impl VectorFile {
    /// A file whose ending is known.
    pub fn create(path: &Path) -> Result<Self> {
        let ending = path.extension().and_then(|it| it.to_str()).unwrap_or("");
        let format = match ending {
            "npy" => Format::Npy,
            "safetensors" => Format::Safetensors,
            "jsonl" => Format::JsonLines,
            _ => {
                let path = path.display();
                let message = format!(
                    "--output: {path} does not end in .npy, .safetensors or .jsonl; name such a file"
                );
                return Err(Usage(message).into());
            }
        };
        Ok(Self {
            path: path.to_owned(),
            format,
            texts: Vec::new(),
            values: Vec::new(),
        })
    }

    /// Adds the vector of a text.
    pub fn push(&mut self, text: &str, vector: &[f32]) {
        self.texts.push(text.to_owned());
        self.values.extend_from_slice(vector);
    }

    /// Writes the file; returns what to tell the user.
    pub fn finish(self) -> Result<String> {
        let rows = self.texts.len();
        let width = self.values.len() / rows.max(1);
        let path = self.path.display().to_string();
        match self.format {
            Format::Npy => {
                let header = npy_header(rows, width);
                self.write(|out| {
                    out.write_all(&header)?;
                    self.values
                        .iter()
                        .try_for_each(|value| out.write_all(&value.to_le_bytes()))
                })?;
            }
            Format::Safetensors => {
                let data = TensorData::new(self.values, [rows, width]);
                let tensors = NamedOutputs::from([(TENSOR.to_owned(), data)]);
                write_tensors(&self.path, tensors, HashMap::new())?;
            }
            Format::JsonLines => self.write(|out| {
                let vectors = self.values.chunks(width.max(1));
                for (text, vector) in self.texts.iter().zip(vectors) {
                    writeln!(out, "{}", json!({ "text": text, "vector": vector }))?;
                }
                Ok(())
            })?,
        }
        Ok(format!("saved {rows} vectors of {width} values to {path}"))
    }

    fn write(&self, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
        let written = replace_file_with(&self.path, |temporary| {
            let mut out = BufWriter::new(File::create(temporary)?);
            fill(&mut out)?;
            out.flush()
        });
        written.with_context(|| self.path.display().to_string())
    }
}

/// The header of NumPy's format, version 1.0: a dictionary padded so that the data is aligned to 64 bytes.
fn npy_header(rows: usize, width: usize) -> Vec<u8> {
    const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";
    let mut text =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {width}), }}");
    let unpadded = MAGIC.len() + 2 + text.len() + 1;
    text += &" ".repeat(unpadded.next_multiple_of(64) - unpadded);
    text.push('\n');
    let length = (text.len() as u16).to_le_bytes();
    [MAGIC, &length, text.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_an_npy_file_is_aligned() {
        for rows in [1, 10, 123_456_789] {
            let header = npy_header(rows, 384);
            assert_eq!(header.len() % 64, 0);
            let length = u16::from_le_bytes([header[8], header[9]]);
            assert_eq!(usize::from(length) + 10, header.len());
            assert_eq!(header.last(), Some(&b'\n'));
        }
    }
}
