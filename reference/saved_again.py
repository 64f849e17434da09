"""Has attentive load folders and save them again, and compares in transformers what both folders compute.

    python reference/saved_again.py [FOLDER…] [--draws N] [--attentive PATH]

The folders are those of fixtures/ unless some are named; --draws adds random ones of each class (random_draws/). Each is
saved three times, with `attentive convert FOLDER --to hf --out …`: as it is, in bfloat16 in several files, and in float16.
transformers loads what was saved by the class that its config.json names, which must be the original's, finds no missing or
unexpected weight, and gets the same outputs to 1e-5 of the largest value: with rounded weights where they were rounded.
Both are computed in float64. Inputs are those of the folder's golden.safetensors.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

import peers
import random_configs
from folder import Double
from peers import Tensors
from random_draws import MODEL_CLASSES, Draws, ModelClass

TOLERANCE = 1e-5
SHARD_SIZE = 20_000
MANNERS: dict[str, tuple[torch.dtype | None, list[str]]] = {
    "as it is": (None, []),
    "bfloat16, files": (torch.bfloat16, ["--dtype", "bfloat16", "--shard-size", str(SHARD_SIZE)]),
    "float16": (torch.float16, ["--dtype", "float16"]),
}
INPUTS = (
    "input_ids", "attention_mask", "token_type_ids", "position_ids", "global_attention_mask", "pixel_values",
    "decoder_input_ids", "decoder_attention_mask", "encoder_hidden_states", "encoder_attention_mask",
)  # fmt: skip
HEAD = ["folder", "class", "saved", "outputs", "largest", "output", "verdict"]


def main() -> int:
    arguments = parse_arguments()
    peers.quiet()
    rows: list[list[str]] = []
    for folder in arguments.folders or fixtures():
        rows += checked(arguments.attentive, folder, folder.name, given(folder))
    for model_class in MODEL_CLASSES:
        for number in range(arguments.draws):
            rows += random_rows(arguments, model_class, number)
    print(peers.table(HEAD, rows))
    return 0 if all(row[-1] == "same" for row in rows) else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Load folders with attentive, save them again, and compare both.")
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="those of fixtures/ unless named")
    parser.add_argument("--draws", type=int, default=0, help="random ones of each class, besides [0]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--attentive", type=Path, default=peers.ATTENTIVE, metavar="PATH")
    arguments = parser.parse_args()
    for folder in arguments.folders:
        if not (folder / "golden.safetensors").is_file():
            parser.error(f"{folder} has no golden.safetensors, and so no inputs")
    if not arguments.attentive.is_file():
        parser.error(f"{arguments.attentive} does not exist: build it with `cargo build --release` or pass --attentive")
    arguments.attentive = arguments.attentive.resolve()
    return arguments


def fixtures() -> list[Path]:
    """Every folder that has a model and inputs, and that this version of transformers loads."""
    found = [it.parent for it in sorted((peers.ROOT / "fixtures").rglob("config.json"))]
    found = [it for it in found if (it / "golden.safetensors").is_file() and list(it.glob("model.safetensors*"))]
    configs = {it: json.loads((it / "config.json").read_text()) for it in found}
    configs = {it: config for it, config in configs.items() if "architectures" in config}
    return [it for it, config in configs.items() if (config["model_type"] == "transfo-xl") == peers.TRANSFORMERS_4]


def given(folder: Path) -> list[Tensors]:
    """The golden's first batch and its padded one, or the first segment of a text."""
    golden = load_file(folder / "golden.safetensors")
    prefixes = ("", "padded.", "first.")
    batches = [{name: golden[prefix + name] for name in INPUTS if prefix + name in golden} for prefix in prefixes]
    return [it for it in batches if it]


