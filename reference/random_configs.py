"""Samples random configs of every class that attentive loads, and compares what attentive and transformers compute.

    python reference/random_configs.py [CLASS…] [--draws 10] [--seed 0] [--deep] [--include-unsupported] [--attentive PATH]

A draw is a tiny model with random weights, saved by transformers: in float32, float16 or bfloat16, in one file or several,
with all settings in config.json or without those that equal transformers' defaults. The reference is float64 throughout, of
the weights as they were saved. Each model reads an unpadded batch and a padded one (images: another size). Every output that
both have is compared where the mask is 1. The last column is the error of transformers' own float32 against its float64, as a
measure of what float32 can reach.

With transformers 4.57.1 (requirements-transformer-xl.txt) there is Transformer-XL, and with 5.22.2 there are all others.

The exit code is 1 if a draw fails or is above 1e-5 (with --deep, 8 to 24 layers, 1e-4). --keep FOLDER keeps such draws, with
their inputs, under CLASS.DRAW; `--draw N` repeats one. --include-unsupported also samples settings that attentive does not
support.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

import peers
from folder import Double, resample
from random_draws import MODEL_CLASSES, Draws, ModelClass, Tensors

TOLERANCE, DEEP_TOLERANCE = 1e-5, 1e-4
ATTEMPTS = 50
# Settings of a draw's config.json that a report of a difference leaves out.
UNREPORTED = (
    "architectures", "transformers_version", "id2label", "label2id", "model_type", "use_cache", "initializer_range",
)  # fmt: skip


@dataclass
class Result:
    """The result of one draw of a class."""

    model_class: ModelClass
    number: int
    config_json: dict = field(default_factory=dict)
    saved: str = ""
    max_error: float = 0.0
    #: The output that has it.
    output: str = ""
    #: The maximum error of transformers' float32.
    float32_error: float = 0.0
    failure: str = ""
    missing: set[str] = field(default_factory=set)
    unexpected: set[str] = field(default_factory=set)
    above: dict[str, float] = field(default_factory=dict)


def main() -> int:
    arguments = parse_arguments()
    peers.quiet()
    model_classes = [it for it in MODEL_CLASSES if not arguments.classes or it.name in arguments.classes]
    bound = arguments.bound or (DEEP_TOLERANCE if arguments.deep else TOLERANCE)
    rows, bad = [], []
    numbers = range(arguments.draws) if arguments.draw is None else [arguments.draw]
    for model_class in model_classes:
        results = [attempt(model_class, it, arguments, bound) for it in numbers]
        rows.append(row(model_class, results))
        print(" ".join(rows[-1]), file=sys.stderr, flush=True)
        bad += [it for it in results if it.failure or it.above]
        for name in sorted(set().union(*(it.missing for it in results))):
            print(f"  {model_class.name}: attentive writes no {name}", file=sys.stderr)
        for name in sorted(set().union(*(it.unexpected for it in results))):
            print(f"  {model_class.name}: transformers has no {name}", file=sys.stderr)
    print(peers.table(["class", "draws", "failed", "above", "largest", "output", "transformers in float32"], rows))
    for result in bad:
        print(f"\n{report(result)}")
    return 1 if bad else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare attentive with transformers on random configs.")
    parser.add_argument("classes", nargs="*", metavar="CLASS", help="all unless some are named")
    parser.add_argument("--draws", type=int, default=10, help="of each class [10]")
    parser.add_argument("--draw", type=int, metavar="N", help="only the Nth draw of each class")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--deep", action="store_true", help="8 to 24 layers")
    parser.add_argument("--include-unsupported", action="store_true", help="also settings that attentive does not support")
    parser.add_argument("--bound", type=float, help="the maximum relative error [1e-5, 1e-4 with --deep]")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where to keep the draws that fail")
    parser.add_argument("--attentive", type=Path, default=peers.ATTENTIVE, metavar="PATH")
    arguments = parser.parse_args()
    unknown = set(arguments.classes) - {it.name for it in MODEL_CLASSES}
    if unknown:
        parser.error(f"no such class: {', '.join(sorted(unknown))}")
    if not arguments.attentive.is_file():
        parser.error(f"{arguments.attentive} does not exist: build it with `cargo build --release` or pass --attentive")
    arguments.attentive = arguments.attentive.resolve()
    return arguments


def attempt(model_class: ModelClass, number: int, arguments: argparse.Namespace, bound: float) -> Result:
    """One draw: created, saved, computed by both and compared."""
    result = Result(model_class, number)
    draws = Draws(f"{arguments.seed} {model_class.name} {number}", arguments.deep, arguments.include_unsupported)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        inputs: list[Tensors] = []
        try:
            config = model_class.config(draws)
            result.saved = save(model_class, config, draws, folder)
            result.config_json = json.loads((folder / "config.json").read_text())
            inputs += [draw_inputs(model_class, config, draws, folder, padded) for padded in (False, True)]
            compare(result, folder, inputs, arguments.attentive)
            result.above = {name: it for name, it in result.above.items() if not it <= bound}
        except Exception as error:
            result.failure = f"{type(error).__name__}: {' '.join(str(error).split())[:600]}"
        if arguments.keep and (result.failure or result.above):
            keep(arguments.keep / f"{model_class.name}.{number}".replace(" ", "-"), folder, inputs)
    return result


def draw_inputs(
    model_class: ModelClass, config: transformers.PretrainedConfig, draws: Draws, folder: Path, padded: bool
) -> Tensors:
    """Inputs for which rounding changes no discrete choice."""
    model = peers.load_float64(folder, class_of(model_class)) if model_class.has_margin else None
    for _ in range(ATTEMPTS):
        found = model_class.inputs(draws, config, padded)
        if model is None:
            return found
        with Double():
            if model_class.has_margin(model, found):
                return found
    raise RuntimeError(f"rounding decides the outputs of {ATTEMPTS} inputs")


def keep(kept: Path, folder: Path, inputs: list[Tensors]) -> None:
    shutil.rmtree(kept, ignore_errors=True)
    if folder.is_dir():
        shutil.copytree(folder, kept)
        for i, it in enumerate(inputs):
            save_file({name: tensor.contiguous() for name, tensor in it.items()}, kept / f"inputs.{i}.safetensors")


def save(model_class: ModelClass, config: transformers.PretrainedConfig, draws: Draws, folder: Path) -> str:
    """Creates the model and saves it in one of several ways; returns which."""
    untied_t5 = model_class.name.endswith(" untied")
    model = class_of(model_class)(config)
    width = getattr(config, "hidden_size", None) or config.decoder.hidden_size
    scale = 0.7 / math.sqrt(width)
    # T5 does not divide its scores by the root of the head width, so the projections must be small.
    scores = scale / math.sqrt(config.d_kv) if hasattr(config, "d_kv") else scale
    embedding = 1 / math.sqrt(width) if getattr(config, "scale_embedding", False) else 0.5
    resample(model, draws.torch_seed(), scale, embedding, embedding, scores)
    dtype = draws.choice([torch.float32, torch.float32, torch.float16, torch.bfloat16])
    shard = draws.choice(["5GB", "5GB", "20KB", "3KB"])
    if untied_t5:
        dtype, shard = torch.float32, "5GB"
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    if untied_t5:
        untie_head(folder, draws)
    manner = [str(dtype).removeprefix("torch."), f"{len(list(folder.glob('*.safetensors')))} files"]
    if draws.flip():
        prune(folder, type(config))
        manner.append("defaults left out")
    if draws.flip(0.4) and write_legacy_rope(folder, draws):
        manner.append("rope_scaling")
    return ", ".join(manner)


def class_of(model_class: ModelClass) -> type:
    return getattr(transformers, model_class.name.split()[0])


def untie_head(folder: Path, draws: Draws) -> None:
    """transformers 5 saves T5 always tied, so the untied head is added to the file, as in published T5 1.1."""
    tensors = load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(draws.torch_seed())
    tensors["lm_head.weight"] = 0.25 * torch.randn(tensors["shared.weight"].shape, generator=generator)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config_json = json.loads((folder / "config.json").read_text())
    config_json.pop("scale_decoder_outputs", None)
    write_config(folder, config_json | {"tie_word_embeddings": False})


def prune(folder: Path, config_class: type[transformers.PretrainedConfig]) -> None:
    """Leaves settings out of config.json that equal transformers' defaults, as files of the hub often do."""
    config_json = json.loads((folder / "config.json").read_text())
    if config_json["model_type"] == "encoder-decoder":
        return
    defaults = json.loads(json.dumps(config_class().to_dict(), default=str))
    kept = {"architectures", "model_type", "id2label", "rope_parameters", "dtype"}
    write_config(folder, {name: it for name, it in config_json.items() if name in kept or defaults.get(name, ...) != it})


