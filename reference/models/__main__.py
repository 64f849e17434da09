"""Makes fixtures/models/: a tiny checkpoint of each architecture, and what transformers computes with it.

    python reference/models [NAME…]      all but transformer-xl, or the named ones

Needs requirements.txt: torch 2.15.0, transformers 5.22.2. `transformer-xl` needs transformers 4.57.1 instead
(requirements-transformer-xl.txt), so it is run separately; reference/README.md has the commands, and notes on each.

Each folder is a complete Hugging Face model folder (those of `recurrent` have attentive's own names) and
`golden.safetensors`, whose values are computed in float64 and rounded to float32. Two runs on one machine write the same
bytes.
"""

import importlib
import sys

import torch
import transformers

MODULES = {
    "encoders": [
        "bert", "bert-classifier", "bert-tokens", "bert-answers", "roberta", "distilbert", "albert",
        "bert-generation-encoder",
    ],
    "decoders": ["bert-generation-decoder", "mistral", "qwen2", "qwen3", "mixtral"],
    "classifiers": ["gpt2-classifier", "mistral-classifier"],
    "encoder_decoders": [
        "bert-generation-both", "bert-bert", "roberta-roberta", "bert-gpt2", "bart", "marian", "t5", "t5-v1.1",
    ],
    "images": ["vit", "deit"],
    "transformer": ["transformer"],
    "longformer": ["longformer"],
    "big_bird": ["big-bird"],
    "reformer": ["reformer", "reformer-masked"],
    "recurrent": ["bahdanau-gru", "bahdanau-lstm", "bahdanau-plain"],
}  # fmt: skip
RUN_SEPARATELY = {"transformer_xl": ["transformer-xl"]}


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    modules = {name: module for module, names in (MODULES | RUN_SEPARATELY).items() for name in names}
    for name in sys.argv[1:] or [it for names in MODULES.values() for it in names]:
        makers = importlib.import_module(modules[name])
        getattr(makers, name.replace("-", "_").replace(".", "_"))(name)


if __name__ == "__main__":
    main()
