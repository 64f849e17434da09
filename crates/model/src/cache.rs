//! What the layers keep of earlier positions, so that decoding computes each position once. What that is depends on the
//! attention: growing keys and values, those within a window, the inputs of the last segment, or the other sequence's keys
//! and values.

mod select;

use attentive_tensor::LinearState;
use burn::tensor::Tensor;

/// What all layers keep.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    layers: Vec<Layer>,
    length: usize,
    /// Which row of the batch at first each row was, and so whose memory it looks at; empty until rows are chosen anew.
    looked_at: Vec<usize>,
}

/// What one layer keeps, of its own sequence and of the one that it looks at.
#[derive(Clone, Debug, Default)]
struct Layer {
    own: Option<Kept>,
    memory: Option<(Tensor<4>, Tensor<4>)>,
}

/// What a layer keeps of its own sequence.
#[derive(Clone, Debug)]
enum Kept {
    KeyValues(KeyValues),
    Segment(Segment),
    State(State),
}

impl Cache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many positions have passed, between passes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Counts the positions of a pass, after all layers have had it.
    pub fn advance(&mut self, positions: usize) {
        self.length += positions;
    }

    /// The keys and values that each layer holds, `[batch, key_value_heads, length, head_width]`, of those that hold some.
    pub fn held(&self) -> Vec<[Tensor<4>; 2]> {
        let kept = self.layers.iter().filter_map(|layer| layer.own.as_ref());
        kept.filter_map(|kept| match kept {
            Kept::KeyValues(held) => held.used(),
            Kept::Segment(_) | Kept::State(_) => None,
        })
        .collect()
    }

    /// The keys and values of a layer: all, or those less than `reach` positions before the next query.
    ///
    /// # Panics
    /// When the layer keeps something else.
    pub fn key_values(&mut self, layer: usize, reach: Option<usize>) -> &mut KeyValues {
        let kept = self.layer(layer).own.get_or_insert_with(|| {
            Kept::KeyValues(KeyValues {
                held: None,
                start: 0,
                end: 0,
                dropped: 0,
                reach,
            })
        });
        match kept {
            Kept::KeyValues(held) => held,
            other => panic!("cache: layer {layer} keeps no keys and values but {other:?}"),
        }
    }

    /// The last inputs of a layer, at most `longest`.
    ///
    /// # Panics
    /// When the layer keeps something else.
    pub fn segment(&mut self, layer: usize, longest: usize) -> &mut Segment {
        let kept = self.layer(layer).own.get_or_insert_with(|| {
            Kept::Segment(Segment {
                held: None,
                passed: 0,
                given: 0,
                longest,
            })
        });
        match kept {
            Kept::Segment(held) => held,
            other => panic!("cache: layer {layer} keeps no segment but {other:?}"),
        }
    }

    /// The state of a layer of linear attention.
    ///
    /// # Panics
    /// When the layer keeps something else.
    pub fn state(&mut self, layer: usize) -> &mut State {
        let empty = || Kept::State(State::default());
        match self.layer(layer).own.get_or_insert_with(empty) {
            Kept::State(held) => held,
            other => panic!("cache: layer {layer} keeps no state but {other:?}"),
        }
    }

    /// The keys and values of the sequence that a layer looks at, projected once.
    pub fn memory(
        &mut self,
        layer: usize,
        project: impl FnOnce() -> (Tensor<4>, Tensor<4>),
    ) -> (Tensor<4>, Tensor<4>) {
        self.layer(layer).memory.get_or_insert_with(project).clone()
    }

    fn layer(&mut self, layer: usize) -> &mut Layer {
        if self.layers.len() <= layer {
            self.layers.resize_with(layer + 1, Layer::default);
        }
        &mut self.layers[layer]
    }
}

/// The sums of linear attention over all positions that have passed.
#[derive(Clone, Debug, Default)]
pub struct State {
    held: Option<LinearState>,
    passed: usize,
}

impl State {
    /// The sums, to be put back, and over how many positions they are.
    pub fn taken(&mut self) -> (Option<LinearState>, usize) {
        (self.held.take(), self.passed)
    }

    /// The sums over so many positions.
    pub fn put(&mut self, state: LinearState, passed: usize) {
        *self = Self {
            held: Some(state),
            passed,
        };
    }
}

/// Keys and values, `[batch, key_value_heads, capacity, head_width]`, of which `start..end` are in use.
///
/// With a reach, the buffer has twice the room: when it is full, the part still in reach moves to its front. So decoding
/// keeps a constant size, and moves each position once.
#[derive(Clone, Debug)]
pub struct KeyValues {
    held: Option<[Tensor<4>; 2]>,
    start: usize,
    end: usize,
    dropped: usize,
    reach: Option<usize>,
}

