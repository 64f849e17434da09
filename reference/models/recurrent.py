"""Recurrent encoder-decoders with additive attention (Bahdanau et al. 2015): PyTorch's nn.GRU and nn.LSTM.

No library has such a model with checkpoints, so the folders have attentive's own names (`model_type`
"attentive-recurrent"), and so do the keys of the goldens. Encoders read packed sequences, so that PyTorch itself skips
padding; decoders run step by step, and attend to the source with the previous state as the query, as in "Dive into
Deep Learning".
"""

import json
import shutil

import torch
from folder import (
    FIXTURES, IGNORED, NEW_TOKENS, Tensors, draw_ids, exact, generator, given, repeats, searched, write_golden,
)  # fmt: skip
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

START, END = 1, 2
BATCH, SOURCE, TARGET = 2, 7, 6


class Recurrent(nn.Module):
    def __init__(self, config: dict):
        super().__init__()
        self.config = config
        width, hidden, layers = config["width"], config["hidden_width"], config["layers"]
        cell = {"gru": nn.GRU, "lstm": nn.LSTM}[config["cell"]]
        self.both = config["directions"] == "both"
        memory = hidden * (2 if self.both else 1)
        self.source = nn.Embedding(config["source_vocabulary"], width)
        self.target = nn.Embedding(config["target_vocabulary"], width)
        self.encoder = cell(width, hidden, layers, batch_first=True, bidirectional=self.both)
        self.decoder = cell(memory + width, hidden, layers, batch_first=True)
        self.query = nn.Linear(hidden, config["attention_width"], bias=False)
        self.key = nn.Linear(memory, config["attention_width"], bias=False)
        self.score = nn.Linear(config["attention_width"], 1, bias=False)
        self.lm_head = nn.Linear(hidden, config["target_vocabulary"])
        inputs = {"copied": 0, "backward": hidden, "joined": 2 * hidden}[config["first_state"]]
        parts = ["hidden"] if config["cell"] == "gru" else ["hidden", "memory"]
        maps = {f"{layer}_{part}": nn.Linear(inputs, hidden) for layer in range(layers) for part in parts if inputs}
        self.bridge = nn.ModuleDict(maps)

    @property
    def dtype(self) -> torch.dtype:
        return self.lm_head.weight.dtype

    def first(self, last: torch.Tensor, part: str) -> torch.Tensor:
        """[layers, batch, hidden] from the encoder's last states [layers * directions, batch, hidden]."""
        first_state = self.config["first_state"]
        if first_state == "copied":
            return last
        rows = []
        for layer, (forward, backward) in enumerate(last.view(-1, 2, *last.shape[1:])):
            row = backward if first_state == "backward" else torch.cat([forward, backward], -1)
            row = self.bridge[f"{layer}_{part}"](row)
            rows.append(row.tanh() if part == "hidden" else row)
        return torch.stack(rows)

    def encode(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple:
        packed = pack_padded_sequence(self.source(ids), mask.sum(1), batch_first=True, enforce_sorted=False)
        states, last = self.encoder(packed)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=ids.shape[1])
        if self.config["cell"] == "gru":
            return states, (self.first(last, "hidden"),)
        return states, (self.first(last[0], "hidden"), self.first(last[1], "memory"))

    def step(self, ids: torch.Tensor, states: torch.Tensor, mask: torch.Tensor, state: tuple) -> tuple:
        scores = self.score(torch.tanh(self.query(state[0][-1])[:, None] + self.key(states))).squeeze(-1)
        weights = scores.masked_fill(mask == 0, -torch.inf).softmax(-1)
        context = weights[:, None] @ states
        inputs = torch.cat([context, self.target(ids)[:, None]], -1)
        output, new = self.decoder(inputs, state if len(state) == 2 else state[0])
        return output[:, 0], new if isinstance(new, tuple) else (new,), weights

    def forward(self, source_ids, target_ids, source_mask=None, target_mask=None) -> Tensors:
        source_mask = torch.ones_like(source_ids) if source_mask is None else source_mask
        target_mask = torch.ones_like(target_ids) if target_mask is None else target_mask
        states, state = self.encode(source_ids, source_mask)
        found = {"states": states} | named("initial_state", state)
        outputs, weights = [], []
        for ids, real in zip(target_ids.unbind(1), target_mask.unbind(1)):
            output, new, attention = self.step(ids, states, source_mask, state)
            real = real[:, None] == 1
            state = tuple(torch.where(real, after, before) for after, before in zip(new, state))
            outputs.append(output * real)
            weights.append(attention)
        hidden = torch.stack(outputs, 1)
        found |= {"hidden": hidden, "weights": torch.stack(weights, 1)[:, None], "logits": self.lm_head(hidden)}
        return found | named("final_state", state)

    def ours(self, values: Tensors) -> Tensors:
        """Weights or gradients under PyTorch's names, renamed to ours."""
        found = {}
        for name, value in values.items():
            part, rest = name.split(".", 1)
            if part in ("source", "target"):
                found[f"{'encoder' if part == 'source' else 'decoder'}.tokens.{rest}"] = value
            elif part in ("query", "key", "score"):
                found[f"decoder.attention.{part}.{rest}"] = value
            elif part == "bridge":
                found["bridge." + rest.replace("_", ".")] = value
            elif part == "lm_head":
                found[name] = value
            else:
                parameter, which, layer, *back = rest.split("_")  # weight_ih_l0_reverse
                direction = ("backward." if back else "forward.") if part == "encoder" else ""
                key = f"{part}.layers.{layer[1:]}.{direction}{'input' if which == 'ih' else 'recurrent'}.{parameter}"
                if key == "decoder.layers.0.input.weight":
                    memory = value.shape[1] - self.config["width"]
                    found["decoder.context.weight"], value = value[:, :memory], value[:, memory:]
                found[key] = value
        return found


