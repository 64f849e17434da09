"""What random_configs.py and saved_again.py share: one pass by transformers, one by attentive, and their maximum errors.

Sparse attention weights are compared as dense matrices (models/dense.py).
"""

from __future__ import annotations

import copy
import inspect
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import torch
import transformers
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).resolve().parent / "models"))

from dense import matrices  # noqa: E402
from folder import EVERYTHING, Double, as_the_model, flat  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
ATTENTIVE = ROOT / "target" / "release" / "attentive"
TRANSFORMERS_4 = transformers.__version__.startswith("4.")
# Outputs of transformers that attentive does not have.
NOT_COMPARED = ("router_logits", "past_key_values", "loss", "aux_loss", "mems", "global_attentions")
# Unused parameters of a class, which attentive does not keep; transformers warns that it initializes them.
UNUSED = {
    "BigBirdForSequenceClassification": {"bert.pooler.weight", "bert.pooler.bias"},
    "EncoderDecoderModel": {"encoder.pooler.dense.weight", "encoder.pooler.dense.bias"},
}

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


def load_float64(folder: Path, transformers_class: type) -> torch.nn.Module:
    """A folder's model in float64. RoPE's frequencies are computed while loading, so that is inside `Double` as well.

    transformers 4 cannot load there, and its Transformer-XL has none.
    """
    if TRANSFORMERS_4:
        return loaded(folder, transformers_class, torch.float32).double()
    with Double():
        return loaded(folder, transformers_class, torch.float64)


def loaded(folder: Path, transformers_class: type, dtype: torch.dtype) -> torch.nn.Module:
    """Refuses missing weights."""
    model, info = transformers_class.from_pretrained(
        folder, attn_implementation="eager", dtype=dtype, local_files_only=True, output_loading_info=True
    )
    info["missing_keys"] = set(info["missing_keys"]) - UNUSED.get(transformers_class.__name__, set())
    problems = {name: sorted(map(str, keys)) for name, keys in info.items() if keys}
    if problems:
        raise RuntimeError(f"transformers loads {folder.name} with {problems}")
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")  # The others cannot do float64.
    if model.config.model_type == "reformer" and hasattr(model, "lm_head"):
        model.lm_head.decoder.bias = model.lm_head.bias  # transformers 5 forgets it.
    if model.config.model_type == "transfo-xl":
        # A file in half precision has them rounded; attentive computes them.
        width = model.config.d_model
        model.base_model.pos_emb.inv_freq = 1 / 10000 ** (torch.arange(0, width, 2) / width)
    return model.eval()


def without_cache(transformers_class: type) -> dict[str, object]:
    """The argument that disables the cache, for models that have one."""
    names = inspect.signature(transformers_class.forward).parameters
    return {"use_cache": False} if names.keys() & {"use_cache", "kwargs"} else {}


@torch.no_grad()
def run_transformers(model: torch.nn.Module, inputs: Tensors, **settings: object) -> Tensors:
    """All outputs by their names, with the states and the pooler's output that heads do not return."""
    model = copied(model, inputs)
    found: Tensors = {}

    def keep(_: torch.nn.Module, __: tuple, output: dict) -> None:
        found.update(flat(output, only=("last_hidden_state", "pooler_output")))

    hook = model.base_model.register_forward_hook(keep)
    with patch.object(torch.Tensor, "type_as", type_as):
        found |= flat(model(**as_the_model(model, inputs), **EVERYTHING, **settings))
    hook.remove()
    if type(model).__name__ in UNUSED:
        found.pop("pooler_output", None)
    if "prediction_scores" in found:
        found["logits"] = found.pop("prediction_scores")  # Transformer-XL has both names for them.
    found |= {f"attentions.{i}": it for i, it in enumerate(matrices(model, inputs))}
    kept = {name: it for name, it in found.items() if not name.startswith(NOT_COMPARED)}
    return {name: of_text(name, it, inputs) for name, it in kept.items()}


def copied(model: torch.nn.Module, inputs: Tensors) -> torch.nn.Module:
    """A copy, as a short text changes BigBird permanently. The change is made here: transformers returns no attentions of
    the pass that makes it."""
    model, config = copy.deepcopy(model), model.config
    if config.model_type == "big_bird":
        full_attention_length = (5 + 2 * config.num_random_blocks) * config.block_size
        if inputs["input_ids"].shape[1] <= full_attention_length:
            model.base_model.set_attention_type("original_full")
    return model


def type_as(tensor: torch.Tensor, other: torch.Tensor | None = None, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A method that the Transformer-XL of transformers 4 calls, and torch never had."""
    return tensor.to(dtype or other.dtype)


def of_text(name: str, tensor: torch.Tensor, inputs: Tensors) -> torch.Tensor:
    """BigBird and Reformer return the states of their own padding, too."""
    filled = name.startswith("hidden_states.") and "input_ids" in inputs
    return tensor[:, : inputs["input_ids"].shape[1]] if filled else tensor


def run_float64(
    folder: Path, transformers_class: type, inputs: list[Tensors], settings: list[dict[str, object]]
) -> list[Tensors]:
    """Passes of a folder's model in float64 throughout."""
    model = load_float64(folder, transformers_class)
    with Double():
        return [run_transformers(model, *it[:1], **it[1]) for it in zip(inputs, settings, strict=True)]


def forward(attentive: Path, model: Path, inputs: Tensors) -> Tensors:
    """One pass by attentive."""
    with tempfile.TemporaryDirectory() as folder:
        given, saved = Path(folder) / "inputs.safetensors", Path(folder) / "outputs.safetensors"
        save_file({name: it.contiguous() for name, it in inputs.items()}, given)
        run_attentive(attentive, "forward", model, "--inputs", given, "--save", saved, "--hidden-states", "--attentions")
        return load_file(saved)


def run_attentive(attentive: Path, *arguments: str | Path) -> None:
    run = subprocess.run([attentive, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        lines = run.stderr.strip().splitlines() or [f"exit code {run.returncode}"]
        raise ProgramError(" / ".join(it.strip() for it in lines[-3:]))


def max_errors(expected: Tensors, actual: Tensors, inputs: Tensors, pools_last: bool = False) -> dict[str, float]:
    """For each output of both, the maximum error relative to the largest value, at unpadded positions.

    Infinite where a shape differs or a value is not finite.
    """
    errors = {}
    for name in sorted(expected.keys() & actual.keys()):
        theirs, ours = expected[name].double(), actual[name].double()
        if theirs.shape != ours.shape:
            errors[name] = float("inf")
            continue
        theirs, ours = (unpadded(name, it, inputs, pools_last) for it in (theirs, ours))
        if not theirs.numel():
            continue
        scale = theirs.abs().max().item() or 1.0
        error = (theirs - ours).abs().max().item() / scale
        errors[name] = error if error == error else float("inf")
    return errors


def unpadded(name: str, tensor: torch.Tensor, inputs: Tensors, pools_last: bool) -> torch.Tensor:
    """The values at unpadded positions. Attentions are [batch, heads, queries, keys]: unpadded queries."""
    both = "decoder_input_ids" in inputs
    of_decoder = both and not name.startswith("encoder_")
    mask = inputs.get("decoder_attention_mask" if of_decoder else "attention_mask")
    if mask is None:
        return tensor
    if "attentions." in name:
        tensor = tensor.transpose(1, 2)
    elif tensor.dim() == 2 and name not in ("start_logits", "end_logits"):
        # A pooled vector of a row, of its first or last token.
        return tensor if pools_last else tensor[mask[:, 0].bool()]
    return tensor[mask.bool()]


def table(head: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]]
    return "\n".join(it.rstrip() for it in lines)
