"""Opens a folder that attentive saved with transformers, and compares what the two compute.

    python reference/roundtrip.py MODEL_DIR [--attentive PATH_TO_BINARY]

Checks, each of which fails the run: transformers reports no missing, unexpected or mismatched key; the tokenizer gives
the same ids however it is loaded; the logits agree to 1e-4. The hidden states and attentions are printed beside
them, to show in which layer an error starts. Text for the tokenizer may be piped in.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

TOLERANCE = 1e-4
TEXT = "Once upon a time, a transformer read 1,234 tokens: naïve ones, 漢字, and\n\ttabs  too."

Tensors = dict[str, torch.Tensor]


def main() -> int:
    arguments = parse_arguments()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

    model, loads = load_model(arguments.model)
    tokenizes = check_tokenizer(arguments.model)
    agrees = True
    for name, inputs in draw_inputs(model).items():
        expected = run_transformers(model, inputs)
        actual = run_attentive(arguments.attentive, arguments.model, inputs)
        agrees &= compare(name, expected, actual, inputs)
    passed = loads and tokenizes and agrees
    print("passed" if passed else "FAILED")
    return 0 if passed else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare attentive with transformers on a saved folder.")
    parser.add_argument("model", type=Path, metavar="MODEL_DIR")
    parser.add_argument("--attentive", type=Path, default=Path("target/release/attentive"), metavar="PATH_TO_BINARY")
    arguments = parser.parse_args()
    if not (arguments.model / "config.json").is_file():
        parser.error(f"{arguments.model} is not a model folder: it has no config.json")
    if not arguments.attentive.is_file():
        parser.error(f"{arguments.attentive} does not exist: build it with `cargo build --release` or pass --attentive")
    return arguments


def load_model(folder: Path) -> tuple[PreTrainedModel, bool]:
    model, info = AutoModelForCausalLM.from_pretrained(
        folder,
        attn_implementation="eager",  # The only implementation that returns its weights.
        dtype=torch.float32,
        local_files_only=True,
        output_loading_info=True,
    )
    problems = {name: keys for name, keys in info.items() if keys}
    for name, keys in problems.items():
        print(f"loading: {name}: {', '.join(map(str, sorted(keys, key=str)))}")
    if not problems:
        print(f"loading: all {len(model.state_dict())} keys of {type(model).__name__} matched")
    return model.eval(), not problems


def check_tokenizer(folder: Path) -> bool:
    """Encodes the text, decodes it, encodes that again, and encodes it with tokenizer.json alone: three equal lists."""
    if not (folder / "tokenizer.json").is_file():
        print("tokenizer: skipped, the folder has no tokenizer.json")
        return True
    text = TEXT if sys.stdin.isatty() else sys.stdin.read() or TEXT
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ids = tokenizer.encode(text, add_special_tokens=False)
    decoded = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    attempts = {
        "after decoding": tokenizer.encode(decoded, add_special_tokens=False),
        "by tokenizer.json alone": Tokenizer.from_file(str(folder / "tokenizer.json"))
        .encode(text, add_special_tokens=False)
        .ids,
    }
    for name, attempt in attempts.items():
        print(f"tokenizer: {len(ids)} ids, {'equal' if attempt == ids else 'DIFFERENT'} {name}")
    if decoded != text:
        # Not a failure: a normalizer, or a vocabulary without some character, may lose text by design.
        print(f"tokenizer: the text came back changed: {decoded!r}")
    return all(attempt == ids for attempt in attempts.values())


def draw_inputs(model: PreTrainedModel) -> dict[str, Tensors]:
    """An unpadded batch, and the same ids with one row padded on the right and the other on the left."""
    length = min(32, model.config.max_position_embeddings)
    generator = torch.Generator().manual_seed(1)
    input_ids = torch.randint(model.config.vocab_size, (2, length), generator=generator)
    attention_mask = torch.ones_like(input_ids)
    padding = length // 4
    if padding > 0:
        attention_mask[0, -padding:] = 0
        attention_mask[1, :padding] = 0
    return {"plain": {"input_ids": input_ids}, "padded": {"input_ids": input_ids, "attention_mask": attention_mask}}


@torch.no_grad()
def run_transformers(model: PreTrainedModel, inputs: Tensors) -> Tensors:
    output = model(**inputs, output_hidden_states=True, output_attentions=True, use_cache=False)
    expected = {"logits": output.logits}
    expected |= {f"hidden_states.{i}": state for i, state in enumerate(output.hidden_states)}
    expected |= {f"attentions.{i}": weights for i, weights in enumerate(output.attentions)}
    return expected


def run_attentive(binary: Path, model: Path, inputs: Tensors) -> Tensors:
    with tempfile.TemporaryDirectory() as folder:
        inputs_path, outputs_path = Path(folder) / "inputs.safetensors", Path(folder) / "outputs.safetensors"
        save_file(inputs, inputs_path)
        command = [binary.resolve(), "forward", model, "--inputs", inputs_path, "--save", outputs_path]
        command += ["--hidden-states", "--attentions"]
        run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        if run.returncode != 0:
            sys.exit(f"attentive forward ended with exit code {run.returncode}")
        return load_file(outputs_path)


def compare(run: str, expected: Tensors, actual: Tensors, inputs: Tensors) -> bool:
    """Prints the maximum absolute error of each tensor over unpadded positions; only the logits decide."""
    unpadded = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool()
    print(f"\n{run + ' batch':<20}{'shape':<20}max absolute error")
    passed = True
    for name, tensor in expected.items():
        if name not in actual:
            verdict = "MISSING from attentive's output"
            passed = False
        elif actual[name].shape != tensor.shape:
            verdict = f"SHAPE DIFFERS: attentive's is {list(actual[name].shape)}"
            passed = False
        else:
            error = unpadded_rows(name, (actual[name].float() - tensor).abs(), unpadded).max().item()
            # Negated, so that NaN fails too.
            too_far = name == "logits" and not error <= TOLERANCE
            verdict = f"{error:.2e}" + (f"  MORE THAN {TOLERANCE:.0e}" if too_far else "")
            passed &= not too_far
        print(f"{name:<20}{str(list(tensor.shape)):<20}{verdict}")
    return passed


def unpadded_rows(name: str, tensor: torch.Tensor, unpadded: torch.Tensor) -> torch.Tensor:
    """Keeps the values at unpadded positions. Attentions are [batch, heads, queries, keys]: unpadded queries."""
    if name.startswith("attentions."):
        tensor = tensor.transpose(1, 2)
    return tensor[unpadded]


if __name__ == "__main__":
    sys.exit(main())
