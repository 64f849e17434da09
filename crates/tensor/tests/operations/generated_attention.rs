//! Generated cases of attention: sizes around its blocks of 96 queries by 256 keys, biases of each kind, dropout, and axes of
//! size zero.

use super::generate;
use crate::case::{Attention, Blocks, Case, Operation};

/// All but the empty ones.
pub fn cases() -> Vec<Case> {
    let mut cases = attentions();
    cases.extend(attentions_with_dropout());
    cases.extend(biases());
    cases.extend(log_sum_exps());
    cases.extend(blocks());
    cases
}

/// `[batch, heads, key_value_heads, queries, keys, head_width, value_width]`
type Sizes = [usize; 7];

/// Blocks are 96 queries by 256 keys.
fn attentions() -> Vec<Case> {
    let plain = Attention {
        scale: 0.4,
        ..Attention::default()
    };
    let causal = Attention {
        causal: true,
        ..plain.clone()
    };
    let window = Attention {
        window: Some(50),
        ..plain.clone()
    };
    let narrow = Attention {
        window: Some(3),
        ..plain.clone()
    };
    let both = Attention {
        causal: true,
        ..window.clone()
    };
    let padded = Attention {
        keys: Some(vec![[0, 97], [128, 130]]),
        ..causal.clone()
    };
    vec![
        attend("47 by 127", &plain, [1, 1, 1, 47, 127, 3, 5], None),
        attend("48 by 128", &plain, [1, 2, 1, 48, 128, 3, 2], None),
        attend("49 by 129", &plain, [1, 1, 1, 49, 129, 5, 3], None),
        attend("97 by 257", &plain, [1, 1, 1, 97, 257, 2, 3], None),
        attend("96 causal", &causal, [1, 2, 2, 96, 96, 3, 3], None),
        attend("131 causal", &causal, [1, 2, 1, 131, 131, 3, 3], None),
        attend("257 keys", &causal, [1, 1, 1, 3, 257, 7, 1], None),
        attend("window", &window, [1, 1, 1, 131, 131, 3, 2], None),
        attend("padded", &padded, [2, 1, 1, 49, 130, 2, 3], None),
        // Queries before the first key.
        attend("none masked, few keys", &plain, [1, 1, 1, 7, 3, 2, 3], None),
        attend("causal, few keys", &causal, [1, 2, 1, 7, 3, 2, 3], None),
        attend("window, few keys", &narrow, [1, 2, 1, 9, 3, 2, 3], None),
        attend(
            "window, fewer keys",
            &window,
            [1, 1, 1, 131, 65, 2, 3],
            None,
        ),
        attend(
            "causal window, few keys",
            &both,
            [1, 1, 1, 70, 60, 2, 3],
            None,
        ),
        attend(
            "with a bias",
            &causal,
            [2, 2, 1, 49, 129, 2, 2],
            Some(Bias::Pairs([1, 2])),
        ),
        attend("wide heads", &plain, [1, 1, 1, 7, 5, 129, 67], None),
    ]
}

fn attentions_with_dropout() -> Vec<Case> {
    let dropped = |dropout, causal| Attention {
        scale: 0.4,
        causal,
        dropout,
        ..Attention::default()
    };
    let padded = Attention {
        keys: Some(vec![[0, 7], [5, 9]]),
        window: Some(4),
        ..dropped(0.3, true)
    };
    vec![
        attend(
            "one weight dropped or not",
            &dropped(0.5, false),
            [1, 1, 1, 1, 1, 1, 1],
            None,
        ),
        attend(
            "dropout",
            &dropped(0.3, false),
            [2, 3, 3, 7, 11, 5, 3],
            None,
        ),
        attend(
            "causal dropout",
            &dropped(0.1, true),
            [2, 4, 2, 9, 9, 4, 4],
            None,
        ),
        attend(
            "dropout under all masks",
            &padded,
            [2, 4, 2, 5, 9, 3, 3],
            None,
        ),
        attend(
            "dropout with a bias",
            &dropped(0.5, true),
            [2, 2, 2, 7, 7, 3, 3],
            Some(Bias::Pairs([2, 1])),
        ),
        attend(
            "dropout past a block",
            &dropped(0.2, true),
            [1, 2, 1, 49, 129, 3, 2],
            None,
        ),
    ]
}

