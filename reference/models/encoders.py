"""The BERT family: post-norm, learned positions, bidirectional attention.

The hidden states are the embedding's norm and each layer's second norm, so the last of them is `last_hidden_state`; there is
no final norm. GELU is exact (erf). The heads of a masked language model are linear, GELU, norm, then the embedding's matrix
with a bias of its own. Epsilons are the config's, except DistilBERT's, which are 1e-12 and not in the config.
"""

import torch
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    BertConfig,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertGenerationConfig,
    BertGenerationEncoder,
    DistilBertConfig,
    DistilBertForMaskedLM,
    RobertaConfig,
    RobertaForMaskedLM,
)

from folder import (
    EVERYTHING,
    IGNORED,
    Tensors,
    base,
    case,
    draw_ids,
    exact,
    given,
    gradients,
    reloaded,
    three_rows,
    write_golden,
)

BATCH, LENGTH = 2, 12


def bert(name: str) -> None:
    """`token_type_ids` are zeros unless given; positions are 0, 1, .. in every row, padded or not."""
    config = BertConfig(
        vocab_size=69, hidden_size=20, num_hidden_layers=2, num_attention_heads=4, intermediate_size=38,
        max_position_embeddings=30, type_vocab_size=3, layer_norm_eps=1e-12, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, tie_word_embeddings=True,
    )  # fmt: skip
    folder, model = reloaded(name, BertForPreTraining(config), 100)
    inputs = text(config, 101, types=True)
    golden = case(model, inputs, **EVERYTHING) | base(model, inputs)
    golden |= case(model, {"input_ids": inputs["input_ids"]}, "untyped.", ("prediction_logits",))
    golden |= case(model, padded_text(config, 102, types=True), "padded.")
    targets = {"labels": masked_labels(config, 104), "next_sentence_label": torch.tensor([1, 0, 1])}
    golden |= loss(model, padded_text(config, 103, types=True), targets)
    write_golden(folder, golden)


def bert_classifier(name: str) -> None:
    """A projection of the pooler's output, which is tanh of a projection of the first token's state."""
    config = small_bert(vocab_size=61, hidden_size=20, num_attention_heads=5, intermediate_size=34, num_labels=6)
    folder, model = reloaded(name, BertForSequenceClassification(config), 110)
    inputs = text(config, 111, types=True)
    golden = case(model, inputs, **EVERYTHING) | base(model, inputs)
    golden |= case(model, padded_text(config, 112, types=True), "padded.")
    golden |= case(model, inputs | {"labels": torch.tensor([4, 1])}, "loss.", ("loss",))
    write_golden(folder, golden)


def bert_tokens(name: str) -> None:
    """A projection of each state. The model has no pooler."""
    config = small_bert(vocab_size=67, hidden_size=18, num_attention_heads=3, intermediate_size=30, num_labels=7)
    folder, model = reloaded(name, BertForTokenClassification(config), 120)
    inputs = text(config, 121, types=True)
    labels = draw_ids(config.num_labels, (BATCH, LENGTH), 123)
    labels[0, :2] = labels[1, 7:] = IGNORED
    golden = case(model, inputs, **EVERYTHING) | base(model, inputs)
    golden |= case(model, padded_text(config, 122, types=True), "padded.")
    golden |= case(model, inputs | {"labels": labels}, "loss.", ("loss",))
    write_golden(folder, golden)


def bert_answers(name: str) -> None:
    """Column 0 of `qa_outputs` is `start_logits`, column 1 `end_logits`.

    The loss is the mean of both cross-entropies over positions; a target at or beyond the length is ignored.
    """
    config = small_bert(vocab_size=71, hidden_size=16, num_attention_heads=2, intermediate_size=28)
    folder, model = reloaded(name, BertForQuestionAnswering(config), 130)
    inputs = text(config, 131, types=True)
    targets = {"start_positions": torch.tensor([2, 5]), "end_positions": torch.tensor([4, LENGTH])}
    golden = case(model, inputs, **EVERYTHING) | base(model, inputs)
    golden |= case(model, padded_text(config, 132, types=True), "padded.")
    golden |= case(model, inputs | targets, "loss.", ("loss",))
    write_golden(folder, golden)


