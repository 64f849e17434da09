//! Linear attention of features, wherever their rows stand.

use std::ops::Range;

use attentive_kernels::linear_attention::{self as kernels, Attended, Options, Order, State};
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::heads::{heads, length_first, operand_sizes, rows_dense, shape};
use super::{buffer, dense, is_present, keep, numbers, record, recycle, tensor};

type Tracked<C> = FloatTensor<Autodiff<Flex, C>>;

/// All that decides a linear attention besides its operands.
#[derive(Clone, Debug)]
pub(crate) struct LinearOptions {
    pub causal: bool,
    pub keys: Option<Vec<Range<usize>>>,
}

impl LinearOptions {
    fn for_kernel<'a>(&'a self, start: &'a Start) -> Options<'a> {
        Options {
            order: match self.causal {
                true => Order::Causal,
                false => Order::Any,
            },
            keys: self.keys.as_deref(),
            start: is_present(&start.totals).then(|| State {
                sums: numbers(&start.sums),
                totals: numbers(&start.totals),
            }),
        }
    }
}

/// The starting state, dense; absent where there is none.
#[derive(Clone, Debug)]
pub(super) struct Start {
    sums: FlexTensor,
    totals: FlexTensor,
}

impl Start {
    pub fn new(sums: &FlexTensor, totals: &FlexTensor) -> Self {
        Self {
            sums: dense(sums),
            totals: dense(totals),
        }
    }
}

/// The results, and what the backward pass needs of each row.
pub(super) struct Passed {
    pub context: FlexTensor,
    pub sums: FlexTensor,
    pub totals: FlexTensor,
    pub denominators: Vec<f32>,
}

pub(super) fn forward(
    operands: &[FlexTensor; 3],
    start: &Start,
    options: &LinearOptions,
) -> Passed {
    let operands = operands.each_ref().map(rows_dense);
    let shape = shape(operands.each_ref());
    let state = [shape.batch, shape.key_value_heads, shape.head_width];
    let count = state.iter().product::<usize>();
    let mut denominators = buffer(shape.batch * shape.heads * shape.queries);
    let mut context = buffer(denominators.len() * shape.value_width);
    let (mut sums, mut totals) = (buffer(count * shape.value_width), buffer(count));
    kernels::forward(
        &shape,
        operands.each_ref().map(heads),
        &options.for_kernel(start),
        Attended {
            context: &mut context,
            denominators: &mut denominators,
            sums: &mut sums,
            totals: &mut totals,
        },
    );
    let [batch, shared, features] = state;
    Passed {
        context: length_first(
            context,
            [shape.batch, shape.heads, shape.queries, shape.value_width],
        ),
        sums: tensor(sums, [batch, shared, features, shape.value_width]),
        totals: tensor(totals, state),
        denominators,
    }
}

/// Context, and the state's sums and totals, which carry no gradient.
pub(super) fn tracked<C: CheckpointStrategy>(
    query: Tracked<C>,
    key: Tracked<C>,
    value: Tracked<C>,
    [sums, totals]: [Tracked<C>; 2],
    options: LinearOptions,
) -> (Tracked<C>, FlexTensor, FlexTensor) {
    let (query, query_node) = query.into_parts();
    let (key, key_node) = key.into_parts();
    let (value, value_node) = value.into_parts();
    let start = Start::new(sums.primitive(), totals.primitive());
    let operands = [&query, &key, &value].map(rows_dense);
    let passed = forward(&operands, &start, &options);
    let context = passed.context.clone();
    let state = || Saved {
        operands,
        start,
        context,
        denominators: passed.denominators,
        options,
    };
    let nodes = [query_node, key_node, value_node];
    let context = record::<C, _, 3>(LinearAttention, nodes, passed.context, state);
    (context, passed.sums, passed.totals)
}

#[derive(Debug)]
struct LinearAttention;

#[derive(Clone, Debug)]
struct Saved {
    operands: [FlexTensor; 3],
    start: Start,
    context: FlexTensor,
    denominators: Vec<f32>,
    options: LinearOptions,
}

impl Backward<Flex, 3> for LinearAttention {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let saved = ops.state;
        let upstream = rows_dense(&gradients.consume::<Flex>(&ops.node));
        let shape = shape(saved.operands.each_ref());
        let sizes = operand_sizes(&shape);
        let [mut query, mut key, mut value] = sizes.map(|it| buffer(it.iter().product()));
        kernels::backward(
            &shape,
            saved.operands.each_ref().map(heads),
            [heads(&saved.context), heads(&upstream)],
            &saved.denominators,
            &saved.options.for_kernel(&saved.start),
            kernels::Gradients {
                query: &mut query,
                key: &mut key,
                value: &mut value,
            },
        );
        let slopes = [query, key, value].into_iter().zip(sizes);
        for (parent, (slopes, sizes)) in ops.parents.iter().zip(slopes) {
            match parent {
                Some(parent) => {
                    gradients.register::<Flex>(parent.id, length_first(slopes, sizes));
                }
                None => keep(slopes),
            }
        }
        recycle(saved.operands);
        recycle([saved.context, upstream]);
        keep(saved.denominators);
    }
}
