"""Makes crates/text/tests/folders: tiny tokenizers in the legacy files of Hugging Face, and the encodings of its classes.

Each folder holds the files as a model folder would (vocab.txt, vocab.json + merges.txt, or a SentencePiece model, with
tokenizer_config.json and its neighbours, and no tokenizer.json) and `expected.json`: ids, type ids, masks, offsets, pairs,
truncations, paddings and decoded texts. They come from the fast classes, which are built from the same files;
the folder `t5_byte_fallback` is from the slow class, as the fast one drops byte fallback there.

Decoding is without clean_up_tokenization_spaces, which belongs to Python's wrapper and not to the tokenizer.

Needs requirements-tokenizers.txt in an environment of its own. Run from the root of the workspace:
python reference/tokenizers_of_folders.py
"""

import io
import json
import os
import shutil
import sys
import warnings
from pathlib import Path

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
warnings.filterwarnings("ignore")

import sentencepiece
import tokenizers
import transformers
from transformers.utils import sentencepiece_model_pb2_new

ROOT = Path(__file__).resolve().parent.parent / "crates/text/tests/folders"

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog does not mind.",
    "Once upon a time there was a small robot who wanted to play music in the town.",
    "She said: don't worry, it's only 3 o'clock; we've 100, 200 or 3,000 minutes left!",
    "A café in Zürich sells crème brûlée, naïve jokes and piñatas.",
    "The weather in the mountains changes quickly, so take a coat and a hat.",
    "日本語 and 中文 are written without spaces.",
    "Playing, played, plays, player: the words of play. Is this the end? No, (not) yet.",
    "the the the and and of of to to in in a a is is was was",
]

SENTENCES = [
    "",
    "the dog",
    "The Quick Brown Fox",
    "  two  double   spaces  ",
    " leading space",
    "trailing space ",
    "Crème brûlée in a CAFÉ, naïve!",
    "emoji 🦀 and 👩‍👩‍👧 here",
    "日本語 and 中文字",
    "it's 3,000 minutes; don't you think?",
    "tabs\tand\nnew lines\r\n here",
    "fullwidth ＡＢＣ and ﬁne ligatures e\u0301",
    "play <mask> and [MASK] the <extra_id_0> music </s> end <s>x",
    "``quoted'' words and <|endoftext|> ends",
    "zzyzx Ω≈ç√ \u00a0 \u200b q",
    "[CLS] the [SEP] dog <pad>[PAD] [unk] <unk> of play",
]

PAIRS = [
    ("the dog", "a small robot"),
    ("", "the end"),
    ("Once upon a time there was a small robot", "play"),
    ("play", "Once upon a time there was a small robot"),
    ("Zürich <mask> the", "  日本 🦀"),
]


def write(folder, name, value):
    (folder / name).write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def fresh(name):
    folder = ROOT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def wordpiece_vocabulary(lowercase):
    """A handmade vocabulary: the trainer of the library breaks ties at random."""
    texts = [text.lower() if lowercase else text for text in CORPUS]
    plain = tokenizers.normalizers.Sequence([tokenizers.normalizers.NFD(), tokenizers.normalizers.StripAccents()])
    words = [word for text in texts for word, _ in tokenizers.pre_tokenizers.BertPreTokenizer().pre_tokenize_str(plain.normalize_str(text))]
    characters = sorted({character for word in words for character in word} - {"z"})
    repeated = {word for word in words if len(word) > 1 and words.count(word) > 1}
    whole_words = sorted(repeated | {"play", "quick", "small", "robot"})
    endings = ["##ing", "##ed", "##er", "##ly", "##s", "##es", "##tains"]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters]
    tokens += [*["##" + character for character in characters], *whole_words, *endings]
    return "".join(token + "\n" for token in dict.fromkeys(tokens))


def train_byte_level_bpe(folder, specials):
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(CORPUS, vocab_size=400, min_frequency=2, special_tokens=specials, show_progress=False)
    tokenizer.save_model(str(folder))


