"""What random_configs.py and saved_again.py share: one pass by transformers, one by attentive, and how far apart they are."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).resolve().parent / "models"))

from folder import EVERYTHING, Double, as_the_model, flat  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
ATTENTIVE = ROOT / "target" / "release" / "attentive"
# Of transformers' outputs, what attentive has no words for.
NOT_COMPARED = ("router_logits", "past_key_values", "loss", "aux_loss")

Tensors = dict[str, torch.Tensor]


class ProgramError(Exception):
    """attentive ended with an error, whose last line this is."""


def quiet() -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def class_of(folder: Path) -> type:
    """The class that config.json names."""
    return getattr(transformers, json.loads((folder / "config.json").read_text())["architectures"][0])


def loaded(folder: Path, kind: type, dtype: torch.dtype) -> torch.nn.Module:
    """Inside `Double`, for float64: the rotations' frequencies are computed while loading. Refuses missing weights."""
    model, info = kind.from_pretrained(
        folder, attn_implementation="eager", dtype=dtype, local_files_only=True, output_loading_info=True
    )
    problems = {name: sorted(map(str, keys)) for name, keys in info.items() if keys}
    if problems:
        raise RuntimeError(f"transformers loads {folder.name} with {problems}")
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")  # The others cannot do float64.
    return model.eval()


@torch.no_grad()
def computed(model: torch.nn.Module, inputs: Tensors, **settings: object) -> Tensors:
    """All outputs by their names, with the states and the pooler's output that heads do not return."""
    inputs = as_the_model(model, inputs)
    settings = {**EVERYTHING, **settings}
    found = flat(model(**inputs, **settings))
    if model.base_model is not model:
        base = flat(model.base_model(**inputs, **settings), only=("last_hidden_state", "pooler_output"))
        found = base | found
    return {name: it for name, it in found.items() if not name.startswith(NOT_COMPARED)}


def precisely(folder: Path, kind: type, inputs: list[Tensors], settings: list[dict[str, object]]) -> list[Tensors]:
    """Passes of a folder's model in float64 throughout."""
    with Double():
        model = loaded(folder, kind, torch.float64)
        return [computed(model, *it[:1], **it[1]) for it in zip(inputs, settings, strict=True)]


def forward(attentive: Path, model: Path, inputs: Tensors) -> Tensors:
    """One pass by attentive."""
    with tempfile.TemporaryDirectory() as place:
        given, saved = Path(place) / "inputs.safetensors", Path(place) / "outputs.safetensors"
        save_file({name: it.contiguous() for name, it in inputs.items()}, given)
        run_attentive(attentive, "forward", model, "--inputs", given, "--save", saved, "--hidden-states", "--attentions")
        return load_file(saved)


def run_attentive(attentive: Path, *words: str | Path) -> None:
    run = subprocess.run([attentive, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        lines = run.stderr.strip().splitlines() or [f"exit code {run.returncode}"]
        raise ProgramError(" / ".join(it.strip() for it in lines[-3:]))


def differences(expected: Tensors, actual: Tensors, inputs: Tensors, pools_last: bool = False) -> dict[str, float]:
    """For each output of both, the largest difference over the largest number, of what belongs to real tokens.

    Infinite where a shape differs or a number is not finite.
    """
    found = {}
    for name in sorted(expected.keys() & actual.keys()):
        theirs, ours = expected[name].double(), actual[name].double()
        if theirs.shape != ours.shape:
            found[name] = float("inf")
            continue
        theirs, ours = (real(name, it, inputs, pools_last) for it in (theirs, ours))
        if not theirs.numel():
            continue
        scale = theirs.abs().max().item() or 1.0
        apart = (theirs - ours).abs().max().item() / scale
        found[name] = apart if apart == apart else float("inf")
    return found


def real(name: str, tensor: torch.Tensor, inputs: Tensors, pools_last: bool) -> torch.Tensor:
    """What belongs to real tokens. Attentions are [batch, heads, queries, keys]: the queries have to be real."""
    both = "decoder_input_ids" in inputs
    of_decoder = both and not name.startswith("encoder_")
    mask = inputs.get("decoder_attention_mask" if of_decoder else "attention_mask")
    # Reformer's weights stand by chunk, in five axes, and nobody can tell which of them are of padding.
    if mask is None or tensor.dim() > 4:
        return tensor
    if "attentions." in name:
        tensor = tensor.transpose(1, 2)
    elif tensor.dim() == 2 and name not in ("start_logits", "end_logits"):
        # A vector of a whole row, which is its first token's, or its last's.
        return tensor if pools_last else tensor[mask[:, 0].bool()]
    return tensor[mask.bool()]


def table(head: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]]
    return "\n".join(it.rstrip() for it in lines)
