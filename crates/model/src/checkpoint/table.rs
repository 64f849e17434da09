//! A table of tensor names, ours beside theirs, from which both loading and saving follow.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use burn::tensor::TensorData;

use super::{TensorFile, TensorProblems};
use crate::Parameter;

/// How a tensor of ours is found in theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The same numbers in the same order.
    Same,
    /// Theirs is `[input, output]`.
    Transpose,
    /// Theirs holds three vectors one after the other, of which ours is this one.
    Third(usize),
    /// Theirs is `[input, 3 · output]`, of which ours is this third of the columns.
    TransposedThird(usize),
    /// Theirs rotates neighbouring features where ours rotates the halves of a head: in each head, our row `i` of half `h` is
    /// their row `2 · i + h`.
    NeighbouringPairs,
}

/// One tensor: our whole name, their whole name (both with `{layer}`, and `{expert}` where it has one), and the way between
/// them.
pub type Row = (&'static str, &'static str, Operation);

/// The names of one format.
pub struct Table {
    /// The tensors, in lists that formats may share; no rows at all means that their names are ours.
    pub rows: &'static [&'static [Row]],
    /// What some files leave out of the front of every name.
    pub optional_prefix: &'static str,
    /// Ends of names that carry nothing: buffers that old versions saved, copies of tied weights.
    pub ignored: &'static [&'static str],
}

impl Table {
    /// Finds every parameter of a model with heads of this width in a file, or says all that is wrong.
    pub fn read(
        &self,
        parameters: &[Parameter],
        file: &TensorFile,
        head_width: usize,
    ) -> Result<HashMap<String, TensorData>, TensorProblems> {
        let mut problems = TensorProblems::default();
        let mut unread: BTreeSet<String> = file.names().into_iter().collect();
        let prefixed = unread
            .iter()
            .any(|name| name.starts_with(self.optional_prefix));
        let mut values = HashMap::new();
        // Several of our tensors may come from one of theirs, which is then told once.
        let mut told = BTreeSet::new();
        for Parameter { name, shape, .. } in parameters {
            let (whole_name, operation) = self.theirs(name);
            let theirs = match whole_name.strip_prefix(self.optional_prefix) {
                Some(stripped) if !prefixed => stripped,
                _ => &whole_name,
            };
            unread.remove(theirs);
            let first = told.insert(whole_name.clone());
            let Some(found) = file.shape(theirs) else {
                problems.missing.extend(first.then_some(whole_name));
                continue;
            };
            let needed = operation.their_shape(shape);
            // The sizes before the numbers: what does not fit is not read.
            let fits = found == needed;
            let Some(numbers) = fits.then(|| file.floats(theirs).ok()).flatten() else {
                let misfit = match file.kind(theirs) {
                    Some(kind) if fits => format!("{theirs} is {kind} and must be floats"),
                    _ => format!("{theirs} is {found:?} and must be {needed:?}"),
                };
                problems.misshapen.extend(first.then_some(misfit));
                continue;
            };
            let ours = operation.ours(numbers, shape, head_width);
            values.insert(name.clone(), TensorData::new(ours, shape.clone()));
        }
        unread.retain(|name| !self.ignored.iter().any(|end| name.ends_with(end)));
        problems.unexpected.extend(unread);
        if problems.is_empty() {
            Ok(values)
        } else {
            Err(problems)
        }
    }

    /// Their tensors from ours, of a model with heads of this width.
    pub fn write(
        &self,
        ours: BTreeMap<String, TensorData>,
        head_width: usize,
    ) -> BTreeMap<String, TensorData> {
        let mut theirs: BTreeMap<String, TensorData> = BTreeMap::new();
        for (name, data) in ours {
            let (their_name, operation) = self.theirs(&name);
            let shape = data.shape().to_vec();
            let numbers = data.try_to_vec::<f32>().expect("parameters are f32");
            let their_shape = operation.their_shape(&shape);
            let place = theirs.entry(their_name).or_insert_with(|| {
                let count = their_shape.iter().product();
                TensorData::new(vec![0f32; count], their_shape)
            });
            let target = place.as_mut_slice::<f32>().expect("made as f32 above");
            operation.put(&numbers, &shape, head_width, target);
        }
        theirs
    }

    /// Their name of our tensor, and the way between them.
    ///
    /// # Panics
    /// When the table lacks the name: every parameter of a model that a format expresses has a row.
    fn theirs(&self, ours: &str) -> (String, Operation) {
        if self.rows.is_empty() {
            return (ours.to_owned(), Operation::Same);
        }
        self.rows
            .iter()
            .copied()
            .flatten()
            .find_map(|(our_pattern, their_pattern, operation)| {
                let places = places_of(ours, our_pattern)?;
                let mut theirs = (*their_pattern).to_owned();
                for (place, number) in places {
                    theirs = theirs.replace(&format!("{{{place}}}"), number);
                }
                Some((theirs, *operation))
            })
            .unwrap_or_else(|| panic!("checkpoint table: no row for {ours}"))
    }
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
    /// The shape of theirs, given ours.
    fn their_shape(self, ours: &[usize]) -> Vec<usize> {
        match (self, ours) {
            (Self::Same | Self::NeighbouringPairs, _) => ours.to_vec(),
            (Self::Transpose, [output, input]) => vec![*input, *output],
            (Self::Third(_), [size]) => vec![3 * size],
            (Self::TransposedThird(_), [output, input]) => vec![*input, 3 * output],
            _ => panic!("checkpoint table: {self:?} does not apply to {ours:?}"),
        }
    }

    /// Our numbers from theirs.
    fn ours(self, theirs: Vec<f32>, shape: &[usize], head_width: usize) -> Vec<f32> {
        if self == Self::Same {
            return theirs;
        }
        (0..shape.iter().product())
            .map(|index| theirs[self.their_index(index, shape, head_width)])
            .collect()
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
            (Self::Same, _) => index,
            (Self::Transpose, [output, input]) => index % input * output + index / input,
            (Self::Third(part), [size]) => part * size + index,
            (Self::TransposedThird(part), [output, input]) => {
                index % input * 3 * output + part * output + index / input
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
