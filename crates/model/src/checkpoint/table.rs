//! A table of tensor names, ours beside theirs, from which both loading and saving follow.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use burn::tensor::TensorData;

use super::{TensorFile, TensorProblems};
use crate::{Parameter, PatchesConfig};

/// How a tensor of ours is found in theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The same numbers in the same order.
    Same,
    /// The same under one more axis of size one, in front.
    Led,
    /// The same under one more axis of size one, after the first.
    Parted,
    /// In no model of ours: the inverse wavelengths of sines and cosines, which theirs keeps beside its weights.
    Wavelengths,
    /// In no file of theirs: it is drawn from a seed of the settings.
    Drawn,
    /// The same, with the pixels of a patch under axes of their own.
    Convolution,
    /// Theirs is `[input, output]`.
    Transpose,
    /// Theirs holds two tensors one after the other, of which ours is this one.
    Half(usize),
    /// Theirs holds three tensors one after the other, of which ours is this one.
    Third(usize),
    /// Theirs is `[input, 2 · output]`, of which ours is this half of the columns.
    TransposedHalf(usize),
    /// Theirs is `[input, 3 · output]`, of which ours is this third of the columns.
    TransposedThird(usize),
    /// Theirs rotates neighbouring features where ours rotates the halves of a head: in each head, our row `i` of half `h` is
    /// their row `2 · i + h`.
    NeighbouringPairs,
}

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
    ) -> Result<HashMap<String, TensorData>, TensorProblems> {
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
                        values.insert(name.clone(), zeros);
                    }
                    false => problems.missing.extend(first.then_some(whole_name)),
                }
                continue;
            };
            let found = file.shape(theirs).unwrap_or_default();
            let needed = operation.their_shape(shape, self.patches.as_ref());
            // The sizes before the numbers: what does not fit is not read.
            let fits = found == needed;
            // What lies there as it is needed is not even read, until somebody computes with it.
            let as_it_lies = (fits && operation.keeps_order())
                .then(|| file.mapped(theirs, shape))
                .flatten();
            if let Some(data) = as_it_lies {
                values.insert(name.clone(), data);
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
            values.insert(name.clone(), TensorData::new(ours, shape.clone()));
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

impl Operation {
    /// Whether both have the same numbers one after the other.
    fn keeps_order(self) -> bool {
        matches!(
            self,
            Self::Same | Self::Led | Self::Parted | Self::Convolution
        )
    }

    /// The shape of theirs, given ours.
    fn their_shape(self, ours: &[usize], patches: Option<&PatchesConfig>) -> Vec<usize> {
        match (self, ours) {
            (Self::Same | Self::NeighbouringPairs, _) => ours.to_vec(),
            (Self::Led, _) => [&[1], ours].concat(),
            (Self::Parted, [first, rest @ ..]) => [&[*first, 1][..], rest].concat(),
            (Self::Convolution, [output, _]) => {
                let patches = patches.expect("convolutions are of models with patches");
                vec![*output, patches.channels, patches.size, patches.size]
            }
            (Self::Transpose, [output, input]) => vec![*input, *output],
            (Self::Half(_), [first, rest @ ..]) => [&[2 * first][..], rest].concat(),
            (Self::Third(_), [first, rest @ ..]) => [&[3 * first][..], rest].concat(),
            (Self::TransposedHalf(_), [output, input]) => vec![*input, 2 * output],
            (Self::TransposedThird(_), [output, input]) => vec![*input, 3 * output],
            _ => panic!("checkpoint table: {self:?} does not apply to {ours:?}"),
        }
    }

    /// Our numbers from theirs.
    fn ours(self, theirs: Vec<f32>, shape: &[usize], head_width: usize) -> Vec<f32> {
        if self.keeps_order() {
            return theirs;
        }
        if let ([output, input], Some((stride, start))) = (shape, self.transposition(shape)) {
            return transposed(&theirs, [*output, *input], stride, start);
        }
        (0..shape.iter().product())
            .map(|index| theirs[self.their_index(index, shape, head_width)])
            .collect()
    }

    /// Of what is transposed: how many columns theirs has, and which of them is our first row.
    fn transposition(self, shape: &[usize]) -> Option<(usize, usize)> {
        match (self, shape) {
            (Self::Transpose, [output, _]) => Some((*output, 0)),
            (Self::TransposedHalf(part), [output, _]) => Some((2 * output, part * output)),
            (Self::TransposedThird(part), [output, _]) => Some((3 * output, part * output)),
            _ => None,
        }
    }

    /// Puts our numbers to their places in theirs.
    fn put(self, ours: &[f32], shape: &[usize], head_width: usize, theirs: &mut [f32]) {
        for (index, number) in ours.iter().enumerate() {
            theirs[self.their_index(index, shape, head_width)] = *number;
        }
    }

    /// Where our number of this index stands in theirs.
    fn their_index(self, index: usize, shape: &[usize], head_width: usize) -> usize {
        match (self, shape) {
            _ if self.keeps_order() => index,
            (Self::Half(part) | Self::Third(part), _) => {
                part * shape.iter().product::<usize>() + index
            }
            (_, [_, input]) if let Some((stride, start)) = self.transposition(shape) => {
                index % input * stride + start + index / input
            }
            (Self::NeighbouringPairs, [_, rest @ ..]) => {
                let columns: usize = rest.iter().product();
                let (row, column) = (index / columns, index % columns);
                let (head, place) = (row / head_width, row % head_width);
                let pairs = head_width / 2;
                let theirs = head * head_width + place % pairs * 2 + place / pairs;
                theirs * columns + column
            }
            _ => panic!("checkpoint table: {self:?} does not apply to {shape:?}"),
        }
    }
}

/// Columns of `theirs`, from number `start` on, as rows `[output, input]`. In squares, since one of the two sides is read or
/// written across its rows, and a square of both stays in cache.
fn transposed(theirs: &[f32], shape: [usize; 2], stride: usize, start: usize) -> Vec<f32> {
    const SIDE: usize = 32;
    let [output, input] = shape;
    let mut ours = vec![0f32; output * input];
    for (above, left) in squares(output, input, SIDE) {
        for row in above..output.min(above + SIDE) {
            for column in left..input.min(left + SIDE) {
                ours[row * input + column] = theirs[column * stride + start + row];
            }
        }
    }
    ours
}

/// The corners of squares that cover a matrix.
fn squares(rows: usize, columns: usize, side: usize) -> impl Iterator<Item = (usize, usize)> {
    let row = (0..rows).step_by(side);
    row.flat_map(move |above| (0..columns).step_by(side).map(move |left| (above, left)))
}