def train_sentencepiece(path, model_type, size, rules="identity", **options):
    model = io.BytesIO()
    if rules != "identity":
        table = path.parent / "rules.tsv"
        lines = []
        for source, target in rules:
            hexadecimal = lambda text: " ".join(f"{ord(character):X}" for character in text)
            lines.append(f"{hexadecimal(source)}\t{hexadecimal(target)}\n")
        table.write_text("".join(lines))
        options["normalization_rule_tsv"] = str(table)
    else:
        options["normalization_rule_name"] = "identity"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=model, model_type=model_type, vocab_size=size, num_threads=1,
        minloglevel=2, hard_vocab_limit=False, character_coverage=0.98, **options)
    if rules != "identity":
        table.unlink()
    # The trainer records the path of the normalization table.
    trained = sentencepiece_model_pb2_new.ModelProto.FromString(model.getvalue())
    trained.normalizer_spec.ClearField("normalization_rule_tsv")
    path.write_bytes(trained.SerializeToString())


CHARACTERS = [("ﬁ", "fi"), ("Ａ", "A"), ("Ｂ", "B"), ("Ｃ", "C"), ("e\u0301", "é"), ("\t", " "), ("\n", " "), ("\r", " "),
              ("\u00a0", " "), ("\u200b", "")]


def encoded(tokenizer, *texts, **options):
    fast = tokenizer.is_fast
    result = tokenizer(*texts, return_token_type_ids=True, return_special_tokens_mask=fast, return_offsets_mapping=fast, **options)
    names = {"input_ids": "ids", "token_type_ids": "type_ids", "special_tokens_mask": "special_mask", "offset_mapping": "offsets"}
    return {ours: result[theirs] for theirs, ours in names.items() if theirs in result}


def roles(tokenizer):
    names = {"beginning": "bos", "end": "eos", "unknown": "unk", "separator": "sep", "class": "cls", "padding": "pad", "mask": "mask"}
    found = {}
    for role, name in names.items():
        token = getattr(tokenizer, name + "_token")
        found[role] = None if token is None else [str(token), getattr(tokenizer, name + "_token_id")]
    return found


def truncations(tokenizer):
    if not tokenizer.is_fast:
        # The slow classes distribute the truncation between the texts differently.
        return []
    cases = []
    for first, second in [(PAIRS[2][0], None), *PAIRS[2:4], (SENTENCES[9], SENTENCES[8])]:
        for strategy in ["longest_first", "only_first", "only_second"]:
            for length in [3, 4, 5, 8, 9, 14]:
                if second is None and strategy == "only_second":
                    continue
                case = {"first": first, "second": second, "strategy": strategy, "length": length}
                special = tokenizer.num_special_tokens_to_add(second is not None)
                if special > length:
                    continue
                sizes = [len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in [first, second] if text is not None]
                target = sizes[1 if strategy == "only_second" else 0]
                # The fast classes only warn when the one text that may be truncated is too short, and return all of it. We refuse.
                remove = sum(sizes) + special - length
                case["impossible"] = strategy != "longest_first" and remove > 0 and length > special and target <= remove
                if not case["impossible"]:
                    case.update(encoded(tokenizer, *[text for text in [first, second] if text is not None],
                                        truncation=strategy, max_length=length))
                cases.append(case)
    return cases


def paddings(tokenizer):
    if tokenizer.pad_token is None:
        return []
    texts = [SENTENCES[1], SENTENCES[9], SENTENCES[0]]
    cases = []
    for options in [{"padding": True}, {"padding": "max_length", "max_length": 80}]:
        batch = tokenizer(texts, return_token_type_ids=True, **options)
        cases.append({"texts": texts, "length": options.get("max_length"), "ids": batch["input_ids"],
                      "type_ids": batch["token_type_ids"], "attention_mask": batch["attention_mask"]})
    return cases


