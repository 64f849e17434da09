//! A table of tensor names, ours beside theirs, from which both loading and saving follow.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use burn::tensor::TensorData;

pub use super::operation::Operation;
use super::{TensorFile, TensorProblems};
use crate::{Numbers, Parameter, PatchesConfig};

/// One tensor: our name, their name (both with `{layer}`, and `{expert}` where it has one), and the way between them. Of a
/// block in a group, their name has `{group}` and `{inner}` instead, and `{up}` is a map whose name depends on whether there
/// is a gate beside it.
pub type Row = (&'static str, &'static str, Operation);

/// The names of one stack.
pub struct Part {
    /// What stands before our names.
    pub ours: &'static str,
    /// What stands before theirs.
    pub theirs: &'static str,
    /// The tensors.
    pub rows: &'static [Row],
}

/// The names of one format.
pub struct Table {
    /// The stacks; none at all means that their names are ours.
    pub parts: &'static [Part],
    /// What some files leave out of the front of every name.
    pub optional_prefix: &'static str,
    /// Ends of names that carry nothing: buffers that old versions saved, copies of tied weights.
    pub ignored: &'static [&'static str],
    /// Ends of names that old versions wrote otherwise, theirs and today's.
    pub renamed: &'static [(&'static str, &'static str)],
    /// Other whole names under which a tensor of ours may lie, ours and theirs. Where both are there this one is meant: it is a
    /// copy of the other, or weights are not tied. Those of a model that is not tied are saved under both.
    pub twins: &'static [(&'static str, &'static str)],
    /// Our tensors that are zero where a file has none.
    pub zeros: &'static [&'static str],
}

/// The names of a model with its heads.
pub struct Names {
    pub table: &'static Table,
    /// The rows of the heads that the model has, with whole names.
    pub heads: &'static [Row],
    /// Whether saving leaves out the optional prefix.
    pub bare: bool,
    /// The rows of all heads that the family has: tensors of those that the model leaves out are no surprise.
    pub known: Vec<&'static Row>,
    /// How pictures are cut.
    pub patches: Option<PatchesConfig>,
    /// Width of a head.
    pub head_width: usize,
    /// How many blocks a group has.
    pub group: usize,
    /// Width of the model.
    pub width: usize,
    /// Whether feed-forward layers have a gate, beside which T5 names the other map otherwise.
    pub gated: bool,
    /// Whether scores of the vocabulary have a matrix of their own.
    pub untied: bool,
}

/// What a file calls what we ask for by whole names.
pub struct Lookup {
    /// Today's names, and those of the file.
    names: HashMap<String, String>,
    prefix: &'static str,
    /// Whether the file's names have the prefix that some leave out.
    prefixed: bool,
}

impl Lookup {
    pub fn new(names: &Names, file: &TensorFile) -> Self {
        let found = file.names();
        let prefix = names.table.optional_prefix;
        Self {
            prefixed: found.iter().any(|name| name.starts_with(prefix)),
            names: found
                .into_iter()
                .map(|name| (names.table.today(&name), name))
                .collect(),
            prefix,
        }
    }

    /// The file's name of a tensor.
    pub fn name(&self, whole: &str) -> Option<&str> {
        let asked = match whole.strip_prefix(self.prefix) {
            Some(stripped) if !self.prefixed => stripped,
            _ => whole,
        };
        self.names.get(asked).map(String::as_str)
    }

    /// Whether the file has a tensor.
    pub fn has(&self, whole: &str) -> bool {
        self.name(whole).is_some()
    }
}

