//! The attention pattern of one Longformer pass, and the layout of queries and keys that computes it without the full
//! attention matrix. Beltagy et al. 2020.
//!
//! A dilated window is a plain window in each of several interleaved subsequences. Padding to a multiple of the dilation goes
//! in front, so that queries stay at the end of the keys, as masks require:
//!
//! ```text
//! 7 keys, dilation 3   · · 0 1 2 3 4 5 6   →   · 1 4    · 2 5    0 3 6
//! 2 queries                    · · · 5 6   →     ·        5        6
//! ```

use std::ops::Range;

use burn::tensor::{Device, Tensor, TensorData};

use super::{Role, mask_bias};
use crate::indices::indices;

/// Which keys each query attends to. Key 0 is the first one in the cache; the queries are the last of the keys' positions.
pub(super) struct Layout {
    /// How many keys the window has on each side of the query, `dilation` apart.
    pub half_window: usize,
    pub dilation: usize,
    pub role: Role,
    pub queries: usize,
    pub keys: usize,
    /// The keys that are not padding, one range per batch row.
    pub non_padding: Vec<Range<usize>>,
    /// The global positions, in order and without padding, one list per batch row. Empty with a cache.
    pub globals: Vec<Vec<usize>>,
}

impl Layout {
    /// The largest number of globals in a batch row.
    pub fn max_globals(&self) -> usize {
        self.globals.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Whether a position is global.
    pub fn is_global(&self, row: usize, position: usize) -> bool {
        self.globals[row].binary_search(&position).is_ok()
    }

    /// Whether a local query attends to a key.
    pub fn attends(&self, row: usize, query: usize, key: usize) -> bool {
        let position = self.position(query);
        let is_padding = |it: usize| !self.non_padding[row].contains(&it);
        if is_padding(position) || is_padding(key) || self.is_global(row, position) {
            return false;
        }
        let distance = key.abs_diff(position);
        let in_window = distance.is_multiple_of(self.dilation)
            && distance / self.dilation <= self.half_window
            && (self.role != Role::Causal || key <= position);
        in_window || self.is_global(row, key)
    }

    fn position(&self, query: usize) -> usize {
        self.keys - self.queries + query
    }

    /// The rows of `x` `[batch, heads, keys, width]` at the global positions, `[batch, heads, max_globals, width]`. Batch rows
    /// with fewer globals are filled with an arbitrary row.
    pub fn gather_globals(&self, x: Tensor<4>) -> Tensor<4> {
        let [batch, heads, keys, width] = x.dims();
        let max_globals = self.max_globals();
        let rows = self.globals.iter().enumerate().flat_map(|(row, globals)| {
            let position = move |index| globals.get(index).copied().unwrap_or(0);
            (0..max_globals).map(move |it| row * keys + position(it))
        });
        let rows = indices(rows, &x.device());
        by_position(x)
            .select(0, rows)
            .reshape([batch, max_globals, heads, width])
            .swap_dims(1, 2)
    }

    /// `local` `[batch, heads, queries, width]` with the rows at global positions replaced by those of `global`
    /// `[batch, heads, max_globals, width]`, and rows of padding by zeros.
    pub fn scatter_globals(&self, local: Tensor<4>, global: Option<Tensor<4>>) -> Tensor<4> {
        let [batch, heads, queries, width] = local.dims();
        let max_globals = self.max_globals();
        let device = local.device();
        let is_padding =
            |row: usize, query: usize| !self.non_padding[row].contains(&self.position(query));
        let all = || (0..batch).flat_map(|row| (0..queries).map(move |query| (row, query)));
        if global.is_none() && !all().any(|(row, query)| is_padding(row, query)) {
            return local;
        }
        // Rows are selected from the concatenation of local outputs, global outputs and a row of zeros.
        let source = |(row, query): (usize, usize)| {
            if is_padding(row, query) {
                return batch * (queries + max_globals);
            }
            match self.globals[row].binary_search(&self.position(query)) {
                Ok(index) => batch * queries + row * max_globals + index,
                Err(_) => row * queries + query,
            }
        };
        let sources = indices(all().map(source), &device);
        let mut rows = vec![by_position(local)];
        rows.extend(global.map(by_position));
        rows.push(Tensor::zeros([1, heads * width], &device));
        Tensor::cat(rows, 0)
            .select(0, sources)
            .reshape([batch, queries, heads, width])
            .swap_dims(1, 2)
    }

    /// How many interleaved subsequences there are.
    fn subsequences(&self) -> usize {
        // Empty queries could not be reshaped back: their length no longer determines the number of subsequences.
        if self.queries == 0 {
            return 1;
        }
        // More subsequences than keys would be empty.
        self.dilation.min(self.keys)
    }

    /// Splits `[batch, heads, length, width]` into subsequences, `[batch · subsequences, heads, ⌈length / subsequences⌉, width]`.
    pub fn split_dilated(&self, x: Tensor<4>) -> Tensor<4> {
        let subsequences = self.subsequences();
        if subsequences == 1 {
            return x;
        }
        let [batch, heads, length, width] = x.dims();
        let sublength = length.div_ceil(subsequences);
        let padding = [batch, heads, sublength * subsequences - length, width];
        let padding = Tensor::zeros(padding, &x.device());
        Tensor::cat(vec![padding, x], 2)
            .reshape([batch, heads, sublength, subsequences, width])
            .permute([0, 3, 1, 2, 4])
            .reshape([batch * subsequences, heads, sublength, width])
    }

    /// Merges subsequences of queries; the inverse of [`Layout::split_dilated`].
    pub fn merge_dilated(&self, x: Tensor<4>) -> Tensor<4> {
        let subsequences = self.subsequences();
        if subsequences == 1 {
            return x;
        }
        let [rows, heads, sublength, width] = x.dims();
        let (batch, length) = (rows / subsequences, sublength * subsequences);
        x.reshape([batch, subsequences, heads, sublength, width])
            .permute([0, 2, 3, 1, 4])
            .reshape([batch, heads, length, width])
            .narrow(2, length - self.queries, self.queries)
    }

    /// The keys of each subsequence that are not padding.
    pub fn dilated_non_padding(&self) -> Vec<Range<usize>> {
        let subsequences = self.subsequences();
        let padding = self.front_padding();
        // The first index in a subsequence whose position is at least `position`.
        let index = |position: usize, subsequence: usize| {
            (position + padding)
                .saturating_sub(subsequence)
                .div_ceil(subsequences)
        };
        let ranges = |non_padding: &Range<usize>| {
            let Range { start, end } = *non_padding;
            (0..subsequences).map(move |it| index(start, it)..index(end, it))
        };
        self.non_padding.iter().flat_map(ranges).collect()
    }

    /// A bias `[batch · subsequences, 1, sublength]` that masks the globals in windows, if there are any.
    pub fn global_mask_bias(&self, device: &Device) -> Option<Tensor<3>> {
        if self.max_globals() == 0 {
            return None;
        }
        let (batch, subsequences) = (self.non_padding.len(), self.subsequences());
        let (sublength, padding) = (self.keys.div_ceil(subsequences), self.front_padding());
        let mut bias = Vec::with_capacity(batch * subsequences * sublength);
        for (row, subsequence) in
            (0..batch).flat_map(|row| (0..subsequences).map(move |it| (row, it)))
        {
            bias.extend((0..sublength).map(|index| {
                let position = (index * subsequences + subsequence).checked_sub(padding);
                mask_bias(position.is_none_or(|position| !self.is_global(row, position)))
            }));
        }
        let bias = TensorData::new(bias, [batch * subsequences, 1, sublength]);
        Some(Tensor::from_data(bias, device))
    }

    /// How many padding keys precede the first one in the subsequences.
    fn front_padding(&self) -> usize {
        self.keys.next_multiple_of(self.subsequences()) - self.keys
    }
}

/// `[batch, heads, length, width]` to `[batch · length, heads · width]`
fn by_position(x: Tensor<4>) -> Tensor<2> {
    let [batch, heads, length, width] = x.dims();
    x.swap_dims(1, 2).reshape([batch * length, heads * width])
}