def expect(name, tokenizer):
    folder = ROOT / name
    sentences = []
    for text in SENTENCES:
        case = {"text": text, **encoded(tokenizer, text)}
        case["decoded"] = tokenizer.decode(case["ids"], skip_special_tokens=True, clean_up_tokenization_spaces=False)
        sentences.append(case)
    pairs = [{"first": first, "second": second, **encoded(tokenizer, first, second)} for first, second in PAIRS]
    expected = {"vocabulary": max(tokenizer.get_vocab().values()) + 1, "roles": roles(tokenizer), "sentences": sentences, "pairs": pairs,
                "truncations": truncations(tokenizer), "paddings": paddings(tokenizer)}
    lines = ["{"]
    for key, value in expected.items():
        comma = "" if key == "paddings" else ","
        if isinstance(value, list) and value:
            rows = ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in value)
            lines.append(f'"{key}": [\n{rows}\n]{comma}')
        else:
            lines.append(f'"{key}": {json.dumps(value, ensure_ascii=False)}{comma}')
    (folder / "expected.json").write_text("\n".join(lines + ["}\n"]), encoding="utf-8")
    if tokenizer.is_fast and len(sys.argv) > 1:
        # For debugging: the complete tokenizer.json that Hugging Face built.
        tokenizer.backend_tokenizer.save(f"{sys.argv[1]}/{name}.json")


def make_wordpiece():
    folder = fresh("bert_uncased")
    (folder / "vocab.txt").write_text(wordpiece_vocabulary(True), encoding="utf-8")
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    expect("bert_uncased", transformers.BertTokenizerFast.from_pretrained(folder))

    folder = fresh("bert_cased")
    (folder / "vocab.txt").write_text(wordpiece_vocabulary(False), encoding="utf-8")
    write(folder, "tokenizer_config.json", {"do_lower_case": False, "tokenize_chinese_chars": False, "strip_accents": True, "model_max_length": 512})
    write(folder, "config.json", {"model_type": "bert"})
    expect("bert_cased", transformers.BertTokenizerFast.from_pretrained(folder))


def make_byte_level_bpe():
    folder = fresh("gpt2")
    train_byte_level_bpe(folder, ["<|endoftext|>"])
    write(folder, "tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer", "model_max_length": 1024})
    expect("gpt2", transformers.GPT2TokenizerFast.from_pretrained(folder))

    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    folder = fresh("roberta")
    train_byte_level_bpe(folder, specials)
    mask = {"content": "<mask>", "lstrip": True, "normalized": False, "rstrip": False, "single_word": False}
    write(folder, "special_tokens_map.json", {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "</s>",
                                              "pad_token": "<pad>", "cls_token": "<s>", "mask_token": mask})
    expect("roberta", transformers.RobertaTokenizerFast.from_pretrained(folder))

    folder = fresh("bart")
    train_byte_level_bpe(folder, specials)
    tokenizer = transformers.BartTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), add_prefix_space=True, padding_side="left")
    tokenizer.add_tokens(["zzyzx"])
    tokenizer.save_pretrained(folder)
    expect("bart", transformers.BartTokenizerFast.from_pretrained(folder))


