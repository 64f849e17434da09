//! Shapes that attentions refuse.

use std::sync::Arc;

use attentive_tensor::{
    BlockPattern, LinearState, Mask, PartialAttention, ScoreBias, Scores, Stabilizer,
    apply_weights, attention, attention_weights, attention_with_log_sum_exp, linear_attention,
    masked_softmax, merge_partial_attention, random_features,
};

use super::{Refuse, ones};

pub fn softmax(refuse: Refuse) {
    let plain = || Scores::new(Mask::none(), 1.0);
    // The batch, the heads, the width.
    for (key, fragments) in [
        ([1, 2, 5, 6], ["[2, 4, 3, 6]", "[1, 2, 5, 6]"]),
        ([2, 3, 5, 6], ["[2, 4, 3, 6]", "[2, 3, 5, 6]"]),
        ([2, 0, 5, 6], ["[2, 4, 3, 6]", "[2, 0, 5, 6]"]),
        ([2, 2, 5, 1], ["[2, 4, 3, 6]", "[2, 2, 5, 1]"]),
    ] {
        let query = || ones([2, 4, 3, 6]);
        refuse(
            "attention",
            fragments,
            Box::new(move || {
                attention(query(), ones(key), ones(key), &plain(), 0.0, None);
            }),
        );
        refuse(
            "attention_with_log_sum_exp",
            fragments,
            Box::new(move || {
                attention_with_log_sum_exp(query(), ones(key), ones(key), &plain(), 0.0, None);
            }),
        );
        refuse(
            "attention_weights",
            fragments,
            Box::new(move || drop(attention_weights(query(), ones(key), &plain()))),
        );
    }
    for (context, log_sum_exp, fragments) in [
        ([2, 4, 3, 1], [2, 4, 3], ["[2, 4, 3, 6]", "[2, 4, 3, 1]"]),
        ([2, 4, 3, 6], [2, 4, 1], ["[2, 4, 3, 6]", "[2, 4, 1]"]),
        ([1, 4, 3, 6], [1, 4, 3], ["[2, 4, 3, 6]", "[1, 4, 3, 6]"]),
    ] {
        refuse(
            "merge_partial_attention",
            fragments,
            Box::new(move || {
                let part = |context, log_sum_exp| PartialAttention {
                    context: ones(context),
                    log_sum_exp: ones(log_sum_exp),
                };
                let first = part([2, 4, 3, 6], [2, 4, 3]);
                merge_partial_attention(vec![first, part(context, log_sum_exp)]);
            }),
        );
    }
    for (value, fragments) in [
        ([1, 2, 5, 6], ["[2, 2, 5, 6]", "[1, 2, 5, 6]"]),
        ([2, 1, 5, 6], ["[2, 2, 5, 6]", "[2, 1, 5, 6]"]),
        ([2, 2, 1, 6], ["[2, 2, 5, 6]", "[2, 2, 1, 6]"]),
    ] {
        refuse(
            "attention",
            fragments,
            Box::new(move || {
                let (query, key) = (ones([2, 4, 3, 6]), ones([2, 2, 5, 6]));
                attention(query, key, ones(value), &plain(), 0.0, None);
            }),
        );
    }
    let biased = |bias: ScoreBias| Scores {
        bias: Some(bias),
        ..Scores::new(Mask::none(), 1.0)
    };
    let pairs = move |bias: [usize; 4]| biased(ScoreBias::Pairs(ones(bias)));
    let per_key = move |bias: [usize; 3]| biased(ScoreBias::Keys(ones(bias)));
    let distances = move |bias: [usize; 2]| biased(ScoreBias::Distances(ones(bias)));
    // The number of heads, of blocks of queries, and of blocks of keys that all of them see.
    let blocks = |heads: usize, rows: usize, columns: usize| {
        let rows = vec![vec![(0..columns).collect(); rows]; heads];
        let pattern = Arc::new(BlockPattern::new(2, rows));
        Scores::new(Mask::none().with_blocks(pattern), 1.0)
    };
    let padded = || Scores::new(Mask::none().with_keys(vec![0..5, 0..5, 0..5]), 1.0);
    let scores: [(Box<dyn Fn() -> Scores>, _); 13] = [
        (Box::new(move || blocks(2, 2, 1)), "2 heads of blocks of 2"),
        (Box::new(move || blocks(1, 3, 1)), "1 heads of blocks of 2"),
        (Box::new(move || blocks(1, 2, 4)), "1 heads of blocks of 2"),
        (Box::new(move || pairs([3, 4, 3, 5])), "[3, 4, 3, 5]"),
        (Box::new(move || pairs([2, 2, 3, 5])), "[2, 2, 3, 5]"),
        (Box::new(move || pairs([2, 4, 3, 1])), "[2, 4, 3, 1]"),
        (Box::new(move || per_key([3, 4, 5])), "[3, 4, 5]"),
        (Box::new(move || per_key([2, 2, 5])), "[2, 2, 5]"),
        (Box::new(move || per_key([2, 4, 1])), "[2, 4, 1]"),
        (Box::new(move || distances([2, 7])), "[2, 7]"),
        (Box::new(move || distances([4, 1])), "[4, 1]"),
        (Box::new(move || distances([4, 8])), "[4, 8]"),
        (Box::new(padded), "3 ranges"),
    ];
    for (scores, fragment) in scores {
        let scores = std::rc::Rc::new(scores);
        let same = scores.clone();
        let operands = || [ones([2, 4, 3, 6]), ones([2, 2, 5, 6])];
        refuse(
            "attention",
            [fragment, "[2, 4, 3, 6]"],
            Box::new(move || {
                let [query, key] = operands();
                attention(query, key.clone(), key, &scores(), 0.0, None);
            }),
        );
        refuse(
            "attention_weights",
            [fragment, "[2, 4, 3, 6]"],
            Box::new(move || {
                let [query, key] = operands();
                attention_weights(query, key, &same());
            }),
        );
    }
    for (ranges, fragment) in [(1, "1 ranges"), (3, "3 ranges")] {
        refuse(
            "masked_softmax",
            [fragment, "[2, 4, 3, 5]"],
            Box::new(move || {
                let mask = Mask::none().with_keys(vec![0..5; ranges]);
                masked_softmax(ones([2, 4, 3, 5]), &mask);
            }),
        );
    }
    for (value, fragments) in [
        ([1, 2, 5, 6], ["[2, 4, 3, 5]", "[1, 2, 5, 6]"]),
        ([2, 3, 5, 6], ["[2, 4, 3, 5]", "[2, 3, 5, 6]"]),
        ([2, 0, 5, 6], ["[2, 4, 3, 5]", "[2, 0, 5, 6]"]),
        ([2, 2, 1, 6], ["[2, 4, 3, 5]", "[2, 2, 1, 6]"]),
    ] {
        refuse(
            "apply_weights",
            fragments,
            Box::new(move || drop(apply_weights(ones([2, 4, 3, 5]), ones(value)))),
        );
    }
}

