"""Makes `fixtures/gguf/`: tiny Llamas as GGUF files, the same weights as Hugging Face folders, and what they compute.

    python reference/gguf_models.py

Needs gguf and numpy (`pip install gguf==0.19.0 numpy==2.4.6`). Two runs give the same bytes.

    byte-pairs.gguf     grouped-query attention, tied head, every float type and Q8_0; byte-level BPE, a chat template
    pieces.gguf         biases, an untied head, RoPE scaled as in Llama 3.1; SentencePiece BPE
    NAME/               config.json and model.safetensors: the weights of the file, rows in Hugging Face's order
    NAME.safetensors    `input_ids` and the `logits` that numpy computes from the file
"""

import json
import shutil
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as GGMLType
from gguf import GGUFWriter, TokenType, quants

from gguf_llama import Llama

FOLDER = Path(__file__).resolve().parent.parent / "fixtures" / "gguf"
WIDTH, HIDDEN, LAYERS, LENGTH = 32, 32, 2, 64
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    byte_pairs()
    pieces()
    print(f"wrote {FOLDER}")


def byte_pairs() -> None:
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *" \n".translate({32: "Ġ", 10: "Ċ"})]
    tokens += [chr(it) for it in range(ord("a"), ord("z") + 1)] + list("0123456789?.")
    merges = ["Ġ t", "h e", "Ġt he", "c a", "a t", "c at", "Ġ cat", "u s", "us er", "e r", "1 2"]
    tokens += ["".join(it.split()) for it in merges if "".join(it.split()) not in tokens]
    writer = GGUFWriter(FOLDER / "byte-pairs.gguf", "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL] * 3 + [TokenType.NORMAL] * (len(tokens) - 3))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    types = {"token_embd": GGMLType.F16, "attn_q": GGMLType.Q8_0, "attn_k": GGMLType.Q8_0}
    types |= {"ffn_up": GGMLType.Q4_1, "ffn_down": GGMLType.BF16}
    settings = {"heads": 4, "kv_heads": 2, "head_width": 8, "epsilon": 1e-5, "bias": False, "tied": True}
    settings |= {"rope_theta": 1e5, "rope_factor": None}
    write_model(writer, "byte-pairs", 71, len(tokens), settings, types)


def pieces() -> None:
    tokens, scores, types = ["<unk>", "<s>", "</s>"], [0.0, 0.0, 0.0], [TokenType.UNKNOWN] + [TokenType.CONTROL] * 2
    for byte in (10, 33, 195, 169):
        tokens.append(f"<0x{byte:02X}>")
    scores += [0.0] * 4
    types += [TokenType.BYTE] * 4
    words = ["▁t", "he", "▁the", "▁c", "at", "▁cat", "in", "ing", "▁", *"etaoinshrdlucmfwypvbgkjqxz"]
    tokens += words
    scores += [-float(i) for i in range(len(words))]
    types += [TokenType.NORMAL] * len(words)
    writer = GGUFWriter(FOLDER / "pieces.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    settings = {"heads": 2, "kv_heads": 2, "head_width": 16, "epsilon": 1e-6, "bias": True, "tied": False}
    settings |= {"rope_theta": 5e5, "rope_factor": 8.0}
    write_model(writer, "pieces", 73, len(tokens), settings, {})


def write_model(writer: GGUFWriter, name: str, seed: int, vocabulary: int, settings: dict, types: dict[str, GGMLType]) -> None:
    """Writes the metadata and the weights, the Hugging Face folder of the same weights, and the logits of some ids.

    `types` has the type of a matrix, by its part of the model. All other tensors are F32.
    """
    writer.add_vocab_size(vocabulary)
    writer.add_context_length(LENGTH)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(settings["heads"])
    writer.add_head_count_kv(settings["kv_heads"])
    writer.add_layer_norm_rms_eps(settings["epsilon"])
    writer.add_rope_freq_base(settings["rope_theta"])
    writer.add_rope_dimension_count(settings["head_width"])
    stored = {}
    for tensor, shape in shapes(vocabulary, settings).items():
        part = tensor.split(".")[-2]
        seed += 1
        sampled = np.random.default_rng(seed).standard_normal(shape) * 0.3 + (1 if part.endswith("norm") else 0)
        type = types.get(part, GGMLType.F32) if len(shape) == 2 else GGMLType.F32
        values = quants.quantize(sampled.astype("<f4"), type)
        writer.add_tensor(tensor, values, raw_dtype=type)
        stored[tensor] = quants.dequantize(values, type)
    if settings["rope_factor"]:
        writer.add_tensor("rope_freqs.weight", llama3_factors(settings).astype("<f4"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    write_folder(name, vocabulary, settings, stored)
    ids = np.random.default_rng(seed).integers(0, vocabulary, 12)
    logits = Llama(FOLDER / f"{name}.gguf").forward(list(ids))
    safetensors(FOLDER / f"{name}.safetensors", {"input_ids": ids[None].astype("<i8"), "logits": logits[None].astype("<f4")})


def shapes(vocabulary: int, settings: dict) -> dict[str, tuple]:
    inner, kv = (settings[it] * settings["head_width"] for it in ("heads", "kv_heads"))
    found = {"token_embd.weight": (vocabulary, WIDTH)}
    for layer in range(LAYERS):
        projections = {"attn_q": (inner, WIDTH), "attn_k": (kv, WIDTH), "attn_v": (kv, WIDTH), "attn_output": (WIDTH, inner)}
        projections |= {"ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH), "ffn_down": (WIDTH, HIDDEN)}
        found |= {f"blk.{layer}.{norm}.weight": (WIDTH,) for norm in ("attn_norm", "ffn_norm")}
        found |= {f"blk.{layer}.{it}.weight": shape for it, shape in projections.items()}
        if settings["bias"]:
            found |= {f"blk.{layer}.{it}.bias": shape[:1] for it, shape in projections.items()}
    if not settings["tied"]:
        found["output.weight"] = (vocabulary, WIDTH)
    return found | {"output_norm.weight": (WIDTH,)}


def llama3_factors(settings: dict) -> np.ndarray:
    """As llama.cpp's converter computes them from Llama 3.1's config, with its factors 1 and 4 and its 8192 positions."""
    pairs = np.arange(settings["head_width"] // 2)
    wavelengths = 2 * np.pi * settings["rope_theta"] ** (2 * pairs / settings["head_width"])
    smooth = np.clip((8192 / wavelengths - 1) / 3, 0, 1)
    return 1 / ((1 - smooth) / settings["rope_factor"] + smooth)


def write_folder(name: str, vocabulary: int, settings: dict, stored: dict[str, np.ndarray]) -> None:
    """The same model for Hugging Face, whose RoPE rotates the halves of a head: query and key rows are permuted."""
    rope = {"rope_type": "default", "rope_theta": settings["rope_theta"]}
    if settings["rope_factor"]:
        rope |= {"rope_type": "llama3", "factor": settings["rope_factor"], "original_max_position_embeddings": 8192}
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocabulary, "hidden_size": WIDTH,
        "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": settings["heads"],
        "num_key_value_heads": settings["kv_heads"], "head_dim": settings["head_width"], "hidden_act": "silu",
        "max_position_embeddings": LENGTH, "rms_norm_eps": settings["epsilon"], "rope_parameters": rope,
        "tie_word_embeddings": settings["tied"], "attention_bias": settings["bias"],
        "mlp_bias": settings["bias"], "bos_token_id": 1, "eos_token_id": 2,
    }
    folder = FOLDER / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tensors = {}
    for tensor, values in stored.items():
        *layer, part, end = tensor.split(".")
        if part in ("attn_q", "attn_k"):
            rows = values.reshape(-1, settings["head_width"] // 2, 2, *values.shape[1:])
            values = rows.swapaxes(1, 2).reshape(values.shape)
        prefix = f"model.layers.{layer[1]}." if layer else ""
        tensors[f"{prefix}{NAMES[part]}.{end}"] = values
    safetensors(folder / "model.safetensors", tensors)


def safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    header, data = {}, b""
    for name, values in sorted(tensors.items()):
        values = values.astype("<f4") if values.dtype.kind == "f" else values
        bytes_ = np.ascontiguousarray(values).tobytes()
        dtype = "F32" if values.dtype.kind == "f" else "I64"
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(bytes_)]}
        data += bytes_
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


if __name__ == "__main__":
    main()
