//! The backward pass of the weights against the naive reference.

use super::*;

pub(super) fn check(case: &Case, [query, key]: [Heads; 2], options: &Options, expected: &[f64]) {
    let s = case.shape;
    let weight_gradients = values_from(expected.len(), 12);
    let expected_gradients = ExpectedGradients::new(|terms| {
        naive::weights_backward(
            &s,
            [query, key],
            expected,
            &weight_gradients,
            options,
            terms,
        )
    });
    let rows = |heads: Heads, count: usize, length: usize| {
        let size = [s.batch, count, length, s.head_width];
        to_heads_first(heads.data, heads.strides, size)
    };
    let queries = rows(query, s.heads, s.queries);
    let keys = rows(key, s.key_value_heads, s.keys);
    for &instructions in simd::available() {
        with_instructions(instructions, || {
            let mut computed = vec![f32::NAN; expected.len()];
            weights(&s, query, key, options, &mut computed);
            let [mut scores, mut dq, mut dk, mut dbias] = [
                computed.len(),
                queries.len(),
                keys.len(),
                expected_gradients.gradients.bias.len(),
            ]
            .map(|count| vec![f32::NAN; count]);
            let gradients = WeightGradients {
                scores: &mut scores,
                query: &mut dq,
                key: &mut dk,
                bias: Some(&mut dbias),
            };
            weights_backward(
                &s,
                [&queries, &keys],
                [&computed, &weight_gradients],
                options.scale,
                options.bias.as_ref(),
                gradients,
            );
            expected_gradients.assert_close("query of weights", case, &dq, |it| &it.query);
            expected_gradients.assert_close("key of weights", case, &dk, |it| &it.key);
            expected_gradients.assert_close("bias of weights", case, &dbias, |it| &it.bias);
        });
    }
}