/// The kind of a bias, its batch and its heads. (All sequences share one per distance.)
#[derive(Clone, Copy, Debug)]
enum Bias {
    Pairs([usize; 2]),
    Keys([usize; 2]),
    Distances(usize),
}

impl Bias {
    fn shape(self, queries: usize, keys: usize) -> Vec<usize> {
        match self {
            Self::Pairs([batch, heads]) => vec![batch, heads, queries, keys],
            Self::Keys([batch, heads]) => vec![batch, heads, keys],
            Self::Distances(heads) => vec![heads, (queries + keys).saturating_sub(1)],
        }
    }
}

/// Biases per key and per distance, over blocks and under masks.
fn biases() -> Vec<Case> {
    let settings = |causal, window, keys: Option<&[[usize; 2]]>, dropout| Attention {
        scale: 0.4,
        causal,
        window,
        keys: keys.map(<[_]>::to_vec),
        blocks: None,
        dropout,
    };
    let plain = settings(false, None, None, 0.0);
    let causal = settings(true, None, None, 0.0);
    let masked = settings(true, Some(50), Some(&[[0, 97], [60, 130]]), 0.0);
    let dropped = settings(true, None, None, 0.3);
    let mut cases = Vec::new();
    for (name, settings, sizes) in [
        ("two blocks", &plain, [1, 2, 1, 49, 129, 2, 3]),
        ("more queries", &causal, [2, 2, 2, 97, 5, 3, 2]),
        ("masks", &masked, [2, 2, 1, 53, 130, 2, 2]),
        ("dropout", &dropped, [2, 4, 2, 7, 9, 3, 3]),
        ("few queries", &causal, [2, 2, 1, 3, 257, 5, 3]),
    ] {
        let [batch, heads, ..] = sizes;
        for bias in [
            Bias::Keys([batch, heads]),
            Bias::Keys([1, 1]),
            Bias::Distances(heads),
            Bias::Distances(1),
        ] {
            let name = format!("{name}, {bias:?}");
            cases.push(attend(&name, settings, sizes, Some(bias)));
        }
    }
    cases
}

fn attend(name: &str, settings: &Attention, sizes: Sizes, bias: Option<Bias>) -> Case {
    let [
        batch,
        heads,
        key_value_heads,
        queries,
        keys,
        head_width,
        value_width,
    ] = sizes;
    let query = [batch, heads, queries, head_width];
    let key = [batch, key_value_heads, keys, head_width];
    let value = [batch, key_value_heads, keys, value_width];
    let bias = bias.map(|bias| bias.shape(queries, keys));
    let mut inputs: Vec<(&str, &[usize])> =
        vec![("query", &query), ("key", &key), ("value", &value)];
    inputs.extend(bias.iter().map(|bias| ("bias", bias.as_slice())));
    let operation = Operation::Attention(settings.clone());
    generate(&format!("attention, {name}"), operation, &inputs)
}

/// BigBird-like patterns: the first block, neighbouring blocks, and a random one.
fn blocks() -> Vec<Case> {
    let settings = |block: usize, queries: usize, keys: usize, heads: usize, causal, dropout| {
        let (rows, columns) = (queries.div_ceil(block), keys.div_ceil(block));
        let sees = |head: usize, row: usize, column: usize| {
            let random = (row * 7919 + head * 31 + 5) % columns;
            column == 0 || row.abs_diff(column) < 2 || column == random
        };
        let row = |head, row| (0..columns).filter(|it| sees(head, row, *it)).collect();
        let head = |head| (0..rows).map(|it| row(head, it)).collect();
        Attention {
            scale: 0.4,
            causal,
            dropout,
            blocks: Some(Blocks {
                block,
                rows: (0..heads).map(head).collect(),
            }),
            ..Attention::default()
        }
    };
    vec![
        attend(
            "blocks of 7",
            &settings(7, 101, 101, 1, false, 0.0),
            [1, 2, 1, 101, 101, 2, 3],
            None,
        ),
        attend(
            "blocks of 64",
            &settings(64, 150, 150, 2, true, 0.0),
            [1, 2, 2, 150, 150, 2, 2],
            None,
        ),
        attend(
            "blocks of one",
            &settings(1, 17, 23, 2, false, 0.0),
            [2, 2, 1, 17, 23, 3, 2],
            Some(Bias::Keys([2, 1])),
        ),
        attend(
            "blocks of 5 for few queries, with dropout",
            &settings(5, 4, 131, 4, false, 0.3),
            [1, 4, 2, 4, 131, 3, 3],
            None,
        ),
        attend(
            "a block larger than all",
            &settings(200, 9, 7, 1, true, 0.0),
            [1, 1, 1, 9, 7, 3, 3],
            Some(Bias::Distances(1)),
        ),
    ]
}

