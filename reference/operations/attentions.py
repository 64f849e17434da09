"""Cases of softmax attention: its context, log-sum-exp and weights, and masks. (Names seed the inputs, so old ones stay.)"""

from collections.abc import Iterator

import torch

from case import MINUS_INFINITY, Case, draw, softmax
from heads import Heads


def attentions() -> Iterator[Case]:
    for name, heads in {
        "one_number": Heads(1, 1, heads=1, key_value_heads=1, width=1, value_width=1),
        "plain": Heads(7, 7, batch=2, heads=3, key_value_heads=3, width=5, value_width=5),
        "causal": Heads(9, 9, batch=2, causal=True),
        "grouped": Heads(5, 5, batch=2, heads=6, causal=True),
        "one_key_value_head": Heads(7, 7, heads=5, key_value_heads=1),
        "narrow_values": Heads(6, 6, width=8, value_width=3, causal=True),
        "wide_values": Heads(6, 6, key_value_heads=1, width=3, value_width=11),
        "odd_widths": Heads(5, 5, heads=1, key_value_heads=1, width=17, value_width=13, scale=0.25),
        "past_vectors": Heads(3, 5, heads=1, key_value_heads=1, width=33, value_width=65, scale=0.17),
        "more_keys": Heads(5, 11, batch=2),
        "more_queries": Heads(11, 3, heads=4),
        "causal_continued": Heads(3, 11, heads=4, causal=True),
        "one_query": Heads(1, 13, batch=2, heads=4, causal=True),
        "one_key": Heads(5, 1),
        "padded": Heads(7, 7, batch=3, ranges=[[0, 7], [0, 4], [3, 6]]),
        "causal_padded": Heads(9, 9, batch=2, heads=4, causal=True, ranges=[[0, 5], [4, 9]]),
        "nothing_but_padding": Heads(3, 5, batch=2, ranges=[[2, 2], [0, 5]]),
        "window": Heads(9, 9, causal=True, window=3),
        "window_both_ways": Heads(9, 9, window=2),
        "window_of_one": Heads(5, 5, window=1),
        "window_beyond": Heads(5, 5, causal=True, window=100),
        "all_masks": Heads(4, 9, batch=2, heads=4, causal=True, window=4, ranges=[[0, 9], [5, 8]]),
        "bias": Heads(5, 7, batch=2, bias=(2, 2)),
        "bias_of_heads": Heads(7, 7, batch=3, heads=4, causal=True, bias=(1, 4)),
        "bias_of_sequences": Heads(3, 5, batch=2, heads=4, bias=(2, 1)),
        "one_bias": Heads(5, 5, batch=2, window=2, bias=(1, 1)),
        "bias_padded": Heads(5, 5, batch=2, bias=(1, 2), ranges=[[1, 5], [0, 3]]),
        # The bias forbids all keys of the first query, though none is masked.
        "bias_that_forbids": Heads(4, 3, bias=(1, 1), forbidden=[(0, 0), (0, 1), (0, 2), (2, 1)]),
        "bias_of_keys": Heads(5, 7, batch=2, heads=4, bias=(2, 4), bias_of="keys"),
        "bias_of_keys_shared": Heads(7, 5, batch=3, causal=True, bias=(1, 1), bias_of="keys"),
        "bias_of_keys_of_sequences": Heads(1, 9, batch=2, heads=4, bias=(2, 1), bias_of="keys"),
        "bias_of_keys_that_forbids": Heads(5, 6, batch=2, bias=(2, 1), bias_of="keys", forbidden_columns=[0, 2, 5]),
        # All keys of the first sequence are forbidden.
        "bias_of_keys_that_forbids_all": Heads(4, 3, batch=2, bias=(2, 1), bias_of="keys", forbidden_columns=[0, 1, 2]),
        "bias_of_keys_past_a_block": Heads(
            49, 129, heads=1, key_value_heads=1, width=2, value_width=2, bias=(1, 1), bias_of="keys"
        ),
        "bias_of_distances": Heads(7, 7, batch=2, heads=4, causal=True, bias=(1, 4), bias_of="distances"),
        "bias_of_distances_shared": Heads(5, 11, batch=2, bias=(1, 1), bias_of="distances"),
        "bias_of_distances_more_queries": Heads(11, 3, batch=2, bias=(1, 2), bias_of="distances"),
        "bias_of_distances_one_query": Heads(1, 13, heads=4, causal=True, bias=(1, 4), bias_of="distances"),
        "bias_of_distances_padded": Heads(
            5, 5, batch=2, bias=(1, 2), bias_of="distances", window=3, ranges=[[1, 5], [0, 3]]
        ),
        # The bias forbids every distance of the last query.
        "bias_of_distances_that_forbids": Heads(
            5, 3, heads=1, key_value_heads=1, bias=(1, 1), bias_of="distances", forbidden_columns=[0, 1, 2]
        ),
        "bias_of_distances_past_a_block": Heads(
            49, 129, heads=1, key_value_heads=1, width=2, value_width=2, bias=(1, 1), bias_of="distances"
        ),
        "blocks": Heads(11, 11, batch=2, blocks=(3, [[[0], [0, 1, 2], [1, 3], [0, 2, 3]]])),
        "blocks_of_heads": Heads(
            7, 9, heads=4, blocks=(4, [[[0, 2], [1]], [[0], [1, 2]], [[0, 1, 2], [2]], [[1], [0]]])
        ),
        "blocks_of_one": Heads(3, 5, heads=1, key_value_heads=1, blocks=(1, [[[0, 2, 3], [1], [0, 4]]])),
        "blocks_under_all_masks": Heads(
            8, 8, batch=2, causal=True, window=5, ranges=[[0, 8], [2, 7]], blocks=(2, [[[0], [0, 1], [0, 2], [0, 2, 3]]])
        ),
        "blocks_with_a_bias": Heads(
            7, 7, bias=(1, 2), bias_of="distances", blocks=(3, [[[0, 2], [1], [0, 1, 2]]])
        ),
        # The second block of queries sees nothing.
        "blocks_that_list_nothing": Heads(5, 6, blocks=(2, [[[0, 1], [], [2]]])),
        "blocks_past_a_block": Heads(
            67,
            131,
            heads=1,
            key_value_heads=1,
            width=2,
            value_width=3,
            blocks=(16, [[[0, 1, 8], [0, 5], [2, 3, 4, 7], [0, 3, 8], [6]]]),
        ),
        "scale_of_one": Heads(5, 5, scale=1.0),
        "large_scores": Heads(5, 7, scale=4.0),
        "scale_of_zero": Heads(3, 5, scale=0.0),
        # Blocks are 48 queries by 128 keys.
        "past_a_block": Heads(49, 129, heads=1, key_value_heads=1, width=3, value_width=2, causal=True),
        "before_a_block": Heads(47, 127, heads=2, key_value_heads=1, width=2, value_width=3),
        "window_over_blocks": Heads(131, 131, heads=1, key_value_heads=1, width=2, value_width=2, causal=True, window=5),
    }.items():
        name = f"attention.{name}"
        yield Case(name, "attention", heads.inputs(name, values=True), heads.attention, heads.settings())


