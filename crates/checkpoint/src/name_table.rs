//! A table of tensor names, the model's and a file's, for both loading and saving.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use burn::tensor::TensorData;

pub use super::transform::Transform;
use super::{TensorFile, TensorProblems};
use attentive_model::embeddings::PatchesConfig;
use attentive_model::{ParamData, Parameter};

/// One tensor: its name in the model, its name in a file, and the transform between them. Placeholders: `{layer}` and
/// `{expert}` in both names; in the file's, `{group}` and `{inner}` stand for a layer's group and its index within it, and
/// `{up}` for T5's name of the up projection, which depends on whether there is a gate.
pub type TensorRow = (&'static str, &'static str, Transform);

/// The tensor names of one stack.
pub struct Section {
    /// Prefix of the model's names.
    pub model_prefix: &'static str,
    /// Prefix of the file's names.
    pub file_prefix: &'static str,
    /// The tensors.
    pub rows: &'static [TensorRow],
}

/// The tensor names of one format.
pub struct NameTable {
    /// The stacks; empty where a file has the model's own names.
    pub sections: &'static [Section],
    /// A prefix that some files leave out of every name.
    pub optional_prefix: &'static str,
    /// Suffixes of tensors without information: buffers that old versions saved, copies of tied weights.
    pub ignored: &'static [&'static str],
    /// Suffixes that old versions wrote differently: old, current.
    pub renamed: &'static [(&'static str, &'static str)],
    /// Second full names of tensors: the model's, the file's. Where a file has both, the alias is read: it is a copy, or
    /// weights are untied. Models with untied weights are saved under both names.
    pub aliases: &'static [(&'static str, &'static str)],
    /// Tensors of the model that are zero where a file lacks them.
    pub zero_if_missing: &'static [&'static str],
}

/// The tensor names of a model with its heads.
pub struct TensorNames {
    pub table: &'static NameTable,
    /// The rows of the model's heads, with full names.
    pub heads: &'static [TensorRow],
    /// Whether saving leaves out the optional prefix.
    pub base_model: bool,
    /// The rows of all heads of the family: a file may hold tensors of heads that the model lacks.
    pub known: Vec<&'static TensorRow>,
    pub patches: Option<PatchesConfig>,
    pub head_width: usize,
    /// How many blocks a layer group has.
    pub group: usize,
    pub width: usize,
    /// Whether feed-forward layers are gated, which changes T5's name of the up projection.
    pub gated: bool,
    /// Whether the LM head has a weight of its own.
    pub untied: bool,
    /// Whether every tensor that is not of a stack is ignored: the model is read without its heads.
    pub ignores_heads: bool,
}

/// Looks up a file's names by current full names.
pub struct FileNames {
    /// Current names, and the file's.
    names: HashMap<String, String>,
    prefix: &'static str,
    /// Whether the file has the optional prefix.
    prefixed: bool,
}

impl FileNames {
    pub fn new(names: &TensorNames, file: &TensorFile) -> Self {
        let found = file.names();
        let prefix = names.table.optional_prefix;
        Self {
            prefixed: found.iter().any(|name| name.starts_with(prefix)),
            names: found
                .into_iter()
                .map(|name| (names.table.current_name(&name), name))
                .collect(),
            prefix,
        }
    }

    /// The file's name of a tensor.
    pub fn name(&self, full_name: &str) -> Option<&str> {
        let name = match full_name.strip_prefix(self.prefix) {
            Some(stripped) if !self.prefixed => stripped,
            _ => full_name,
        };
        self.names.get(name).map(String::as_str)
    }

    /// Whether the file has a tensor.
    pub fn has(&self, full_name: &str) -> bool {
        self.name(full_name).is_some()
    }
}

