//! The backward pass of the weights against its naive twin.

use super::*;

pub(super) fn check(case: &Case, [query, key]: [Heads; 2], options: &Options, expected: &[f64]) {
    let s = case.shape;
    let upstream = numbers(expected.len(), 12);
    let slopes = Slopes::new(|terms| {
        naive::weights_backward(&s, [query, key], expected, &upstream, options, terms)
    });
    let rows = |heads: Heads, count: usize, length: usize| {
        let size = [s.batch, count, length, s.head_width];
        gathered(heads.data, heads.strides, size)
    };
    let queries = rows(query, s.heads, s.queries);
    let keys = rows(key, s.key_value_heads, s.keys);
    for &instructions in simd::available() {
        with_instructions(instructions, || {
            let mut made = vec![f32::NAN; expected.len()];
            weights(&s, query, key, options, &mut made);
            let [mut scores, mut dq, mut dk, mut dbias] = [
                made.len(),
                queries.len(),
                keys.len(),
                slopes.sums.bias.len(),
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
                [&made, &upstream],
                options.scale,
                options.bias.as_ref(),
                gradients,
            );
            slopes.assert_close("query of weights", case, &dq, |it| &it.query);
            slopes.assert_close("key of weights", case, &dk, |it| &it.key);
            slopes.assert_close("bias of weights", case, &dbias, |it| &it.bias);
        });
    }
}