def roberta(name: str) -> None:
    """Positions are counted from the ids: the n-th id that is not the pad id has position pad_token_id + n, from n = 1.

    Pad ids have position pad_token_id, whatever the mask says: row 0 of the padded batch has one in its middle that is not
    masked. `max_position_embeddings` is hence the maximum length plus pad_token_id + 1. There is one token
    type, whose embedding is always added.
    """
    config = RobertaConfig(
        vocab_size=73, hidden_size=20, num_hidden_layers=2, num_attention_heads=5, intermediate_size=36,
        max_position_embeddings=29, type_vocab_size=1, layer_norm_eps=1e-5, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, pad_token_id=1, bos_token_id=0, eos_token_id=2,
    )  # fmt: skip
    folder, model = reloaded(name, RobertaForMaskedLM(config), 140)
    inputs = text(config, 141)
    padded = padded_text(config, 142)
    padded["input_ids"][padded["attention_mask"] == 0] = config.pad_token_id
    padded["input_ids"][0, 5] = config.pad_token_id
    golden = case(model, inputs, **EVERYTHING) | base(model, inputs)
    golden |= case(model, padded, "padded.")
    positions = model.roberta.embeddings.create_position_ids_from_input_ids(padded["input_ids"], config.pad_token_id)
    golden |= {"padded.position_ids": positions}
    write_golden(folder, golden)


def distilbert(name: str) -> None:
    """BERT without token types and pooler, under other names; the head's activation is the config's."""
    config = DistilBertConfig(
        vocab_size=79, dim=24, n_layers=3, n_heads=3, hidden_dim=34, max_position_embeddings=26, dropout=0.0,
        attention_dropout=0.0, sinusoidal_pos_embds=False,
    )  # fmt: skip
    folder, model = reloaded(name, DistilBertForMaskedLM(config), 150)
    inputs = text(config, 151)
    golden = case(model, inputs, **EVERYTHING) | base(model, inputs)
    golden |= case(model, padded_text(config, 152), "padded.")
    write_golden(folder, golden)


def albert(name: str) -> None:
    """Four layers in two groups, two distinct layers in a group: layer i is group i * groups / layers, rounded down.

    Each of `num_hidden_layers` is one pass through a group, hence `inner_group_num` layers: eight here, from four sets of
    weights. The embedding is narrower than the model, a projection with a bias widens it (after the norm), and the head's
    `dense` narrows it again. GELU is the tanh approximation (gelu_new), in the head too.
    """
    config = AlbertConfig(
        vocab_size=89, embedding_size=12, hidden_size=20, num_hidden_layers=4, num_hidden_groups=2, inner_group_num=2,
        num_attention_heads=4, intermediate_size=32, max_position_embeddings=27, type_vocab_size=2, hidden_act="gelu_new",
        layer_norm_eps=1e-12, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, classifier_dropout_prob=0.0,
    )  # fmt: skip
    folder, model = reloaded(name, AlbertForMaskedLM(config), 160)
    inputs = text(config, 161, types=True)
    golden = case(model, inputs, **EVERYTHING) | base(model, inputs)
    golden |= case(model, padded_text(config, 162, types=True), "padded.")
    write_golden(folder, golden)


def bert_generation_encoder(name: str) -> None:
    """BERT without token types and pooler. It has no head: its tensors have no `bert.` before their names."""
    config = BertGenerationConfig(
        vocab_size=77, hidden_size=28, num_hidden_layers=2, num_attention_heads=4, intermediate_size=42,
        max_position_embeddings=31, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    folder, model = reloaded(name, BertGenerationEncoder(config), 170)
    golden = case(model, text(config, 171), **EVERYTHING)
    golden |= case(model, padded_text(config, 172), "padded.")
    write_golden(folder, golden)


def small_bert(**sizes) -> BertConfig:
    return BertConfig(
        num_hidden_layers=2, max_position_embeddings=25, type_vocab_size=2, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, **sizes,
    )  # fmt: skip


def text(config, seed: int, types: bool = False) -> Tensors:
    ids = draw_ids(config.vocab_size, (BATCH, LENGTH), seed, special(config))
    inputs = {"input_ids": ids}
    if types:
        inputs["token_type_ids"] = draw_ids(config.type_vocab_size, (BATCH, LENGTH), seed + 1000)
    return inputs


def padded_text(config, seed: int, types: bool = False) -> Tensors:
    """The ids at padding are ordinary ones, so a leaking mask changes the logits."""
    mask = three_rows(LENGTH)
    inputs = {"input_ids": draw_ids(config.vocab_size, mask.shape, seed, special(config)), "attention_mask": mask}
    if types:
        inputs["token_type_ids"] = draw_ids(config.type_vocab_size, mask.shape, seed + 1000)
    return inputs


def special(config) -> tuple[int, ...]:
    return (config.pad_token_id,)


def masked_labels(config, seed: int) -> torch.Tensor:
    """About a third of the tokens has a target."""
    labels = draw_ids(config.vocab_size, (3, LENGTH), seed)
    labels[draw_ids(3, labels.shape, seed + 1000) > 0] = IGNORED
    return labels


@exact
def loss(model: torch.nn.Module, inputs: Tensors, targets: Tensors) -> Tensors:
    value = model(**inputs, **targets).loss
    golden = given(inputs | targets, "loss.") | {"loss.value": value.reshape(1)}
    return golden | gradients(model, value)