impl TensorNames {
    /// Reads every parameter from a file, or reports every mismatch.
    pub fn read(
        &self,
        parameters: &[Parameter],
        file: &TensorFile,
    ) -> Result<HashMap<String, ParamData>, TensorProblems> {
        let mut problems = TensorProblems::default();
        let file_names = FileNames::new(self, file);
        let found = file.names();
        let mut unread: BTreeSet<&str> = found.iter().map(String::as_str).collect();
        let mut values = HashMap::new();
        // Several parameters may come from one fused tensor, which is reported once.
        let mut seen = BTreeSet::new();
        for Parameter { name, shape, .. } in parameters {
            let (full_name, transform) = self.file_name(name);
            if transform == Transform::FromSeed {
                continue;
            }
            let alias = self.alias(name).and_then(|alias| file_names.name(alias));
            let primary = file_names.name(&full_name);
            unread.retain(|it| Some(*it) != primary && Some(*it) != alias);
            let first = seen.insert(full_name.clone());
            let Some(tensor) = alias.or(primary) else {
                match self.table.zero_if_missing.contains(&name.as_str()) {
                    true => {
                        let zeros = TensorData::zeros::<f32, _>(shape.clone());
                        values.insert(name.clone(), zeros.into());
                    }
                    false => problems.missing.extend(first.then_some(full_name)),
                }
                continue;
            };
            let found = file.shape(tensor).unwrap_or_default();
            let expected = transform.file_shape(shape, self.patches.as_ref());
            // Shapes are compared first, so that a mis-shaped tensor is not read.
            let fits = found == expected;
            // A tensor that needs no rearranging is memory-mapped, and read on first use.
            let layout = fits.then(|| transform.layout(shape)).flatten();
            let mapped = layout.and_then(|layout| layout.mapped(file, tensor));
            if let Some(data) = mapped {
                values.insert(name.clone(), data);
                continue;
            }
            let Some(floats) = fits.then(|| file.floats(tensor).ok()).flatten() else {
                let mismatch = match file.dtype(tensor) {
                    Some(dtype) if fits => format!("{tensor} is {dtype} and must be floats"),
                    _ => format!("{tensor} is {found:?} and must be {expected:?}"),
                };
                problems.misshapen.extend(first.then_some(mismatch));
                continue;
            };
            let data = transform.load(floats, shape, self.head_width);
            values.insert(name.clone(), TensorData::new(data, shape.clone()).into());
        }
        unread.retain(|name| !self.is_ignorable(&self.table.current_name(name)));
        problems
            .unexpected
            .extend(unread.into_iter().map(str::to_owned));
        if problems.is_empty() {
            Ok(values)
        } else {
            Err(problems)
        }
    }

    /// A file's tensors from the model's.
    pub fn write(&self, tensors: BTreeMap<String, TensorData>) -> BTreeMap<String, TensorData> {
        let mut saved: BTreeMap<String, TensorData> = BTreeMap::new();
        for (name, data) in tensors {
            let (file_name, transform) = self.file_name(&name);
            if transform == Transform::FromSeed {
                continue;
            }
            if let Some(alias) = self.alias(&name).filter(|_| self.untied) {
                saved.insert(self.saved_name(alias.to_owned()), data.clone());
            }
            let file_name = self.saved_name(file_name);
            let shape = data.shape().to_vec();
            let floats = data.try_to_vec::<f32>().expect("parameters are f32");
            let file_shape = transform.file_shape(&shape, self.patches.as_ref());
            // Several parameters may go into one fused tensor.
            let entry = saved.entry(file_name).or_insert_with(|| {
                let count = file_shape.iter().product();
                TensorData::new(vec![0f32; count], file_shape)
            });
            let target = entry.as_mut_slice::<f32>().expect("created as f32 above");
            transform.write_into(&floats, &shape, self.head_width, target);
        }
        for section in self.table.sections {
            let computed = section
                .rows
                .iter()
                .filter(|row| row.2 == Transform::InverseFrequencies);
            saved.extend(computed.map(|row| {
                let name = format!("{}{}", section.file_prefix, row.1);
                (self.saved_name(name), inverse_frequencies(self.width))
            }));
        }
        saved
    }

    /// The name under which a full name is saved.
    fn saved_name(&self, name: String) -> String {
        let stripped = name.strip_prefix(self.table.optional_prefix);
        match stripped.filter(|_| self.base_model) {
            Some(stripped) => stripped.to_owned(),
            None => name,
        }
    }

    /// The file's full name of a parameter, and the transform between them.
    ///
    /// # Panics
    /// When the table lacks the name: every parameter of a model that a format expresses has a row.
    fn file_name(&self, name: &str) -> (String, Transform) {
        self.find(name)
            .unwrap_or_else(|| panic!("checkpoint table: no row for {name}"))
    }

