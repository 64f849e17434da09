"""Makes fixtures/logits_processors.json: texts that transformers generates with logits processors set in generation_config.json.

    python reference/logits_processors.py

Needs requirements.txt and the folders of `fixtures/`, whose models generate the texts. A case is a model, settings under the
keys of generation_config.json, sources, and the tokens generated from them, each without its prompt and the end token; with
several beams, all of them, best first, and their scores. Values are computed in float64. Sources are resampled until the
settings change the text, and until neither two tokens nor two beams have close scores, so that rounding decides nothing.

Under `sampling` are logits of a next token and the probabilities with which it is then sampled.
"""

import json
import sys
from pathlib import Path

import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parent / "models"))

from folder import FIXTURES, Double, doubled, draw_ids, loaded  # noqa: E402

MODELS = {
    "models/bart": transformers.BartForConditionalGeneration,
    "llama": transformers.LlamaForCausalLM,
}
OUT = FIXTURES.parent / "logits_processors.json"
SOURCE, TOKENS, BEAMS = 11, 16, 3
# Between the two largest logits of greedy decoding, and between two beams.
TOKEN_GAP, BEAM_GAP = 2e-3, 2e-4
# Seeds of searches with a close comparison on the way, which crates/generation/src/beams/margins.rs measures.
CLOSE = {("llama", "all", BEAMS, 900)}

SAMPLING = [
    {},
    {"temperature": 0.6, "top_p": 0.9},
    {"temperature": 1.7, "top_k": 7},
    {"top_k": 0, "top_p": 0.5},
    {"top_k": 0, "min_p": 0.2},
    {"top_k": 0, "typical_p": 0.6},
    {"temperature": 0.7, "top_k": 30, "top_p": 0.95, "min_p": 0.05, "typical_p": 0.8},
]


def settings_after(plain: list[int]) -> dict[str, dict]:
    """Settings that change a text generated without them."""
    most_frequent = max(set(plain), key=plain.count)
    return {
        "repetition": {"repetition_penalty": 1.6},
        "encoder-repetition": {"encoder_repetition_penalty": 1.8},
        "source-once": {"encoder_no_repeat_ngram_size": 1},
        "source-pairs": {"encoder_no_repeat_ngram_size": 2, "no_repeat_ngram_size": 3},
        "suppressed": {"suppress_tokens": [most_frequent, plain[2]]},
        "not-first": {"begin_suppress_tokens": [plain[0], most_frequent]},
        "bias": {"sequence_bias": [[[most_frequent], -1.5], [plain[0:2], -4.0], [plain[1:4], 1.0]]},
        "exponential-decay": {"exponential_decay_length_penalty": [3, 1.4]},
        "normalized": {"renormalize_logits": True, "suppress_tokens": [most_frequent], "repetition_penalty": 1.3},
        "all": {
            "sequence_bias": [[[most_frequent], -1.0]], "repetition_penalty": 1.2, "encoder_repetition_penalty": 1.1,
            "no_repeat_ngram_size": 2, "bad_words_ids": [[plain[3]]], "min_new_tokens": 4,
            "exponential_decay_length_penalty": [5, 1.1], "suppress_tokens": [plain[2]], "begin_suppress_tokens": [plain[0]],
            "renormalize_logits": True,
        },
    }  # fmt: skip


def texts(model: torch.nn.Module, sources: torch.Tensor, beams: int, settings: dict) -> tuple[list[list[int]], list, float]:
    """The generated tokens, the scores of beams, and the smallest margin between two choices."""
    found = model.generate(
        sources, attention_mask=torch.ones_like(sources), num_beams=beams, num_return_sequences=beams, do_sample=False,
        max_new_tokens=TOKENS, return_dict_in_generate=True, output_scores=True, **settings,
    )  # fmt: skip
    before = 1 if model.config.is_encoder_decoder else sources.shape[1]
    ends = model.generation_config.eos_token_id
    generated = []
    for row in found.sequences[:, before:].tolist():
        generated.append(row[: row.index(ends)] if ends in row else row)
    if beams > 1:
        scores = found.sequences_scores.view(-1, beams)
        return generated, found.sequences_scores.tolist(), scores.diff(dim=1).abs().min().item() / BEAM_GAP
    best = torch.stack(found.scores).topk(2).values
    return generated, [], (best[..., 0] - best[..., 1]).min().item() / TOKEN_GAP


@torch.no_grad()
def case(model: torch.nn.Module, precise: torch.nn.Module, beams: int, name: str, seed: int) -> dict:
    rows = 2 if beams > 1 and model.config.is_encoder_decoder else 1
    vocabulary = model.config.get_text_config(decoder=True).vocab_size
    for seed in range(seed, seed + 300):
        if (model.config.model_type, name, beams, seed) in CLOSE:
            continue
        sources = draw_ids(vocabulary - 1, (rows, SOURCE), seed, (0, 1, 2))
        plain = texts(model, sources, beams, {})[0]
        if len(plain[0]) < 6:
            continue
        settings = settings_after(plain[0])[name]
        rounded = texts(model, sources, beams, settings)[0]
        with Double():
            generated, scores, gap = texts(precise, sources, beams, settings)
        if gap > 1 and generated == rounded and generated != plain and all(generated):
            return {"settings": settings, "sources": sources.tolist(), "ids": generated, "scores": scores}
    raise RuntimeError(f"no seed for {name}")


@torch.no_grad()
def sampled(model: torch.nn.Module, settings: dict, seed: int) -> dict:
    sources = draw_ids(model.config.vocab_size, (1, SOURCE), seed, (0, 1, 2))
    with Double():
        found = model.generate(
            sources, attention_mask=torch.ones_like(sources), do_sample=True, max_new_tokens=1, num_beams=1,
            return_dict_in_generate=True, output_scores=True, output_logits=True, **settings,
        )  # fmt: skip
        probabilities = found.scores[0][0].softmax(-1)
    logits = found.logits[0][0].float()
    shown = [round(it, 9) for it in probabilities.tolist()]
    return {"settings": {"do_sample": True} | settings, "logits": logits.tolist(), "probabilities": shown}


def main() -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    cases, sampling = [], []
    for name, transformers_class in MODELS.items():
        model = loaded(FIXTURES.parent / name, transformers_class)
        model.generation_config.pad_token_id = model.generation_config.pad_token_id or 0
        precise = doubled(model)
        for beams in (1, BEAMS):
            for index, setting in enumerate(settings_after(list(range(9)))):
                if setting == "normalized" and beams == 1:
                    continue
                found = case(model, precise, beams, setting, 100 * index)
                print(f"{name} {setting} {beams}", flush=True)
                cases.append({"model": name, "name": setting, "beams": beams} | found)
        if name == "models/bart":
            sampling = [sampled(precise, settings, seed) for seed, settings in enumerate(SAMPLING)]
    lines = ["  " + json.dumps(it) for it in cases]
    samples = ["  " + json.dumps(it) for it in sampling]
    text = '{ "tokens": %d, "cases": [\n%s\n], "sampling": [\n%s\n] }\n'
    OUT.write_text(text % (TOKENS, ",\n".join(lines), ",\n".join(samples)))
    print(f"{OUT.name}: {len(cases)} cases, {len(sampling)} samples, {OUT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
