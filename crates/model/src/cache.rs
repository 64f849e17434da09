//! The cache of earlier positions, so that decoding computes each position once. What is cached depends on the attention: all
//! keys and values, those within a window, the inputs of the last segment, or the state of linear attention; and the keys and
//! values of cross-attention.

mod select;

use attentive_tensor::LinearState;
use burn::tensor::Tensor;

/// The cache of all layers.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    layers: Vec<LayerCache>,
    length: usize,
    /// The original batch row of each row, whose memory it attends to; empty until rows are selected.
    original_rows: Vec<usize>,
}

/// The cache of one layer.
#[derive(Clone, Debug, Default)]
struct LayerCache {
    self_attention: Option<SelfAttentionCache>,
    /// Projected keys and values of cross-attention.
    memory: Option<(Tensor<4>, Tensor<4>)>,
}

/// What self-attention caches.
#[derive(Clone, Debug)]
enum SelfAttentionCache {
    KeyValues(KeyValueCache),
    Segment(SegmentCache),
    State(LinearAttentionCache),
}

impl Cache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many positions have been processed, between passes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Counts the positions of a pass, after all layers.
    pub fn advance(&mut self, positions: usize) {
        self.length += positions;
    }

    /// The cached keys and values, `[batch, key_value_heads, length, head_width]`, of each layer that caches some.
    pub fn cached_key_values(&self) -> Vec<[Tensor<4>; 2]> {
        let layers = self.layers.iter();
        let cached = layers.filter_map(|layer| layer.self_attention.as_ref());
        cached
            .filter_map(|cached| match cached {
                SelfAttentionCache::KeyValues(cached) => cached.used(),
                SelfAttentionCache::Segment(_) | SelfAttentionCache::State(_) => None,
            })
            .collect()
    }

    /// The keys and values of a layer: all, or those within `window` of the next query.
    ///
    /// # Panics
    /// When the layer caches something else.
    pub fn key_values(&mut self, layer: usize, window: Option<usize>) -> &mut KeyValueCache {
        let empty = || {
            SelfAttentionCache::KeyValues(KeyValueCache {
                buffers: None,
                start: 0,
                end: 0,
                evicted: 0,
                window,
            })
        };
        match self.self_attention(layer, empty) {
            SelfAttentionCache::KeyValues(cached) => cached,
            other => panic!("cache: layer {layer} caches no keys and values but {other:?}"),
        }
    }

    /// The last inputs of a layer, at most `max_length`.
    ///
    /// # Panics
    /// When the layer caches something else.
    pub fn segment(&mut self, layer: usize, max_length: usize) -> &mut SegmentCache {
        let empty = || {
            SelfAttentionCache::Segment(SegmentCache {
                inputs: None,
                processed: 0,
                returned: 0,
                max_length,
            })
        };
        match self.self_attention(layer, empty) {
            SelfAttentionCache::Segment(cached) => cached,
            other => panic!("cache: layer {layer} caches no segment but {other:?}"),
        }
    }

    /// The state of a layer of linear attention.
    ///
    /// # Panics
    /// When the layer caches something else.
    pub fn state(&mut self, layer: usize) -> &mut LinearAttentionCache {
        let empty = || SelfAttentionCache::State(LinearAttentionCache::default());
        match self.self_attention(layer, empty) {
            SelfAttentionCache::State(cached) => cached,
            other => panic!("cache: layer {layer} caches no state but {other:?}"),
        }
    }

    /// The keys and values of a layer's cross-attention, projected once.
    pub fn memory(
        &mut self,
        layer: usize,
        project: impl FnOnce() -> (Tensor<4>, Tensor<4>),
    ) -> (Tensor<4>, Tensor<4>) {
        self.layer(layer).memory.get_or_insert_with(project).clone()
    }

    fn self_attention(
        &mut self,
        layer: usize,
        empty: impl FnOnce() -> SelfAttentionCache,
    ) -> &mut SelfAttentionCache {
        self.layer(layer).self_attention.get_or_insert_with(empty)
    }

    fn layer(&mut self, layer: usize) -> &mut LayerCache {
        if self.layers.len() <= layer {
            self.layers.resize_with(layer + 1, LayerCache::default);
        }
        &mut self.layers[layer]
    }
}

/// The state of linear attention after all processed positions.
#[derive(Clone, Debug, Default)]
pub struct LinearAttentionCache {
    state: Option<LinearState>,
    processed: usize,
}

impl LinearAttentionCache {
    /// Takes the state out, and returns how many positions it sums up.
    pub fn take(&mut self) -> (Option<LinearState>, usize) {
        (self.state.take(), self.processed)
    }

    /// Puts back the state after `processed` positions.
    pub fn put(&mut self, state: LinearState, processed: usize) {
        *self = Self {
            state: Some(state),
            processed,
        };
    }
}