def write_legacy_rope(folder: Path, draws: Draws) -> bool:
    """Writes RoPE settings as before transformers 5, if there are any."""
    config_json = json.loads((folder / "config.json").read_text())
    scaling = config_json.pop("rope_parameters", None)
    if scaling is None:
        return False
    config_json["rope_theta"] = scaling.pop("rope_theta")
    if scaling["rope_type"] == "default":
        scaling = {name: it for name, it in scaling.items() if name != "rope_type"} or None
    elif draws.flip() and scaling["rope_type"] != "llama3":
        scaling["type"] = scaling.pop("rope_type")
    write_config(folder, config_json | {"rope_scaling": scaling})
    return True


def write_config(folder: Path, config_json: dict) -> None:
    (folder / "config.json").write_text(json.dumps(config_json, indent=2, sort_keys=True) + "\n")


def compare(result: Result, folder: Path, inputs: list[Tensors], attentive: Path) -> None:
    """Fills in the errors of attentive and of transformers' own float32 against float64."""
    transformers_class = class_of(result.model_class)
    settings = [peers.without_cache(transformers_class)] * 2
    if "pixel_values" in inputs[0]:
        same = inputs[0]["pixel_values"].shape[2:] == inputs[1]["pixel_values"].shape[2:]
        settings = [{}, {"interpolate_pos_encoding": not same}]
    expected = peers.run_float64(folder, transformers_class, inputs, settings)
    rounded = peers.loaded(folder, transformers_class, torch.float32)
    for given, setting, precise in zip(inputs, settings, expected, strict=True):
        in_float32 = peers.run_transformers(rounded, given, **setting)
        errors = peers.max_errors(precise, in_float32, given, result.model_class.pools_last)
        result.float32_error = max(result.float32_error, *errors.values())
    for case, given, precise in zip(("plain", "second"), inputs, expected, strict=True):
        actual = peers.forward(attentive, folder, given)
        errors = peers.max_errors(precise, actual, given, result.model_class.pools_last)
        result.missing |= {it.split(".")[0] for it in precise.keys() - actual.keys()}
        # transformers does not return it for the decoder of an encoder-decoder.
        result.unexpected |= {it.split(".")[0] for it in actual.keys() - precise.keys()} - {"last_hidden_state"}
        if not errors:
            raise RuntimeError("no output is of both")
        for name, error in errors.items():
            result.above[f"{case}.{name}"] = error
            if error >= result.max_error:
                result.max_error, result.output = error, name


def row(model_class: ModelClass, results: list[Result]) -> list[str]:
    compared = [it for it in results if not it.failure]
    worst = max(compared, key=lambda it: it.max_error, default=None)
    counts = [str(len(results)), str(len(results) - len(compared)), str(sum(bool(it.above) for it in compared))]
    if worst is None:
        return [model_class.name, *counts, "-", "-", "-"]
    float32_error = max(it.float32_error for it in compared)
    return [model_class.name, *counts, f"{worst.max_error:.1e}", worst.output, f"{float32_error:.1e}"]


def report(result: Result) -> str:
    """The errors of a draw, with all that is needed to reproduce it."""
    lines = [f"{result.model_class.name} draw {result.number} ({result.saved})"]
    if result.failure:
        lines.append(f"  {result.failure}")
    for name, error in sorted(result.above.items(), key=lambda it: -it[1])[:8]:
        lines.append(f"  {name}: {error:.1e}")
    lines.append(f"  transformers in float32: {result.float32_error:.1e}")
    config_json = {name: it for name, it in result.config_json.items() if name not in UNREPORTED}
    lines.append(f"  {json.dumps(config_json)}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