pub fn linear(refuse: Refuse) {
    type Sizes = [usize; 4];
    let right: [Sizes; 3] = [[2, 4, 3, 6], [2, 2, 3, 6], [2, 2, 3, 5]];
    let mut wrong =
        |sizes: [Sizes; 3], mask: Mask, state: Option<(Sizes, [usize; 3])>, fragments| {
            refuse(
                "linear_attention",
                fragments,
                Box::new(move || {
                    let [query, key, value] = sizes.map(ones);
                    let state = state.map(|(kv_sums, key_sums)| LinearState {
                        kv_sums: ones(kv_sums),
                        key_sums: ones(key_sums),
                    });
                    linear_attention(query, key, value, &mask, state);
                }),
            );
        };
    let [query, key, value] = right;
    for (key, fragments) in [
        ([1, 2, 3, 6], ["[2, 4, 3, 6]", "[1, 2, 3, 6]"]),
        ([2, 3, 3, 6], ["[2, 4, 3, 6]", "[2, 3, 3, 6]"]),
        ([2, 0, 3, 6], ["[2, 4, 3, 6]", "[2, 0, 3, 6]"]),
        ([2, 2, 3, 1], ["[2, 4, 3, 6]", "[2, 2, 3, 1]"]),
    ] {
        wrong([query, key, value], Mask::none(), None, fragments);
    }
    for (value, fragments) in [
        ([1, 2, 3, 5], ["[2, 2, 3, 6]", "[1, 2, 3, 5]"]),
        ([2, 1, 3, 5], ["[2, 2, 3, 6]", "[2, 1, 3, 5]"]),
        ([2, 2, 1, 5], ["[2, 2, 3, 6]", "[2, 2, 1, 5]"]),
    ] {
        wrong([query, key, value], Mask::none(), None, fragments);
    }
    let window = Mask::causal().with_window(7);
    wrong(right, window, None, ["window of 7", "not supported"]);
    let ranges = Mask::none().with_keys(vec![0..3; 3]);
    wrong(right, ranges, None, ["3 ranges", "[2, 4, 3, 6]"]);
    for (kv_sums, key_sums, fragments) in [
        ([2, 4, 6, 5], [2, 2, 6], ["[2, 4, 6, 5]", "[2, 2, 3, 6]"]),
        ([2, 2, 6, 1], [2, 2, 6], ["[2, 2, 6, 1]", "[2, 2, 3, 5]"]),
        ([2, 2, 6, 5], [1, 2, 6], ["[1, 2, 6]", "[2, 2, 3, 6]"]),
    ] {
        wrong(right, Mask::causal(), Some((kv_sums, key_sums)), fragments);
    }
    for (x, projection, fragments) in [
        ([2, 4, 3, 6], [7, 5], ["[2, 4, 3, 6]", "[7, 5]"]),
        ([2, 4, 3, 0], [7, 0], ["[2, 4, 3, 0]", "[7, 0]"]),
    ] {
        refuse(
            "random_features",
            fragments,
            Box::new(move || {
                random_features(ones(x), ones(projection), Stabilizer::Constant, 1e-4);
            }),
        );
    }
}
