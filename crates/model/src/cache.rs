//! Keys and values of earlier positions, so that decoding computes each position once.

use burn::tensor::Tensor;

/// Growing keys and values, one pair per layer.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    layers: Vec<KeyValues>,
}

/// The keys and values of one layer, `[batch, key_value_heads, capacity, head_width]`, of which `length` are filled.
#[derive(Clone, Debug)]
struct KeyValues {
    keys: Tensor<4>,
    values: Tensor<4>,
    length: usize,
}

impl Cache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many positions the cache holds, between passes.
    pub fn length(&self) -> usize {
        self.layers.first().map_or(0, |layer| layer.length)
    }

    /// Adds the keys and values of new positions and gives those of all positions.
    ///
    /// # Panics
    /// When a layer is skipped: layers append in order.
    pub fn append(
        &mut self,
        layer: usize,
        keys: Tensor<4>,
        values: Tensor<4>,
    ) -> (Tensor<4>, Tensor<4>) {
        if layer == self.layers.len() {
            let length = keys.dims()[2];
            self.layers.push(KeyValues {
                keys,
                values,
                length,
            });
        } else {
            self.layers[layer].append(keys, values);
        }
        let held = &self.layers[layer];
        (
            held.keys.clone().narrow(2, 0, held.length),
            held.values.clone().narrow(2, 0, held.length),
        )
    }
}

impl KeyValues {
    fn append(&mut self, keys: Tensor<4>, values: Tensor<4>) {
        let added = keys.dims()[2];
        let needed = self.length + added;
        if needed > self.keys.dims()[2] {
            // Doubling makes the cost of growing constant per position.
            let capacity = (2 * self.keys.dims()[2]).max(needed);
            self.keys.inplace(|keys| grown(keys, capacity));
            self.values.inplace(|values| grown(values, capacity));
        }
        let place = |buffer: Tensor<4>, new: Tensor<4>, at: usize| {
            let [batch, heads, _, width] = new.dims();
            buffer.slice_assign([0..batch, 0..heads, at..at + added, 0..width], new)
        };
        let at = self.length;
        self.keys.inplace(|buffer| place(buffer, keys, at));
        self.values.inplace(|buffer| place(buffer, values, at));
        self.length = needed;
    }
}

fn grown(buffer: Tensor<4>, capacity: usize) -> Tensor<4> {
    let [batch, heads, held, width] = buffer.dims();
    let room = Tensor::zeros([batch, heads, capacity - held, width], &buffer.device());
    Tensor::cat(vec![buffer, room], 2)
}