/// Keys and values, `[batch, key_value_heads, capacity, head_width]`, of which `start..end` are in use.
///
/// With a window, the buffers have twice its capacity: when they are full, the part still in the window moves to the front. So
/// the size is constant, and each position is moved once.
#[derive(Clone, Debug)]
pub struct KeyValueCache {
    buffers: Option<[Tensor<4>; 2]>,
    start: usize,
    end: usize,
    evicted: usize,
    window: Option<usize>,
}

impl KeyValueCache {
    /// Appends new positions, and returns all that their queries may attend to.
    pub fn append(&mut self, keys: Tensor<4>, values: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let added = keys.dims()[2];
        self.evict();
        let buffers = match self.buffers.take() {
            Some(buffers) => {
                let [key_buffer, value_buffer] = self.reserve(buffers, added);
                [
                    write(key_buffer, keys, self.end),
                    write(value_buffer, values, self.end),
                ]
            }
            None => [keys, values],
        };
        self.end += added;
        let used = |buffer: &Tensor<4>| buffer.clone().narrow(2, self.start, self.end - self.start);
        let all = (used(&buffers[0]), used(&buffers[1]));
        self.buffers = Some(buffers);
        all
    }

    /// The part of the buffers that is in use.
    fn used(&self) -> Option<[Tensor<4>; 2]> {
        let buffers = self.buffers.clone()?;
        Some(buffers.map(|buffer| buffer.narrow(2, self.start, self.end - self.start)))
    }

    /// How many of the earliest positions were missing from what the last [`KeyValueCache::append`] returned.
    pub fn evicted(&self) -> usize {
        self.evicted
    }

    /// Evicts what is outside of the next query's window.
    fn evict(&mut self) {
        let Some(window) = self.window else { return };
        let start = self.start.max(self.end.saturating_sub(window - 1));
        self.evicted += start - self.start;
        self.start = start;
    }

    /// The buffers, with capacity for `added` more positions.
    fn reserve(&mut self, buffers: [Tensor<4>; 2], added: usize) -> [Tensor<4>; 2] {
        let capacity = buffers[0].dims()[2];
        if self.end + added <= capacity {
            return buffers;
        }
        let (start, used) = (self.start, self.end - self.start);
        // Doubling, and moving only when the capacity is used up, make the amortized cost per position constant.
        let needed = self
            .window
            .map_or(usize::MAX, |window| window.saturating_mul(2));
        let capacity = needed.min(2 * capacity).max(used + added);
        (self.start, self.end) = (0, used);
        buffers.map(|buffer| {
            let [batch, heads, _, width] = buffer.dims();
            let free = Tensor::zeros([batch, heads, capacity - used, width], &buffer.device());
            // A window of one keeps nothing, and burn refuses an empty narrow.
            match used {
                0 => free,
                _ => Tensor::cat(vec![buffer.narrow(2, start, used), free], 2),
            }
        })
    }
}

/// The last inputs of a layer, `[batch, at most max_length, width]`, into which no gradient flows. Dai et al. 2019.
#[derive(Clone, Debug)]
pub struct SegmentCache {
    inputs: Option<Tensor<3>>,
    /// How many positions have been processed.
    processed: usize,
    /// How many of them the last call returned.
    returned: usize,
    max_length: usize,
}

impl SegmentCache {
    /// Starts with `initial`, if there is one and nothing has been processed.
    pub fn start_with(&mut self, initial: impl FnOnce() -> Option<Tensor<3>>) {
        if self.processed > 0 {
            return;
        }
        if let Some(initial) = initial() {
            self.processed = initial.dims()[1];
            self.inputs = Some(initial);
        }
    }

    /// Prepends the cached inputs to new positions `[batch, length, width]`, and caches the last of both.
    ///
    /// # Panics
    /// When batch or width differ from those of earlier positions.
    pub fn extend(&mut self, new: Tensor<3>) -> Tensor<3> {
        self.processed += new.dims()[1];
        let all = match self.inputs.take() {
            Some(inputs) => {
                let ([batch, _, width], [new_batch, _, new_width]) = (inputs.dims(), new.dims());
                assert!(
                    batch == new_batch && width == new_width,
                    "segment: new positions {:?} do not match those cached, {:?}",
                    new.dims(),
                    inputs.dims()
                );
                Tensor::cat(vec![inputs, new], 1)
            }
            None => new,
        };
        self.returned = all.dims()[1];
        let cached = self.returned.min(self.max_length);
        let last = all.clone().narrow(1, self.returned - cached, cached);
        self.inputs = Some(last.detach());
        all
    }

    /// How many of the earliest positions were missing from what the last [`SegmentCache::extend`] returned.
    pub fn evicted(&self) -> usize {
        self.processed - self.returned
    }
}

fn write(buffer: Tensor<4>, new: Tensor<4>, at: usize) -> Tensor<4> {
    let [batch, heads, added, width] = new.dims();
    buffer.slice_assign([0..batch, 0..heads, at..at + added, 0..width], new)
}