def log_sums() -> Iterator[Case]:
    # A log-sum-exp of minus infinity cannot be stored: every query sees a key.
    for name, heads, unused in [
        ("one_number", Heads(1, 1, heads=1, key_value_heads=1, width=1, value_width=1), ()),
        ("plain", Heads(7, 5, batch=2, heads=3, key_value_heads=3, width=5, value_width=3), ()),
        ("grouped", Heads(9, 9, batch=2, heads=4, causal=True), ()),
        ("one_query", Heads(1, 13, batch=2, heads=4, causal=True), ()),
        ("all_masks", Heads(4, 9, batch=2, heads=4, causal=True, window=4, ranges=[[0, 9], [3, 8]]), ()),
        ("bias", Heads(5, 7, batch=2, bias=(1, 2)), ()),
        ("bias_of_keys", Heads(5, 6, batch=2, bias=(2, 1), bias_of="keys", forbidden_columns=[0, 2, 5]), ()),
        ("bias_of_distances", Heads(7, 7, heads=4, causal=True, bias=(1, 4), bias_of="distances"), ()),
        ("large_scores", Heads(5, 7, scale=4.0), ()),
        ("past_a_block", Heads(49, 129, heads=1, key_value_heads=1, width=3, value_width=2, causal=True), ()),
        ("context_unread", Heads(5, 7, batch=2, heads=4), (0,)),
        ("log_sums_unread", Heads(5, 7, batch=2, heads=4), (1,)),
    ]:
        name = f"attention_with_log_sums.{name}"
        inputs = heads.inputs(name, values=True)
        function = heads.attention_with_log_sums
        yield Case(name, "attention_with_log_sums", inputs, function, heads.settings(), unused)
    for name, parts, sizes, unseen in [
        ("one_part", 1, (2, 3, 5, 4), []),
        ("two_parts", 2, (2, 3, 5, 4), []),
        ("one_number", 2, (1, 1, 1, 1), []),
        ("four_parts", 4, (1, 2, 7, 3), []),
        # (part, query) without visible keys.
        ("parts_that_saw_nothing", 3, (2, 2, 5, 3), [(0, 0), (1, 0), (2, 1), (0, 3)]),
    ]:
        name = f"merge_attended.{name}"
        shapes = {f"context{part}": sizes for part in range(parts)}
        shapes |= {f"log_sums{part}": sizes[:3] for part in range(parts)}
        inputs = draw(name, shapes)
        for part, query in unseen:
            inputs[f"log_sums{part}"][:, :, query] = MINUS_INFINITY
            inputs[f"context{part}"][:, :, query] = 0

        def function(parts=parts, **inputs):
            log_sums = torch.stack([inputs[f"log_sums{part}"] for part in range(parts)])
            contexts = torch.stack([inputs[f"context{part}"] for part in range(parts)])
            shares = torch.softmax(log_sums, 0)
            return (contexts * shares[..., None]).sum(0), log_sums.logsumexp(0)

        yield Case(name, "merge_attended", inputs, function)