impl Names {
    /// Finds every parameter in a file, or says all that is wrong.
    pub fn read(
        &self,
        parameters: &[Parameter],
        file: &TensorFile,
    ) -> Result<HashMap<String, Numbers>, TensorProblems> {
        let mut problems = TensorProblems::default();
        let lookup = Lookup::new(self, file);
        let found = file.names();
        let mut unread: BTreeSet<&str> = found.iter().map(String::as_str).collect();
        let mut values = HashMap::new();
        // Several of our tensors may come from one of theirs, which is then told once.
        let mut told = BTreeSet::new();
        for Parameter { name, shape, .. } in parameters {
            let (whole_name, operation) = self.theirs(name);
            if operation == Operation::Drawn {
                continue;
            }
            let twin = self.twin(name).and_then(|twin| lookup.name(twin));
            let named = lookup.name(&whole_name);
            unread.retain(|it| Some(*it) != named && Some(*it) != twin);
            let first = told.insert(whole_name.clone());
            let Some(theirs) = twin.or(named) else {
                match self.table.zeros.contains(&name.as_str()) {
                    true => {
                        let zeros = TensorData::zeros::<f32, _>(shape.clone());
                        values.insert(name.clone(), zeros.into());
                    }
                    false => problems.missing.extend(first.then_some(whole_name)),
                }
                continue;
            };
            let found = file.shape(theirs).unwrap_or_default();
            let needed = operation.their_shape(shape, self.patches.as_ref());
            // The sizes before the numbers: what does not fit is not read.
            let fits = found == needed;
            // What need not be changed is not even read, until somebody computes with it.
            let as_it_lies = fits.then(|| operation.as_it_lies(shape)).flatten();
            let mapped = as_it_lies.and_then(|lies| lies.mapped(file, theirs));
            if let Some(numbers) = mapped {
                values.insert(name.clone(), numbers);
                continue;
            }
            let Some(numbers) = fits.then(|| file.floats(theirs).ok()).flatten() else {
                let misfit = match file.kind(theirs) {
                    Some(kind) if fits => format!("{theirs} is {kind} and must be floats"),
                    _ => format!("{theirs} is {found:?} and must be {needed:?}"),
                };
                problems.misshapen.extend(first.then_some(misfit));
                continue;
            };
            let ours = operation.ours(numbers, shape, self.head_width);
            values.insert(name.clone(), TensorData::new(ours, shape.clone()).into());
        }
        unread.retain(|name| !self.is_no_surprise(&self.table.today(name)));
        problems
            .unexpected
            .extend(unread.into_iter().map(str::to_owned));
        if problems.is_empty() {
            Ok(values)
        } else {
            Err(problems)
        }
    }

    /// Their tensors from ours.
    pub fn write(&self, ours: BTreeMap<String, TensorData>) -> BTreeMap<String, TensorData> {
        let mut theirs: BTreeMap<String, TensorData> = BTreeMap::new();
        for (name, data) in ours {
            let (their_name, operation) = self.theirs(&name);
            if operation == Operation::Drawn {
                continue;
            }
            if let Some(twin) = self.twin(&name).filter(|_| self.untied) {
                theirs.insert(self.saved_name(twin.to_owned()), data.clone());
            }
            let their_name = self.saved_name(their_name);
            let shape = data.shape().to_vec();
            let numbers = data.try_to_vec::<f32>().expect("parameters are f32");
            let their_shape = operation.their_shape(&shape, self.patches.as_ref());
            let place = theirs.entry(their_name).or_insert_with(|| {
                let count = their_shape.iter().product();
                TensorData::new(vec![0f32; count], their_shape)
            });
            let target = place.as_mut_slice::<f32>().expect("made as f32 above");
            operation.put(&numbers, &shape, self.head_width, target);
        }
        for part in self.table.parts {
            let made = part
                .rows
                .iter()
                .filter(|row| row.2 == Operation::Wavelengths);
            theirs.extend(made.map(|row| {
                let name = format!("{}{}", part.theirs, row.1);
                (self.saved_name(name), wavelengths(self.width))
            }));
        }
        theirs
    }

    /// Their name as it is saved.
    fn saved_name(&self, name: String) -> String {
        let stripped = name.strip_prefix(self.table.optional_prefix);
        match stripped.filter(|_| self.bare) {
            Some(stripped) => stripped.to_owned(),
            None => name,
        }
    }

