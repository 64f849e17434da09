//! Linear attention of features with any strides.

use std::ops::Range;

use attentive_kernels::linear_attention::{self as kernels, ForwardOutputs, Options, Order, State};
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::heads::{contiguous_rows, heads, length_first, operand_sizes, shape};
use super::{buffer, contiguous, data, is_present, record, recycle, release, tensor};

type Tracked<C> = FloatTensor<Autodiff<Flex, C>>;

/// The settings of a linear attention.
#[derive(Clone, Debug)]
pub(crate) struct LinearOptions {
    pub causal: bool,
    pub keys: Option<Vec<Range<usize>>>,
}

impl LinearOptions {
    fn for_kernel<'a>(&'a self, initial_state: &'a InitialState) -> Options<'a> {
        Options {
            order: match self.causal {
                true => Order::Causal,
                false => Order::Bidirectional,
            },
            keys: self.keys.as_deref(),
            initial_state: is_present(&initial_state.key_sums).then(|| State {
                kv_sums: data(&initial_state.kv_sums),
                key_sums: data(&initial_state.key_sums),
            }),
        }
    }
}

/// The initial state, contiguous; absent where there is none.
#[derive(Clone, Debug)]
pub(super) struct InitialState {
    kv_sums: FlexTensor,
    key_sums: FlexTensor,
}

impl InitialState {
    pub fn new(kv_sums: &FlexTensor, key_sums: &FlexTensor) -> Self {
        Self {
            kv_sums: contiguous(kv_sums),
            key_sums: contiguous(key_sums),
        }
    }
}

/// Context and final state, and the row statistic that the backward pass needs.
pub(super) struct LinearAttentionForward {
    pub context: FlexTensor,
    pub kv_sums: FlexTensor,
    pub key_sums: FlexTensor,
    pub denominators: Vec<f32>,
}

pub(super) fn forward(
    operands: &[FlexTensor; 3],
    initial_state: &InitialState,
    options: &LinearOptions,
) -> LinearAttentionForward {
    let operands = operands.each_ref().map(contiguous_rows);
    let shape = shape(operands.each_ref());
    let state = [shape.batch, shape.key_value_heads, shape.head_width];
    let count = state.iter().product::<usize>();
    let mut denominators = buffer(shape.batch * shape.heads * shape.queries);
    let mut context = buffer(denominators.len() * shape.value_width);
    let (mut kv_sums, mut key_sums) = (buffer(count * shape.value_width), buffer(count));
    kernels::forward(
        &shape,
        operands.each_ref().map(heads),
        &options.for_kernel(initial_state),
        ForwardOutputs {
            context: &mut context,
            denominators: &mut denominators,
            kv_sums: &mut kv_sums,
            key_sums: &mut key_sums,
        },
    );
    let [batch, key_value_heads, features] = state;
    LinearAttentionForward {
        context: length_first(
            context,
            [shape.batch, shape.heads, shape.queries, shape.value_width],
        ),
        kv_sums: tensor(
            kv_sums,
            [batch, key_value_heads, features, shape.value_width],
        ),
        key_sums: tensor(key_sums, state),
        denominators,
    }
}

/// The context, and the sums of the final state, which have no gradient.
pub(super) fn tracked<C: CheckpointStrategy>(
    query: Tracked<C>,
    key: Tracked<C>,
    value: Tracked<C>,
    [kv_sums, key_sums]: [Tracked<C>; 2],
    options: LinearOptions,
) -> (Tracked<C>, FlexTensor, FlexTensor) {
    let (query, query_node) = query.into_parts();
    let (key, key_node) = key.into_parts();
    let (value, value_node) = value.into_parts();
    let initial_state = InitialState::new(kv_sums.primitive(), key_sums.primitive());
    let operands = [&query, &key, &value].map(contiguous_rows);
    let output = forward(&operands, &initial_state, &options);
    let context = output.context.clone();
    let state = || SavedLinearAttention {
        operands,
        initial_state,
        context,
        denominators: output.denominators,
        options,
    };
    let nodes = [query_node, key_node, value_node];
    let context = record::<C, _, 3>(LinearAttentionBackward, nodes, output.context, state);
    (context, output.kv_sums, output.key_sums)
}

#[derive(Debug)]
struct LinearAttentionBackward;

#[derive(Clone, Debug)]
struct SavedLinearAttention {
    operands: [FlexTensor; 3],
    initial_state: InitialState,
    context: FlexTensor,
    denominators: Vec<f32>,
    options: LinearOptions,
}

impl Backward<Flex, 3> for LinearAttentionBackward {
    type State = SavedLinearAttention;

    fn backward(
        self,
        ops: Ops<SavedLinearAttention, 3>,
        gradients: &mut Gradients,
        _: &mut Checkpointer,
    ) {
        let saved = ops.state;
        let dcontext = contiguous_rows(&gradients.consume::<Flex>(&ops.node));
        let shape = shape(saved.operands.each_ref());
        let sizes = operand_sizes(&shape);
        let [mut query, mut key, mut value] = sizes.map(|it| buffer(it.iter().product()));
        kernels::backward(
            &shape,
            saved.operands.each_ref().map(heads),
            [heads(&saved.context), heads(&dcontext)],
            &saved.denominators,
            &saved.options.for_kernel(&saved.initial_state),
            kernels::Gradients {
                query: &mut query,
                key: &mut key,
                value: &mut value,
            },
        );
        let input_gradients = [query, key, value].into_iter().zip(sizes);
        for (parent, (gradient, sizes)) in ops.parents.iter().zip(input_gradients) {
            match parent {
                Some(parent) => {
                    gradients.register::<Flex>(parent.id, length_first(gradient, sizes));
                }
                None => release(gradient),
            }
        }
        recycle(saved.operands);
        recycle([saved.context, dcontext]);
        release(saved.denominators);
    }
}