/// The same attention, with the log-sum-exp as an output too.
fn with_log_sum_exp(case: Case) -> Case {
    let Operation::Attention(settings) = case.operation else {
        panic!("{} is no attention", case.name);
    };
    let inputs: Vec<(&str, &[usize])> = case
        .inputs
        .iter()
        .map(|(name, array)| (name.as_str(), array.shape.as_slice()))
        .collect();
    // The name seeds the values, so it stays.
    let name = format!("{} with log-sums", case.name);
    generate(&name, Operation::AttentionWithLogSumExp(settings), &inputs)
}

fn log_sum_exps() -> Vec<Case> {
    let settings = |causal, dropout| Attention {
        scale: 0.4,
        causal,
        dropout,
        ..Attention::default()
    };
    let bias = Some(Bias::Distances(2));
    let cases = [
        attend("131", &settings(true, 0.0), [1, 2, 1, 131, 131, 2, 2], None),
        attend("1 by 3", &settings(false, 0.0), [2, 4, 2, 1, 3, 2, 3], None),
        attend("9", &settings(true, 0.3), [2, 2, 2, 9, 9, 3, 3], bias),
    ];
    cases.map(with_log_sum_exp).into()
}

/// Attention with each axis in turn of size zero, and the shape of its output.
pub fn empty() -> Vec<(Case, Vec<usize>)> {
    let mut cases = Vec::new();
    let axes = [
        (0, "batch"),
        (1, "heads"),
        (3, "queries"),
        (4, "keys"),
        (5, "head_width"),
        (6, "value_width"),
    ];
    for (index, axis) in axes {
        let mut sizes: Sizes = [2, 4, 2, 3, 5, 6, 7];
        sizes[index] = 0;
        let [
            batch,
            heads,
            key_value_heads,
            queries,
            keys,
            head_width,
            value_width,
        ] = sizes;
        let (query, key) = (
            [batch, heads, queries, head_width],
            [batch, key_value_heads, keys, head_width],
        );
        let (value, weights) = (
            [batch, key_value_heads, keys, value_width],
            [batch, heads, queries, keys],
        );
        let context = vec![batch, heads, queries, value_width];
        for (causal, window, padded) in [
            (false, None, false),
            (true, None, false),
            (true, Some(2), false),
            (false, Some(2), true),
        ] {
            let settings = Attention {
                scale: 0.4,
                causal,
                window,
                keys: padded.then(|| vec![[0, keys]; batch]),
                ..Attention::default()
            };
            let bias = padded.then_some(Bias::Pairs([1, heads]));
            let name = format!("no {axis}, {settings:?}");
            cases.push((attend(&name, &settings, sizes, bias), context.clone()));
            for bias in [Bias::Keys([batch, 1]), Bias::Distances(heads)] {
                let name = format!("no {axis}, {settings:?}, {bias:?}");
                let case = attend(&name, &settings, sizes, Some(bias));
                cases.push((case, context.clone()));
            }
            // Without keys the log-sum-exp is minus infinity, and the loss would not be finite.
            if axis != "keys" && !causal && window.is_none() {
                let case = attend(&name, &settings, sizes, bias);
                cases.push((with_log_sum_exp(case), vec![batch, heads, queries]));
            }
            let masked = Attention {
                scale: 1.0,
                ..settings.clone()
            };
            let operation = Operation::MaskedSoftmax(masked);
            let inputs: [(&str, &[usize]); 1] = [("scores", &weights)];
            let case = generate(&format!("masked softmax, {name}"), operation, &inputs);
            cases.push((case, weights.to_vec()));
            let operation = Operation::AttentionWeights(settings);
            let name = format!("attention weights, {name}");
            let inputs: [(&str, &[usize]); 2] = [("query", &query), ("key", &key)];
            cases.push((generate(&name, operation, &inputs), weights.to_vec()));
        }
        let inputs: [(&str, &[usize]); 2] = [("weights", &weights), ("value", &value)];
        let name = format!("weights applied, no {axis}");
        cases.push((generate(&name, Operation::ApplyWeights, &inputs), context));
    }
    cases
}