    /// Their name of our tensor, and the way between them.
    ///
    /// # Panics
    /// When the table lacks the name: every parameter of a model that a format expresses has a row.
    fn theirs(&self, ours: &str) -> (String, Operation) {
        self.find(ours)
            .unwrap_or_else(|| panic!("checkpoint table: no row for {ours}"))
    }

    /// The other name of our tensor, if it has one.
    fn twin(&self, ours: &str) -> Option<&'static str> {
        let twin = self.table.twins.iter().find(|(it, _)| *it == ours);
        twin.map(|(_, theirs)| *theirs)
    }

    /// Their name of our tensor, and the way between them, if the table has a row for it.
    pub fn find(&self, ours: &str) -> Option<(String, Operation)> {
        if self.table.parts.is_empty() {
            return Some((ours.to_owned(), Operation::Same));
        }
        let whole = Part {
            ours: "",
            theirs: "",
            rows: self.heads,
        };
        let find = |part: &Part| {
            let ours = ours.strip_prefix(part.ours)?;
            part.rows
                .iter()
                .find_map(|(our_pattern, theirs, operation)| {
                    let places = places_of(ours, our_pattern)?;
                    let theirs = format!("{}{}", part.theirs, self.numbered(theirs, &places));
                    Some((theirs, *operation))
                })
        };
        find(&whole).or_else(|| self.table.parts.iter().find_map(find))
    }

    /// Their name with the numbers of its places, and with those of a layer's group and of its place there.
    fn numbered(&self, pattern: &str, places: &[(&str, &str)]) -> String {
        let mut name = pattern.replace("{up}", if self.gated { "wi_1" } else { "wi" });
        for (place, number) in places {
            name = name.replace(&format!("{{{place}}}"), number);
        }
        let layer = places
            .first()
            .and_then(|(_, number)| number.parse::<usize>().ok());
        if let Some(layer) = layer {
            name = name
                .replace("{group}", &(layer / self.group).to_string())
                .replace("{inner}", &(layer % self.group).to_string());
        }
        name
    }

    /// Whether a file may hold a tensor of this name though the model has no place for it.
    fn is_no_surprise(&self, name: &str) -> bool {
        let Table {
            ignored,
            optional_prefix,
            ..
        } = self.table;
        let whole = format!("{optional_prefix}{name}");
        let known = |row: &&Row| row.1 == name || row.1 == whole;
        ignored.iter().any(|end| name.ends_with(end)) || self.known.iter().any(known)
    }
}

impl Table {
    /// Today's name of a tensor.
    fn today(&self, name: &str) -> String {
        let renamed = self.renamed.iter().find_map(|(old, new)| {
            let start = name.strip_suffix(old)?;
            Some(format!("{start}{new}"))
        });
        renamed.unwrap_or_else(|| name.to_owned())
    }
}

/// The inverse wavelengths of sines and cosines of this width.
fn wavelengths(width: usize) -> TensorData {
    // In PyTorch's precision and order of steps, so that a file that was read is written again bit for bit.
    let numbers: Vec<f32> = (0..width / 2)
        .map(|i| 1.0 / 10_000f32.powf(2.0 * i as f32 / width as f32))
        .collect();
    let count = numbers.len();
    TensorData::new(numbers, [count])
}

/// The numbers that make `pattern` into `name`, each with the word that stands for it.
fn places_of<'n, 'p>(mut name: &'n str, mut pattern: &'p str) -> Option<Vec<(&'p str, &'n str)>> {
    let mut places = Vec::new();
    while let Some((before, rest)) = pattern.split_once('{') {
        let (place, after) = rest.split_once('}')?;
        name = name.strip_prefix(before)?;
        let digits = name.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return None;
        }
        let (number, remaining) = name.split_at(digits);
        places.push((place, number));
        (name, pattern) = (remaining, after);
    }
    (name == pattern).then_some(places)
}
