"""Checks attentive's greedy tokens of a GGUF file of a Llama against numpy's.

    python reference/gguf_greedy.py FILE.gguf [--prompt TEXT] [--system TEXT] [--tokens N] [--attentive PATH_TO_BINARY]

The prompt goes through the file's chat template. Needs gguf and numpy (`pip install gguf==0.19.0 numpy==2.4.6`) and a build.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from gguf_llama import Llama, greedy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--prompt", default="What is the capital of France?")
    parser.add_argument("--system")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--attentive", default="target/release/attentive")
    arguments = parser.parse_args()
    system = ["--system", arguments.system] if arguments.system else []
    command = [arguments.attentive, "generate", arguments.file, "--chat", "--prompt", arguments.prompt, *system]
    command += ["--temperature", "0", "--max-new-tokens", str(arguments.tokens), "--json"]
    ours = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    model = Llama(arguments.file, np.float32)
    # attentive's tokens of the prompt must be those of the file's vocabulary.
    byte_of = unicode_to_byte()
    tokens = [model.fields["tokenizer.ggml.tokens"][id] for id in ours["prompt_ids"]]
    if model.fields["tokenizer.ggml.model"] == "gpt2":
        decoded = bytes(byte_of[it] for token in tokens for it in token).decode()
        assert decoded == ours["prompt"], f"the tokens of the prompt are {decoded!r}"
    theirs, margin = greedy(model, ours["prompt_ids"], arguments.tokens, model.fields["tokenizer.ggml.eos_token_id"])
    print(f"prompt  {ours['prompt_ids']}\nours    {ours['ids']}\nnumpy   {theirs}\ntext    {ours['text']!r}")
    print(f"the smallest margin between the two largest logits was {margin:.2e}")
    if ours["ids"] != theirs:
        sys.exit("the tokens differ")


def unicode_to_byte() -> dict[str, int]:
    """The inverse of GPT-2's `bytes_to_unicode`."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


if __name__ == "__main__":
    main()