def weights() -> Iterator[Case]:
    for name, heads in {
        "one_number": Heads(1, 1, heads=1, key_value_heads=1, width=1),
        "plain": Heads(5, 7, batch=2, heads=3, key_value_heads=3, width=5),
        "grouped": Heads(5, 5, batch=2, heads=4, causal=True),
        "window": Heads(7, 7, causal=True, window=3),
        "padded": Heads(5, 5, batch=2, causal=True, ranges=[[0, 3], [2, 5]]),
        "bias": Heads(5, 7, batch=2, heads=4, bias=(1, 4)),
        "bias_that_forbids": Heads(4, 3, bias=(1, 1), forbidden=[(0, 0), (0, 1), (0, 2), (2, 1)]),
        "bias_of_keys": Heads(5, 7, batch=2, heads=4, bias=(2, 1), bias_of="keys", forbidden_columns=[0, 2]),
        "bias_of_distances": Heads(5, 7, batch=2, heads=4, causal=True, bias=(1, 4), bias_of="distances"),
        "blocks": Heads(5, 6, batch=2, heads=4, causal=True, blocks=(2, [[[0, 1], [], [0, 2]]])),
        "one_query": Heads(1, 13, batch=2, heads=4, causal=True),
        "past_a_block": Heads(49, 129, heads=1, key_value_heads=1, width=3, causal=True),
    }.items():
        name = f"attention_weights.{name}"
        yield Case(name, "attention_weights", heads.inputs(name, values=False), heads.weights, heads.settings())
    for name, heads, shared in [("one_number", 1, 1), ("plain", 3, 3), ("grouped", 6, 2)]:
        name = f"apply_weights.{name}"
        batch, queries, keys, width = (1, 1, 1, 1) if heads == 1 else (2, 5, 7, 3)
        inputs = draw(name, {"weights": (batch, heads, queries, keys), "value": (batch, shared, keys, width)})

        def function(weights, value, repeats=heads // shared):
            return weights @ value.repeat_interleave(repeats, dim=1)

        yield Case(name, "apply_weights", inputs, function)


def masked() -> Iterator[Case]:
    for name, heads in {
        "one_number": Heads(1, 1, heads=1, scale=1.0),
        "plain": Heads(5, 7, batch=2, heads=3, scale=1.0),
        "causal": Heads(5, 5, batch=2, scale=1.0, causal=True),
        "causal_continued": Heads(3, 11, heads=4, scale=1.0, causal=True),
        "window": Heads(7, 7, scale=1.0, causal=True, window=3),
        "padded": Heads(5, 5, batch=3, scale=1.0, ranges=[[0, 5], [0, 3], [2, 4]]),
        "nothing_but_padding": Heads(3, 5, batch=2, scale=1.0, causal=True, ranges=[[2, 2], [4, 5]]),
    }.items():
        name = f"masked_softmax.{name}"
        inputs = draw(name, {"scores": (heads.batch, heads.heads, heads.queries, heads.keys)})

        def function(scores, heads=heads):
            return softmax(scores.masked_fill(~heads.allowed(), MINUS_INFINITY))

        yield Case(name, "masked_softmax", inputs, function, heads.settings())
