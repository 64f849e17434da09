"""Makes crates/text/tests/windows.json: pairs in windows of the second text, as transformers' `stride` and
`return_overflowing_tokens` split them for question answering, and each window decoded with its special tokens.

Of the folders of tests/folders, those that transformers 5 loads without sentencepiece. Run from the root of the workspace:
reference/.venv/bin/python reference/windows.py
"""

import json
import os
from pathlib import Path

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import transformers

TESTS = Path(__file__).resolve().parent.parent / "crates/text/tests"

QUESTION = "Is this the end?"
CONTEXT = "Once upon a time there was a small robot 🦀 who played music in a café of Zürich; it's 3,000 minutes long."

# (first, second, length, overlap). The number of tokens of the second text that fit is length less the first and the added ones.
CASES = [
    (QUESTION, CONTEXT, 512, 128),
    (QUESTION, CONTEXT, 40, 0),
    (QUESTION, CONTEXT, 40, 8),
    (QUESTION, CONTEXT, 33, 12),
    ("", CONTEXT, 16, 5),
    ("play", "the robot", 7, 1),
]


def windows(tokenizer, first, second, length, overlap):
    encoded = tokenizer(
        first, second, truncation="only_second", max_length=length, stride=overlap,
        return_overflowing_tokens=True, return_offsets_mapping=True, return_special_tokens_mask=True, return_token_type_ids=True,
    )
    for index, ids in enumerate(encoded["input_ids"]):
        yield {
            "ids": ids,
            "type_ids": encoded["token_type_ids"][index],
            "special_mask": encoded["special_tokens_mask"][index],
            "offsets": encoded["offset_mapping"][index],
            "decoded": tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False),
        }


def main():
    cases = []
    for folder in ["bart", "bert_cased", "bert_uncased"]:
        tokenizer = transformers.AutoTokenizer.from_pretrained(TESTS / "folders" / folder)
        expected = json.loads((TESTS / "folders" / folder / "expected.json").read_text(encoding="utf-8"))
        for pair in expected["pairs"]:
            assert tokenizer(pair["first"], pair["second"])["input_ids"] == pair["ids"], (folder, pair)
        for first, second, length, overlap in CASES:
            found = list(windows(tokenizer, first, second, length, overlap))
            assert all(len(window["ids"]) <= length for window in found)
            print(folder, length, overlap, [len(window["ids"]) for window in found])
            cases.append({
                "folder": folder, "first": first, "second": second, "length": length, "overlap": overlap, "windows": found,
            })
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    (TESTS / "windows.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


main()