impl KeyValues {
    /// Adds new positions and gives all that their queries may reach.
    pub fn append(&mut self, keys: Tensor<4>, values: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let added = keys.dims()[2];
        self.drop_unreachable();
        let buffers = match self.held.take() {
            Some(buffers) => {
                let [held_keys, held_values] = self.with_room(buffers, added);
                [
                    placed(held_keys, keys, self.end),
                    placed(held_values, values, self.end),
                ]
            }
            None => [keys, values],
        };
        self.end += added;
        let used = |buffer: &Tensor<4>| buffer.clone().narrow(2, self.start, self.end - self.start);
        let all = (used(&buffers[0]), used(&buffers[1]));
        self.held = Some(buffers);
        all
    }

    /// What is in use of the buffers.
    fn used(&self) -> Option<[Tensor<4>; 2]> {
        let buffers = self.held.clone()?;
        Some(buffers.map(|buffer| buffer.narrow(2, self.start, self.end - self.start)))
    }

    /// How many of the earliest positions were not among those that the last [`KeyValues::append`] gave.
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// Forgets what the next query cannot reach.
    fn drop_unreachable(&mut self) {
        let Some(reach) = self.reach else { return };
        let start = self.start.max(self.end.saturating_sub(reach - 1));
        self.dropped += start - self.start;
        self.start = start;
    }

    /// The buffers, with room for so many more positions.
    fn with_room(&mut self, buffers: [Tensor<4>; 2], added: usize) -> [Tensor<4>; 2] {
        let capacity = buffers[0].dims()[2];
        if self.end + added <= capacity {
            return buffers;
        }
        let (start, used) = (self.start, self.end - self.start);
        // Doubling makes the cost of growing constant per position, and so does moving only when the room is used up.
        let wanted = self
            .reach
            .map_or(usize::MAX, |reach| reach.saturating_mul(2));
        let capacity = wanted.min(2 * capacity).max(used + added);
        (self.start, self.end) = (0, used);
        buffers.map(|buffer| {
            let [batch, heads, _, width] = buffer.dims();
            let room = Tensor::zeros([batch, heads, capacity - used, width], &buffer.device());
            // A window of one keeps nothing, and burn refuses to take nothing.
            match used {
                0 => room,
                _ => Tensor::cat(vec![buffer.narrow(2, start, used), room], 2),
            }
        })
    }
}

/// The last inputs of a layer, `[batch, at most longest, width]`, into which no gradient flows. Dai et al. 2019.
#[derive(Clone, Debug)]
pub struct Segment {
    held: Option<Tensor<3>>,
    /// How many positions it has seen.
    passed: usize,
    /// How many of them the last call gave.
    given: usize,
    longest: usize,
}

impl Segment {
    /// Holds `first` before anything has passed, if there is something.
    pub fn start_with(&mut self, first: impl FnOnce() -> Option<Tensor<3>>) {
        if self.passed > 0 {
            return;
        }
        if let Some(first) = first() {
            self.passed = first.dims()[1];
            self.held = Some(first);
        }
    }

    /// Puts what is held in front of new positions `[batch, length, width]`, and holds the last of both.
    ///
    /// # Panics
    /// When batch or width differ from those of earlier positions.
    pub fn extend(&mut self, new: Tensor<3>) -> Tensor<3> {
        self.passed += new.dims()[1];
        let all = match self.held.take() {
            Some(held) => {
                let ([batch, _, width], [new_batch, _, new_width]) = (held.dims(), new.dims());
                assert!(
                    batch == new_batch && width == new_width,
                    "segment: new positions {:?} do not fit those held, {:?}",
                    new.dims(),
                    held.dims()
                );
                Tensor::cat(vec![held, new], 1)
            }
            None => new,
        };
        self.given = all.dims()[1];
        let held = self.given.min(self.longest);
        let last = all.clone().narrow(1, self.given - held, held);
        self.held = Some(last.detach());
        all
    }

    /// How many of the earliest positions were not among those that the last [`Segment::extend`] gave.
    pub fn dropped(&self) -> usize {
        self.passed - self.given
    }
}

fn placed(buffer: Tensor<4>, new: Tensor<4>, at: usize) -> Tensor<4> {
    let [batch, heads, added, width] = new.dims();
    buffer.slice_assign([0..batch, 0..heads, at..at + added, 0..width], new)
}