def named(name: str, state: tuple) -> Tensors:
    parts = zip((name, f"{name}_cell"), state)
    return {f"{part}.{layer}": value for part, values in parts for layer, value in enumerate(values)}


def resample(model: nn.Module, seed: int) -> None:
    """Weights with which states forget little and attention is far from uniform."""
    draws = generator(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 0.1 if "bias" in name else 1.0 if name.startswith(("source", "target", "score")) else 0.5
            parameter.copy_(scale * torch.randn(parameter.shape, generator=draws))


@exact
@torch.no_grad()
def case(model: nn.Module, inputs: Tensors, prefix: str = "") -> Tensors:
    return given(inputs, prefix) | given(model(**inputs), prefix)


@exact
def loss(model: nn.Module, inputs: Tensors, labels: torch.Tensor) -> Tensors:
    logits = model(**inputs)["logits"]
    value = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
    model.zero_grad()
    value.backward()
    gradients = model.ours({name: it.grad.clone() for name, it in model.named_parameters()})
    model.zero_grad()
    inputs = inputs | {"labels": labels}
    return given(inputs, "loss.") | {"loss.value": value.detach().reshape(1)} | given(gradients, "gradient.")


@exact
@torch.no_grad()
def greedy(model: nn.Module, source_ids: torch.Tensor) -> Tensors | str:
    mask = torch.ones_like(source_ids)
    states, state = model.encode(source_ids, mask)
    ids = [START]
    for _ in range(NEW_TOKENS):
        output, state, _ = model.step(torch.tensor(ids[-1:]), states, mask, state)
        best = model.lm_head(output)[0].topk(2)
        if best.values[0] - best.values[1] < 2e-3:
            return "two tokens are nearly alike"
        ids.append(best.indices[0].item())
        if ids[-1] == END:
            return "it is cut short"
    if len(set(ids)) <= 5 or repeats(ids):
        return "it repeats itself"
    return {"prompt_ids": source_ids, "greedy_ids": torch.tensor([ids])}


def make(name: str, seed: int, greedy_seed: int, **settings) -> None:
    config = {
        "source_vocabulary": 41, "target_vocabulary": 37, "length": 40, "width": 10, "hidden_width": 12,
        "attention_width": 9, "dropout": 0.0, "init_std": 0.05, **settings,
    }  # fmt: skip
    model = Recurrent(config).eval()
    resample(model, seed)
    folder = FIXTURES / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config_json = {
        "model_type": "attentive-recurrent", "attentive": config, "decoder_start_token_id": START, "eos_token_id": END,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config_json, indent=2, sort_keys=True) + "\n")
    weights = model.ours({name: it.detach() for name, it in model.named_parameters()})
    weights = {name: it.clone().contiguous() for name, it in weights.items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})

    def ids(side: str, rows: int, length: int, seed: int) -> torch.Tensor:
        return draw_ids(config[f"{side}_vocabulary"], (rows, length), seed)

    inputs = {"source_ids": ids("source", BATCH, SOURCE, seed), "target_ids": ids("target", BATCH, TARGET, seed + 1)}
    golden = case(model, inputs)
    source_mask, target_mask = torch.ones(3, SOURCE, dtype=torch.long), torch.ones(3, TARGET, dtype=torch.long)
    source_mask[1, -3:] = source_mask[2, 1:] = target_mask[0, -2:] = 0
    padded = {
        "source_ids": ids("source", 3, SOURCE, seed + 2), "target_ids": ids("target", 3, TARGET, seed + 3),
        "source_mask": source_mask, "target_mask": target_mask,
    }  # fmt: skip
    golden |= case(model, padded, "padded.")
    labels = ids("target", 3, TARGET, seed + 4)
    labels[target_mask == 0] = IGNORED
    golden |= loss(model, padded, labels)
    golden |= searched(greedy_seed, lambda it: greedy(model, ids("source", 1, SOURCE, it)))
    write_golden(folder, golden)


def bahdanau_gru(name: str) -> None:
    """As in the paper: a bidirectional encoder, and an initial decoder state from its backward direction. Two layers."""
    make(name, 1100, 1110, cell="gru", layers=2, directions="both", first_state="backward")


def bahdanau_lstm(name: str) -> None:
    """Bidirectional, both directions concatenated for the decoder's initial hidden and cell state. Two layers."""
    make(name, 1200, 1205, cell="lstm", layers=2, directions="both", first_state="joined")


def bahdanau_plain(name: str) -> None:
    """As in "Dive into Deep Learning" and the benchmark: unidirectional, one layer, and the last state copied."""
    make(name, 1300, 1309, cell="gru", layers=1, directions="forward", first_state="copied")
