//! Who sees whom in one pass of Longformer's attention, and the orders of positions that make it cheap. Beltagy et al. 2020.
//!
//! A dilated window is a plain one in each of several interleaved sequences. The gap to a whole number of them is in front,
//! so that the last query and the last key stay in one place, as masks take it:
//!
//! ```text
//! 7 keys, dilation 3   · · 0 1 2 3 4 5 6   →   · 1 4    · 2 5    0 3 6
//! 2 queries                    · · · 5 6   →     ·        5        6
//! ```

use std::ops::Range;

use burn::tensor::{Device, Int, Tensor, TensorData};

use super::Role;

/// Who sees whom. Keys are counted from the first that the cache holds; the queries are the last of them.
pub(super) struct Sight {
    /// How many keys of a window lie to each side of the query, `dilation` apart.
    pub reach: usize,
    pub dilation: usize,
    pub role: Role,
    pub queries: usize,
    pub keys: usize,
    /// Where padding leaves real keys, one range per batch row.
    pub real: Vec<Range<usize>>,
    /// Real positions that see all and are seen by all, in order, one list per batch row. Only without a cache.
    pub globals: Vec<Vec<usize>>,
}

impl Sight {
    /// The largest number of globals of a row.
    pub fn slots(&self) -> usize {
        self.globals.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Whether a position is global.
    pub fn is_global(&self, row: usize, position: usize) -> bool {
        self.globals[row].binary_search(&position).is_ok()
    }

    /// Whether a query that is not global sees a key.
    pub fn sees(&self, row: usize, query: usize, key: usize) -> bool {
        let position = self.position(query);
        let is_real = |it: usize| self.real[row].contains(&it);
        if !is_real(position) || !is_real(key) || self.is_global(row, position) {
            return false;
        }
        let distance = key.abs_diff(position);
        let in_window = distance.is_multiple_of(self.dilation)
            && distance / self.dilation <= self.reach
            && (self.role != Role::Causal || key <= position);
        in_window || self.is_global(row, key)
    }

    fn position(&self, query: usize) -> usize {
        self.keys - self.queries + query
    }

    /// A bias `[batch, 1, queries, keys]`: zero where `sees` of row, query and key holds, and minus infinity elsewhere.
    pub fn pairs(&self, sees: &dyn Fn(usize, usize, usize) -> bool, device: &Device) -> Tensor<4> {
        let (batch, queries, keys) = (self.real.len(), self.queries, self.keys);
        let mut pairs = Vec::with_capacity(batch * queries * keys);
        for (row, query) in (0..batch).flat_map(|row| (0..queries).map(move |it| (row, it))) {
            pairs.extend((0..keys).map(|key| hidden_unless(sees(row, query, key))));
        }
        Tensor::from_data(TensorData::new(pairs, [batch, 1, queries, keys]), device)
    }

    /// The rows of `x` `[batch, heads, keys, width]` at the globals, `[batch, heads, slots, width]`; any row where a batch
    /// row has fewer.
    pub fn picked(&self, x: Tensor<4>) -> Tensor<4> {
        let [batch, heads, keys, width] = x.dims();
        let slots = self.slots();
        let places = self.globals.iter().enumerate().flat_map(|(row, globals)| {
            let slot = move |slot| globals.get(slot).copied().unwrap_or(0);
            (0..slots).map(move |it| row * keys + slot(it))
        });
        let places = indices(places, &x.device());
        by_position(x)
            .select(0, places)
            .reshape([batch, slots, heads, width])
            .swap_dims(1, 2)
    }

    /// `context` `[batch, heads, queries, width]` with the rows of the global queries, `[batch, heads, slots, width]`, in
    /// their places, and zeros where a query is padding.
    pub fn settled(&self, context: Tensor<4>, of_globals: Option<Tensor<4>>) -> Tensor<4> {
        let [batch, heads, queries, width] = context.dims();
        let slots = self.slots();
        let device = context.device();
        let is_padded = |row: usize, query: usize| !self.real[row].contains(&self.position(query));
        let all = || (0..batch).flat_map(|row| (0..queries).map(move |query| (row, query)));
        if of_globals.is_none() && !all().any(|(row, query)| is_padded(row, query)) {
            return context;
        }
        let place = |(row, query): (usize, usize)| {
            if is_padded(row, query) {
                return batch * (queries + slots);
            }
            match self.globals[row].binary_search(&self.position(query)) {
                Ok(slot) => batch * queries + row * slots + slot,
                Err(_) => row * queries + query,
            }
        };
        let places = indices(all().map(place), &device);
        let mut rows = vec![by_position(context)];
        rows.extend(of_globals.map(by_position));
        rows.push(Tensor::zeros([1, heads * width], &device));
        Tensor::cat(rows, 0)
            .select(0, places)
            .reshape([batch, queries, heads, width])
            .swap_dims(1, 2)
    }

    /// How many interleaved sequences there are.
    fn sequences(&self) -> usize {
        // Without queries there is nothing to order, and sequences of no length would lose their number.
        if self.queries == 0 {
            return 1;
        }
        // More sequences than keys would be empty.
        self.dilation.min(self.keys)
    }

    /// `[batch, heads, length, width]` as interleaved sequences, `[batch · sequences, heads, ⌈length / sequences⌉, width]`.
    pub fn interleaved(&self, x: Tensor<4>) -> Tensor<4> {
        let sequences = self.sequences();
        if sequences == 1 {
            return x;
        }
        let [batch, heads, length, width] = x.dims();
        let each = length.div_ceil(sequences);
        let front = [batch, heads, each * sequences - length, width];
        let front = Tensor::zeros(front, &x.device());
        Tensor::cat(vec![front, x], 2)
            .reshape([batch, heads, each, sequences, width])
            .permute([0, 3, 1, 2, 4])
            .reshape([batch * sequences, heads, each, width])
    }

    /// Interleaved sequences of queries in one again.
    pub fn in_order(&self, x: Tensor<4>) -> Tensor<4> {
        let sequences = self.sequences();
        if sequences == 1 {
            return x;
        }
        let [rows, heads, each, width] = x.dims();
        let (batch, length) = (rows / sequences, each * sequences);
        x.reshape([batch, sequences, heads, each, width])
            .permute([0, 2, 3, 1, 4])
            .reshape([batch, heads, length, width])
            .narrow(2, length - self.queries, self.queries)
    }

    /// Where the keys of each interleaved sequence are real.
    pub fn interleaved_real(&self) -> Vec<Range<usize>> {
        let sequences = self.sequences();
        let front = self.front();
        // The first place of a sequence whose position is not before this one.
        let place = |position: usize, sequence: usize| {
            (position + front)
                .saturating_sub(sequence)
                .div_ceil(sequences)
        };
        let of_row = |real: &Range<usize>| {
            let real = real.clone();
            (0..sequences).map(move |it| place(real.start, it)..place(real.end, it))
        };
        self.real.iter().flat_map(of_row).collect()
    }

    /// What hides the globals from windows, `[batch · sequences, 1, keys of each]`, if there are any.
    pub fn hidden_globals(&self, device: &Device) -> Option<Tensor<3>> {
        if self.slots() == 0 {
            return None;
        }
        let (batch, sequences) = (self.real.len(), self.sequences());
        let (each, front) = (self.keys.div_ceil(sequences), self.front());
        let mut hidden = Vec::with_capacity(batch * sequences * each);
        for (row, sequence) in (0..batch).flat_map(|row| (0..sequences).map(move |it| (row, it))) {
            hidden.extend((0..each).map(|place| {
                let position = (place * sequences + sequence).checked_sub(front);
                hidden_unless(position.is_none_or(|position| !self.is_global(row, position)))
            }));
        }
        let hidden = TensorData::new(hidden, [batch * sequences, 1, each]);
        Some(Tensor::from_data(hidden, device))
    }

    /// How many places without a key the interleaved sequences have in front.
    fn front(&self) -> usize {
        self.keys.next_multiple_of(self.sequences()) - self.keys
    }
}

fn hidden_unless(seen: bool) -> f32 {
    if seen { 0.0 } else { f32::NEG_INFINITY }
}

/// `[batch, heads, length, width]` to `[batch · length, heads · width]`
fn by_position(x: Tensor<4>) -> Tensor<2> {
    let [batch, heads, length, width] = x.dims();
    x.swap_dims(1, 2).reshape([batch * length, heads * width])
}

fn indices(places: impl Iterator<Item = usize>, device: &Device) -> Tensor<1, Int> {
    let places: Vec<i64> = places.map(|it| it as i64).collect();
    let count = places.len();
    Tensor::from_data(TensorData::new(places, [count]), device)
}
