"""Makes crates/text/tests/folders/marian: a tiny tokenizer in Marian's files, and its encodings by MarianTokenizer.

    python reference/marian_tokenizers.py

Needs requirements.txt, and sentencepiece 0.2.2 and protobuf 7.36.2 beside it. `source.spm` splits the text, `vocab.json` has
the ids, in an order of its own: it holds most pieces of both languages, language codes, and `<pad>` at the end. Pieces of the
source that it lacks are unknown; characters that only the target language has are found by their text. The class is a slow
tokenizer, so there are neither offsets nor masks, and pairs are not truncated.
"""

import io
import json
import os
import random
import shutil
import warnings
from pathlib import Path

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
warnings.filterwarnings("ignore")

import sentencepiece  # noqa: E402
from sentencepiece import sentencepiece_model_pb2  # noqa: E402
from transformers import MarianTokenizer  # noqa: E402

FOLDER = Path(__file__).resolve().parent.parent / "crates/text/tests/folders/marian"

SOURCE = [
    "The quick brown fox jumps over the lazy dog, and the dog does not mind.",
    "Once upon a time there was a small robot who wanted to play music in the town.",
    "She said: don't worry, it's only 3 o'clock; we've 100, 200 or 3,000 minutes left!",
    "The weather in the mountains changes quickly, so take a coat and a hat.",
    "Playing, played, plays, player: the words of play. Is this the end? No, (not) yet.",
    "the the the and and of of to to in in a a is is was was",
]

TARGET = [
    "Der schnelle braune Fuchs springt über den faulen Hund, und den Hund stört es nicht.",
    "Es war einmal ein kleiner Roboter, der in der Stadt Musik machen wollte.",
    "Das Wetter in den Bergen ändert sich schnell, nimm einen Mantel und einen Hut.",
    "Spielen, gespielt, Spieler: die Wörter des Spiels. Ist das schon das Ende? Nein!",
    "der der die die das das und und ist ist war war",
]

# The replacements of characters, as (from, to).
CHARACTERS = [("ﬁ", "fi"), ("Ａ", "A"), ("e\u0301", "é"), ("\t", " "), ("\n", " "), ("\r", " "), ("\u00a0", " "), ("\u200b", "")]

SENTENCES = [
    "", " ", "the dog", "The Quick Brown Fox", "  two  double   spaces  ", " leading space", "trailing space ",
    "Crème brûlée in a CAFÉ, naïve!", "emoji 🦀 and 👩‍👩‍👧 here", "日本語 and 中文字", "über ändert ö ß",
    "it's 3,000 minutes; don't you think?", "tabs\tand\nnew lines\r\n here", "ﬁne Ａ e\u0301 \u00a0 \u200b q",
    "play <mask> the <extra_id_0> music </s> end <s>x", "the <pad> dog<unk> of play</s>", "zzyzx Ω≈ç√",
    ">>de<< the dog", ">>fr<<the dog", ">>xx<< the dog", " >>de<< the dog", ">>de<<", ">>de the dog", "the >>de<< dog",
    ">>de<< >>fr<< the dog", "Der schnelle Fuchs",
]  # fmt: skip

PAIRS = [("the dog", "a small robot"), ("", "the end"), (">>de<< play", ">>fr<< music"), ("Once upon a time", "")]


def trained(texts: list[str], size: int, **options) -> bytes:
    table = FOLDER / "rules.tsv"
    shown = lambda text: " ".join(f"{ord(it):X}" for it in text)  # noqa: E731
    table.write_text("".join(f"{shown(source)}\t{shown(target)}\n" for source, target in CHARACTERS))
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, model_type="unigram", vocab_size=size, num_threads=1,
        minloglevel=2, hard_vocab_limit=False, character_coverage=0.98, normalization_rule_tsv=str(table), **options,
    )  # fmt: skip
    table.unlink()
    # The trainer records the path of the normalization table.
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    return proto.SerializeToString()


