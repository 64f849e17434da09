"""Checks that attentive generates the story of the trained 260-thousand-parameter Llama, token by token.

    python reference/stories260k.py FOLDER [--attentive PATH_TO_BINARY]

FOLDER holds the checkpoint and `expected.json` with `prompt_ids`, `greedy_ids` (without the prompt) and `text`.
Needs only Python.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

# The number of tokens in expected.json; the prompt is the BOS token alone.
PROMPT_IDS = [1]
NEW_TOKENS = 200


def main() -> int:
    arguments = parse_arguments()
    expected = json.loads((arguments.folder / "expected.json").read_text(encoding="utf-8"))
    if expected["prompt_ids"] != PROMPT_IDS or len(expected["greedy_ids"]) != NEW_TOKENS:
        sys.exit(f"expected.json does not hold {NEW_TOKENS} greedy ids after the prompt {PROMPT_IDS}")

    actual = generate(arguments.attentive, arguments.folder)
    if actual == expected["greedy_ids"]:
        print(f"passed: all {NEW_TOKENS} ids are equal")
        print(expected["text"])
        return 0
    report_difference(expected["greedy_ids"], actual)
    return 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare attentive's greedy decoding with the expected ids.")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--attentive", type=Path, default=Path("target/release/attentive"), metavar="PATH_TO_BINARY")
    arguments = parser.parse_args()
    if not (arguments.folder / "expected.json").is_file():
        parser.error(f"{arguments.folder} has no expected.json")
    if not arguments.attentive.is_file():
        parser.error(f"{arguments.attentive} does not exist: build it with `cargo build --release` or pass --attentive")
    return arguments


def generate(binary: Path, folder: Path) -> list[int]:
    """The generated ids, which `generate --json` prints on its last line."""
    prompt = ",".join(map(str, PROMPT_IDS))
    command = [binary.resolve(), "generate", folder, "--ids", prompt, "--max-new-tokens", str(NEW_TOKENS)]
    command += ["--temperature", "0", "--json"]
    run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, encoding="utf-8")
    if run.returncode != 0:
        sys.exit(f"attentive generate ended with exit code {run.returncode}")
    lines = run.stdout.strip().splitlines()
    try:
        return json.loads(lines[-1])["ids"]
    except (IndexError, KeyError, TypeError, json.JSONDecodeError):
        sys.exit(f'the last line that attentive printed is not JSON with the key "ids": {lines[-1:]}')


def report_difference(expected: list[int], actual: list[int]) -> None:
    shared = min(len(expected), len(actual))
    equal = next((i for i in range(shared) if expected[i] != actual[i]), shared)
    print(f"FAILED: {equal} of {len(expected)} ids are equal before the first difference; attentive gave {len(actual)}")
    around = slice(max(0, equal - 3), equal + 5)
    print(f"expected from id {around.start}: {expected[around]}")
    print(f"attentive from id {around.start}: {actual[around]}")


if __name__ == "__main__":
    sys.exit(main())