def make_sentencepiece():
    t5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    folder = fresh("t5")
    train_sentencepiece(folder / "spiece.model", "unigram", 150, CHARACTERS, **t5)
    transformers.T5Tokenizer(str(folder / "spiece.model"), extra_ids=6).save_pretrained(folder)
    expect("t5", transformers.T5TokenizerFast.from_pretrained(folder))

    folder = fresh("t5_plain")
    train_sentencepiece(folder / "spiece.model", "unigram", 150, **t5)
    write(folder, "tokenizer_config.json", {"legacy": False, "extra_ids": 3})
    write(folder, "config.json", {"model_type": "t5"})
    expect("t5_plain", transformers.T5TokenizerFast.from_pretrained(folder))

    folder = fresh("t5_byte_fallback")
    train_sentencepiece(folder / "spiece.model", "unigram", 400, CHARACTERS, byte_fallback=True, **t5)
    write(folder, "tokenizer_config.json", {"tokenizer_class": "T5Tokenizer", "extra_ids": 0, "additional_special_tokens": None})
    expect("t5_byte_fallback", transformers.T5Tokenizer.from_pretrained(folder))

    albert = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"]}
    folder = fresh("albert")
    train_sentencepiece(folder / "spiece.model", "unigram", 150, CHARACTERS, user_defined_symbols=["(", ")", "3,"], **albert)
    transformers.AlbertTokenizer(str(folder / "spiece.model")).save_pretrained(folder)
    expect("albert", transformers.AlbertTokenizerFast.from_pretrained(folder))

    folder = fresh("big_bird")
    symbols = {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 100 - 97, "control_symbols": ["[SEP]", "[MASK]", "[CLS]"]}
    train_sentencepiece(folder / "spiece.model", "bpe", 200, **symbols)
    transformers.BigBirdTokenizer(str(folder / "spiece.model")).save_pretrained(folder)
    expect("big_bird", transformers.BigBirdTokenizerFast.from_pretrained(folder))

    folder = fresh("reformer")
    train_sentencepiece(folder / "spiece.model", "bpe", 200, CHARACTERS, pad_id=-1, bos_id=-1, eos_id=0, unk_id=1)
    write(folder, "tokenizer_config.json", {"tokenizer_class": "ReformerTokenizer"})
    write(folder, "special_tokens_map.json", {"eos_token": "</s>", "unk_token": "<unk>", "additional_special_tokens": ["<extra_id_0>"]})
    write(folder, "added_tokens.json", {"<extra_id_0>": sentencepiece.SentencePieceProcessor(str(folder / "spiece.model")).get_piece_size()})
    expect("reformer", transformers.ReformerTokenizerFast.from_pretrained(folder))

    folder = fresh("xlm_roberta")
    train_sentencepiece(folder / "sentencepiece.bpe.model", "unigram", 150, CHARACTERS)
    write(folder, "config.json", {"model_type": "xlm-roberta"})
    expect("xlm_roberta", transformers.XLMRobertaTokenizerFast.from_pretrained(folder))

    llama = {"byte_fallback": True, "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True, "split_digits": True,
             "user_defined_symbols": ["  "]}
    folder = fresh("llama")
    train_sentencepiece(folder / "tokenizer.model", "bpe", 450, **llama)
    transformers.LlamaTokenizer(str(folder / "tokenizer.model")).save_pretrained(folder)
    expect("llama", transformers.LlamaTokenizerFast.from_pretrained(folder))

    folder = fresh("llama_new")
    train_sentencepiece(folder / "tokenizer.model", "bpe", 450, **llama)
    tokenizer = transformers.LlamaTokenizer(str(folder / "tokenizer.model"), legacy=False, add_eos_token=True, pad_token="<pad>")
    tokenizer.save_pretrained(folder)
    expect("llama_new", transformers.LlamaTokenizerFast.from_pretrained(folder))


CHAT_ML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful assistant.<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""

LLAMA_2 = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}
{% for message in loop_messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}
    {% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}
    {% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}
{% endfor %}"""

PYTHON = """{%- set found = namespace(count=0) -%}
{%- for message in messages %}
    {%- set found.count = found.count + 1 %}
    {%- if message.content.startswith('skip') %}{% continue %}{% endif %}
{{ found.count }}. {{ message.role | upper }}: {{ message.content.strip().split(' ')[0] }} {{ message | tojson }}
{% endfor %}
{%- if tools is none and not documents %}{{ (messages | length) ~ unk_token }}{% endif %}
{{ {'a': [1, 2.5, true, none], 'é': '<&>'} | tojson(indent=2) }}{{ missing }}
"""

CONVERSATIONS = [
    [{"role": "user", "content": " Hello, <b>robot</b>! "}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": " Hello é "},
     {"role": "user", "content": "skip \"this\"\nline"}],
    [{"role": "assistant", "content": "I begin"}],
]


def make_chats():
    folder = fresh("chat")
    train_byte_level_bpe(folder, ["<s>", "</s>", "<unk>"])
    templates = [{"name": "default", "template": CHAT_ML}, {"name": "llama_2", "template": LLAMA_2}, {"name": "python", "template": PYTHON}]
    write(folder, "tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
                                            "chat_template": templates})
    tokenizer = transformers.GPT2TokenizerFast.from_pretrained(folder)
    cases = []
    for template in templates:
        for messages in CONVERSATIONS:
            for prompt in [False, True]:
                case = {"template": template["name"], "messages": messages, "generation_prompt": prompt, "text": None, "error": None}
                try:
                    case["text"] = tokenizer.apply_chat_template(messages, chat_template=template["name"], tokenize=False,
                                                                 add_generation_prompt=prompt)
                except Exception as error:
                    case["error"] = str(error)
                cases.append(case)
    write(folder, "expected_chats.json", cases)


make_wordpiece()
make_byte_level_bpe()
make_sentencepiece()
make_chats()