def random_rows(arguments: argparse.Namespace, model_class: ModelClass, number: int) -> list[list[str]]:
    """The report lines of a random model."""
    draws = Draws(f"{arguments.seed} {model_class.name} {number}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        config = model_class.config(draws)
        random_configs.save(model_class, config, draws, folder)
        return checked(arguments.attentive, folder, f"draw {number}", [model_class.inputs(draws, config, False)])


def checked(attentive: Path, folder: Path, name: str, inputs: list[Tensors]) -> list[list[str]]:
    """A report line for each way of saving, also if it fails."""
    transformers_class = peers.class_of(folder)
    rows = []
    for manner, (dtype, arguments) in MANNERS.items():
        row = [name, transformers_class.__name__, manner]
        try:
            rows.append(row + compared(attentive, folder, transformers_class, inputs, dtype, arguments))
        except Exception as error:
            rows.append([*row, "-", "-", "-", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"])
        print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    return rows


def compared(
    attentive: Path,
    folder: Path,
    transformers_class: type,
    inputs: list[Tensors],
    dtype: torch.dtype | None,
    arguments: list[str],
) -> list[str]:
    """The number of outputs, the maximum error, its output, and the verdict."""
    with tempfile.TemporaryDirectory() as temporary:
        saved = Path(temporary) / "saved"
        peers.run_attentive(attentive, "convert", folder, "--to", "hf", "--out", saved, *arguments)
        if peers.class_of(saved) is not transformers_class:
            raise RuntimeError(f"it was saved as a {peers.class_of(saved).__name__}")
        check_files(saved, dtype, arguments)
        expected = outputs(folder, transformers_class, inputs, dtype)
        actual = outputs(saved, transformers_class, inputs, None)
    errors: dict[str, float] = {}
    for theirs, ours, batch in zip(expected, actual, inputs, strict=True):
        if theirs.keys() != ours.keys():
            raise RuntimeError(f"outputs differ: {sorted(theirs.keys() ^ ours.keys())}")
        for name, error in peers.max_errors(theirs, ours, batch).items():
            errors[name] = max(error, errors.get(name, 0.0))
    worst = max(errors, key=lambda it: errors[it])
    verdict = "same" if errors[worst] <= TOLERANCE else "DIFFERENT"
    return [str(len(errors)), f"{errors[worst]:.1e}", worst, verdict]


def check_files(saved: Path, dtype: torch.dtype | None, arguments: list[str]) -> None:
    """Checks that the weights have the requested dtype and the files the requested size."""
    for file in sorted(saved.glob("*.safetensors")):
        tensors = load_file(file)
        wrong = [name for name, it in tensors.items() if dtype and it.is_floating_point() and it.dtype != dtype]
        if wrong:
            raise RuntimeError(f"{file.name}: {wrong[0]} is {tensors[wrong[0]].dtype}")
        size = sum(it.nbytes for it in tensors.values())
        if "--shard-size" in arguments and size > SHARD_SIZE and len(tensors) > 1:
            raise RuntimeError(f"{file.name} holds {size} bytes, more than {SHARD_SIZE}")


def outputs(folder: Path, transformers_class: type, inputs: list[Tensors], dtype: torch.dtype | None) -> list[Tensors]:
    """The outputs of a folder in float64, with its weights rounded to a dtype first."""
    model = peers.load_float64(folder, transformers_class)
    with Double():
        if dtype:
            round_weights(model, dtype)
        torch.manual_seed(0)  # Reformer samples its rotations.
        settings = {} if "pixel_values" in inputs[0] else peers.without_cache(transformers_class)
        return [peers.run_transformers(model, batch, **settings) for batch in inputs]


def round_weights(model: torch.nn.Module, dtype: torch.dtype) -> None:
    """The tensors in files: parameters except Marian's sinusoids, and `final_logits_bias`."""
    computed = model._keys_to_ignore_on_save or ()
    with torch.no_grad():
        for name, it in model.named_parameters():
            if name not in computed:
                it.copy_(it.to(dtype))
        for name, it in model.named_buffers():
            if name == "final_logits_bias":
                it.copy_(it.to(dtype))


if __name__ == "__main__":
    sys.exit(main())