    /// The alias of a parameter, if it has one.
    fn alias(&self, name: &str) -> Option<&'static str> {
        let alias = self.table.aliases.iter().find(|(it, _)| *it == name);
        alias.map(|(_, alias)| *alias)
    }

    /// The file's full name of a parameter, and the transform between them, if the table has a row for it.
    pub fn find(&self, name: &str) -> Option<(String, Transform)> {
        if self.table.sections.is_empty() {
            return Some((name.to_owned(), Transform::Same));
        }
        let heads = Section {
            model_prefix: "",
            file_prefix: "",
            rows: self.heads,
        };
        let find = |section: &Section| {
            let name = name.strip_prefix(section.model_prefix)?;
            section
                .rows
                .iter()
                .find_map(|(pattern, file_pattern, transform)| {
                    let indices = match_pattern(name, pattern)?;
                    let file_name = self.fill_placeholders(file_pattern, &indices);
                    Some((format!("{}{file_name}", section.file_prefix), *transform))
                })
        };
        find(&heads).or_else(|| self.table.sections.iter().find_map(find))
    }

    /// A file's name from its pattern and the index of each placeholder.
    fn fill_placeholders(&self, pattern: &str, indices: &[(&str, &str)]) -> String {
        let mut name = pattern.replace("{up}", if self.gated { "wi_1" } else { "wi" });
        for (placeholder, index) in indices {
            name = name.replace(&format!("{{{placeholder}}}"), index);
        }
        let layer = indices
            .first()
            .and_then(|(_, index)| index.parse::<usize>().ok());
        if let Some(layer) = layer {
            name = name
                .replace("{group}", &(layer / self.group).to_string())
                .replace("{inner}", &(layer % self.group).to_string());
        }
        name
    }

    /// Whether a file may hold a tensor of this name that the model does not have.
    fn is_ignorable(&self, name: &str) -> bool {
        let NameTable {
            ignored,
            optional_prefix,
            ..
        } = self.table;
        let full_name = format!("{optional_prefix}{name}");
        let known = |row: &&TensorRow| row.1 == name || row.1 == full_name;
        ignored.iter().any(|suffix| name.ends_with(suffix))
            || self.known.iter().any(known)
            // A file may have the prefix or leave it out.
            || (self.ignores_heads && ![name, &full_name].into_iter().any(|it| self.is_of_a_stack(it)))
    }

    /// Whether a full name is that of a stack's tensor, of any layer.
    fn is_of_a_stack(&self, full_name: &str) -> bool {
        if self.table.sections.is_empty() {
            return full_name.starts_with("stack.") || full_name.starts_with("encoder.");
        }
        self.table.sections.iter().any(|section| {
            let Some(name) = full_name.strip_prefix(section.file_prefix) else {
                return false;
            };
            let matches = |row: &TensorRow| match_pattern(name, row.1).is_some();
            section.rows.iter().any(matches)
        })
    }
}

impl NameTable {
    /// The current name of a tensor that an old version may have named.
    fn current_name(&self, name: &str) -> String {
        let renamed = self.renamed.iter().find_map(|(old, new)| {
            let stem = name.strip_suffix(old)?;
            Some(format!("{stem}{new}"))
        });
        renamed.unwrap_or_else(|| name.to_owned())
    }
}

/// The inverse frequencies of sinusoidal positions of this width.
fn inverse_frequencies(width: usize) -> TensorData {
    // In PyTorch's precision and order of operations, so that saving a loaded file reproduces it bit for bit.
    let values: Vec<f32> = (0..width / 2)
        .map(|i| 1.0 / 10_000f32.powf(2.0 * i as f32 / width as f32))
        .collect();
    let count = values.len();
    TensorData::new(values, [count])
}

/// Matches a name against a pattern; returns each placeholder with its index.
fn match_pattern<'n, 'p>(
    mut name: &'n str,
    mut pattern: &'p str,
) -> Option<Vec<(&'p str, &'n str)>> {
    let mut indices = Vec::new();
    while let Some((before, rest)) = pattern.split_once('{') {
        let (placeholder, after) = rest.split_once('}')?;
        name = name.strip_prefix(before)?;
        let digits = name.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return None;
        }
        let (index, remaining) = name.split_at(digits);
        indices.push((placeholder, index));
        (name, pattern) = (remaining, after);
    }
    (name == pattern).then_some(indices)
}