def pieces(model: bytes) -> list[str]:
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    return [it.piece for it in proto.pieces if it.type == 1]


def encoded(tokenizer, *texts: str, **options) -> dict:
    """The class returns no type ids by default, and no model of the family uses them: zeros."""
    ids = tokenizer(*texts, **options)["input_ids"]
    return {"ids": ids, "type_ids": [0] * len(ids)}


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    source = trained(SOURCE, 130)
    target = trained(TARGET, 130)
    (FOLDER / "source.spm").write_bytes(source)
    (FOLDER / "target.spm").write_bytes(target)
    # Every seventh piece of the source is left out.
    kept = [it for index, it in enumerate(pieces(source)) if index % 7 != 3]
    tokens = ["</s>", "<unk>", *sorted(set(kept) | set(pieces(target))), ">>de<<", ">>fr<<", "<pad>"]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    write("vocab.json", vocabulary)
    write("tokenizer_config.json", {"source_lang": "en", "target_lang": "de"})
    write("config.json", {"model_type": "marian"})
    tokenizer = MarianTokenizer.from_pretrained(FOLDER)
    sentences = []
    for text in SENTENCES:
        case = {"text": text, **encoded(tokenizer, text)}
        case["decoded"] = tokenizer.decode(case["ids"], skip_special_tokens=True, clean_up_tokenization_spaces=False)
        sentences.append(case)
    texts = [SENTENCES[2], SENTENCES[11], SENTENCES[0]]
    paddings = []
    for options in [{"padding": True}, {"padding": "max_length", "max_length": 80}]:
        batch = tokenizer(texts, **options)
        paddings.append({
            "texts": texts, "length": options.get("max_length"), "ids": batch["input_ids"],
            "type_ids": [[0] * len(it) for it in batch["input_ids"]], "attention_mask": batch["attention_mask"],
        })  # fmt: skip
    truncations = [
        {"first": text, "second": None, "strategy": strategy, "length": length}
        | encoded(tokenizer, text, truncation=strategy, max_length=length)
        for text in [SENTENCES[3], SENTENCES[17]]
        for strategy in ["longest_first", "only_first"]
        for length in [2, 4, 7]
    ]
    draws = random.Random(7)
    rows = [tokenizer(text_target=text)["input_ids"] for text in TARGET]
    rows += [draws.choices(range(len(vocabulary)), k=12) for _ in range(20)]
    rows += [[vocabulary["▁"]] * 2 + row + [vocabulary["▁"]] * 2 for row in rows[-3:]]
    decodings = [
        {"ids": row, "decoded": tokenizer.decode(row, skip_special_tokens=True, clean_up_tokenization_spaces=False)} for row in rows
    ]
    token = lambda name: getattr(tokenizer, name + "_token")  # noqa: E731
    names = {"beginning": "bos", "end": "eos", "unknown": "unk", "separator": "sep", "class": "cls", "padding": "pad", "mask": "mask"}
    roles = {role: [token(it), getattr(tokenizer, it + "_token_id")] if token(it) else None for role, it in names.items()}
    expected = {
        "vocabulary": len(vocabulary), "roles": roles, "sentences": sentences,
        "pairs": [{"first": one, "second": two, **encoded(tokenizer, one, two)} for one, two in PAIRS],
        "truncations": truncations, "paddings": paddings, "decodings": decodings,
    }  # fmt: skip
    write("expected.json", expected)
    print({it.name: it.stat().st_size for it in FOLDER.iterdir()})


def write(name: str, value: dict) -> None:
    rows = lambda it: "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in it) + "\n]"  # noqa: E731
    text = lambda it: rows(it) if isinstance(it, list) else json.dumps(it, ensure_ascii=False)  # noqa: E731
    lines = ",\n".join(f"{json.dumps(key, ensure_ascii=False)}: {text(it)}" for key, it in value.items())
    (FOLDER / name).write_text("{\n" + lines + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
