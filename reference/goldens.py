"""Makes the model folders of fixtures/: tiny checkpoints, and what PyTorch and transformers compute with them.

Each fixture is a complete Hugging Face model folder plus `golden.safetensors`, whose tensors are the oracle of the
Rust tests: outputs, padded and positioned batches, loss and every gradient, ten training steps, greedy decoding.
Sampling is seeded: two runs on one machine write the same bytes. Another CPU may round the last bits differently.
"""

import copy
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PreTrainedConfig, PreTrainedModel

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
IGNORED = -100
NEW_TOKENS = 32

Tensors = dict[str, torch.Tensor]


@dataclass
class Fixture:
    name: str
    config: PreTrainedConfig
    seed: int
    # Found by search: a random model soon repeats one token, and such a run would not notice a broken cache.
    prompt_seed: int
    # An embedding, a norm and a matrix in the middle: enough to see that the optimizer treats each kind alike.
    trained: list[str]


def fixtures() -> list[Fixture]:
    """The three checkpoints. Their sizes differ from one another so that a swapped axis cannot go unnoticed."""
    gpt2 = GPT2Config(
        vocab_size=97,
        n_positions=48,
        n_embd=32,
        n_layer=3,
        n_head=4,
        n_inner=None,
        activation_function="gelu_new",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        summary_first_dropout=0.0,
        bos_token_id=96,
        eos_token_id=96,
    )
    llama = LlamaConfig(
        vocab_size=101,
        hidden_size=32,
        intermediate_size=72,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
    )
    llama_tied = LlamaConfig(
        vocab_size=67,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=6,
        head_dim=12,  # Not 48 / 6: the heads together are wider than the model.
        max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        attention_bias=True,
        mlp_bias=True,
        bos_token_id=1,
        eos_token_id=2,
    )
    gpt2_trained = ["transformer.wte.weight", "transformer.ln_f.weight", "transformer.h.1.mlp.c_fc.weight"]
    llama_trained = ["model.embed_tokens.weight", "model.norm.weight", "model.layers.1.mlp.up_proj.weight"]
    return [
        Fixture("gpt2", gpt2, seed=1700, prompt_seed=1734, trained=gpt2_trained),
        Fixture("llama", llama, seed=2700, prompt_seed=2725, trained=llama_trained),
        Fixture("llama-tied", llama_tied, seed=4000, prompt_seed=4060, trained=llama_trained),
    ]


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for fixture in fixtures():
        make_fixture(fixture)
    make_dtypes(FIXTURES / "gpt2", FIXTURES / "gpt2-dtypes")
    total = sum(file.stat().st_size for file in FIXTURES.rglob("*") if file.is_file())
    print(f"{'total':<16}{total:>10,} bytes")


def make_fixture(fixture: Fixture) -> None:
    folder = empty_folder(fixture.name)
    model = AutoModelForCausalLM.from_config(fixture.config)
    resample_parameters(model, fixture.seed)
    # save_pretrained leaves a tied lm_head out, as safetensors cannot hold one tensor under two names.
    model.save_pretrained(folder)

    # Goldens are computed from the saved model. Only eager attention returns its weights.
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    input_ids = draw_ids(model, (2, 24), fixture.seed + 1)
    golden = {
        **outputs(model, input_ids),
        **padded(model, draw_ids(model, (3, 20), fixture.seed + 2)),
        **positioned(model, draw_ids(model, (2, 10), fixture.seed + 3)),
        **loss_and_gradients(model, input_ids),
        **training(model, draw_ids(model, (10, 2, 25), fixture.seed + 4), fixture.trained),
        **greedy(model, draw_ids(model, (1, 5), fixture.prompt_seed)),
    }
    save_tensors(golden, folder / "golden.safetensors")
    report(folder)


def resample_parameters(model: PreTrainedModel, seed: int) -> None:
    """Resamples every parameter: a bias of zero or a norm weight of one would hide that it was not loaded."""
    generator = torch.Generator().manual_seed(seed)
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if id(parameter) in embeddings:
                parameter.copy_(0.5 * noise)
            elif parameter.dim() >= 2:
                parameter.copy_(0.15 * noise)
            elif name.endswith("bias"):
                parameter.copy_(0.1 * noise)
            else:
                parameter.copy_(1 + 0.1 * noise)


@torch.no_grad()
def outputs(model: PreTrainedModel, input_ids: torch.Tensor) -> Tensors:
    """All outputs of one pass. The last of the hidden states is after the final norm; the others are before it."""
    output = model(input_ids, output_hidden_states=True, output_attentions=True, use_cache=False)
    golden = {
        "input_ids": input_ids,
        "logits": output.logits,
        "last_hidden_state": model.base_model(input_ids, use_cache=False).last_hidden_state,
    }
    golden |= {f"hidden_states.{i}": state for i, state in enumerate(output.hidden_states)}
    golden |= {f"attentions.{i}": weights for i, weights in enumerate(output.attentions)}
    return golden


@torch.no_grad()
def padded(model: PreTrainedModel, input_ids: torch.Tensor) -> Tensors:
    """One full row, one padded on the right, one padded on the left. Compare only where the mask is 1.

    The forward pass of GPT-2 and Llama ignores the mask when it creates position ids: every row gets
    0, 1, .., length - 1, so the first real token of the left-padded row is at position 5. (Only `generate` counts
    positions from the mask.) A padded query on the left has no key to attend to: transformers adds float32's minimum
    to its scores rather than minus infinity, which makes its weights uniform over all keys and its logits meaningless.
    The ids at padding are ordinary ones, so a leaking mask changes the logits.
    """
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1, -7:] = 0
    attention_mask[2, :5] = 0
    logits = model(input_ids, attention_mask=attention_mask, use_cache=False).logits
    return {"padded.input_ids": input_ids, "padded.attention_mask": attention_mask, "padded.logits": logits}


@torch.no_grad()
def positioned(model: PreTrainedModel, input_ids: torch.Tensor) -> Tensors:
    """Position ids given by the caller: one row starts at 3, the other holds its position as left padding would.

    The mask stays plainly causal. It has to be passed as ones: without a mask and a cache, transformers takes position
    ids that do not rise by one for packed sequences, and forbids attention between them.
    """
    length = input_ids.shape[1]
    position_ids = torch.stack([torch.arange(length) + 3, (torch.arange(length) - 3).clamp(min=0)])
    logits = model(
        input_ids, attention_mask=torch.ones_like(input_ids), position_ids=position_ids, use_cache=False
    ).logits
    return {"positioned.input_ids": input_ids, "positioned.position_ids": position_ids, "positioned.logits": logits}


def loss_and_gradients(model: PreTrainedModel, ids: torch.Tensor) -> Tensors:
    """The mean loss over the targets that are not ignored, its gradients, and the same loss with label smoothing."""
    input_ids, targets = ids[:, :-1], ids[:, 1:].clone()
    targets[0, :3] = IGNORED
    targets[1, 11] = IGNORED
    targets[1, -4:] = IGNORED

    model.zero_grad()
    logits = model(input_ids, use_cache=False).logits
    loss = cross_entropy(logits, targets)
    loss.backward()
    golden = {
        "loss.input_ids": input_ids,
        "loss.targets": targets,
        "loss.value": loss.reshape(1),
        "smoothed.value": cross_entropy(logits, targets, label_smoothing=0.1).reshape(1),
    }
    # A tied matrix is listed once, under the name of the embedding, and its gradient is the sum of both uses.
    golden |= {f"gradient.{name}": parameter.grad for name, parameter in model.named_parameters()}
    golden = {name: tensor.detach().clone() for name, tensor in golden.items()}
    model.zero_grad()
    return golden


def training(model: PreTrainedModel, ids: torch.Tensor, trained: list[str]) -> Tensors:
    """Ten AdamW steps on a copy: one batch each, clipped to a norm of one, with weight decay on the matrices only."""
    model = copy.deepcopy(model).train()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ],
        lr=1e-3,
        betas=(0.9, 0.95),
        eps=1e-8,
    )
    losses, gradient_norms = [], []
    for batch in ids:
        loss = cross_entropy(model(batch[:, :-1], use_cache=False).logits, batch[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        gradient_norms.append(torch.nn.utils.clip_grad_norm_(parameters, 1.0))
        optimizer.step()
        losses.append(loss.detach())
    golden = {
        "training.ids": ids,
        "training.losses": torch.stack(losses),
        "training.gradient_norms": torch.stack(gradient_norms),
    }
    golden |= {f"training.final.{name}": model.get_parameter(name).detach() for name in trained}
    return golden


@torch.no_grad()
def greedy(model: PreTrainedModel, prompt_ids: torch.Tensor) -> Tensors:
    """Greedy decoding of 32 tokens. Refuses a run that is a poor test: ended early, repetitive, or decided by rounding."""
    settings = {"do_sample": False, "max_new_tokens": NEW_TOKENS, "attention_mask": torch.ones_like(prompt_ids)}
    greedy_ids = model.generate(prompt_ids, use_cache=True, **settings)
    without_cache = model.generate(prompt_ids, use_cache=False, **settings)
    new_ids = greedy_ids[0, prompt_ids.shape[1] :]
    assert torch.equal(greedy_ids, without_cache), "decoding with a cache differs from decoding without one"
    assert len(new_ids) == NEW_TOKENS, f"the run ended after {len(new_ids)} tokens: draw another prompt"
    assert len(new_ids.unique()) > 5, "the run repeats itself: draw another prompt"
    assert model.config.eos_token_id not in new_ids, "the run holds the end token: draw another prompt"

    best_two = model(greedy_ids[:, :-1], use_cache=False).logits[0, -NEW_TOKENS:].topk(2)
    margin = (best_two.values[:, 0] - best_two.values[:, 1]).min().item()
    assert torch.equal(best_two.indices[:, 0], new_ids), "generate did not choose the most probable token"
    assert margin > 1e-2, f"two tokens are within {margin:.1e} of each other: draw another prompt"
    return {"prompt_ids": prompt_ids, "greedy_ids": greedy_ids}


@torch.no_grad()
def make_dtypes(source: Path, folder: Path) -> None:
    """The weights of `source` stored in half precision, and the logits after they are read and widened to float32."""
    folder = empty_folder(folder.name)
    shutil.copy(source / "config.json", folder)
    model = AutoModelForCausalLM.from_pretrained(source, attn_implementation="eager", dtype=torch.float32).eval()
    weights = load_file(source / "model.safetensors")
    input_ids = load_file(source / "golden.safetensors")["input_ids"]
    golden = {"input_ids": input_ids}
    for name, dtype in [("float16", torch.float16), ("bfloat16", torch.bfloat16)]:
        path = folder / f"{name}.safetensors"
        halves = {key: tensor.to(dtype) for key, tensor in weights.items()}
        save_tensors(halves, path)
        # The same as PyTorch saves it, in the zip format and in the legacy one before 1.6.
        torch.save(halves, folder / f"{name}.bin", _use_new_zipfile_serialization=name == "float16")
        widened = {key: tensor.float() for key, tensor in load_file(path).items()}
        unmatched = model.load_state_dict(widened, strict=False)
        assert unmatched.missing_keys == ["lm_head.weight"] and not unmatched.unexpected_keys, unmatched
        golden[f"{name}.logits"] = model(input_ids, use_cache=False).logits
    save_tensors(golden, folder / "golden.safetensors")
    report(folder)


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor, label_smoothing: float = 0.0) -> torch.Tensor:
    return F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=IGNORED, label_smoothing=label_smoothing
    )


def draw_ids(model: PreTrainedModel, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    return torch.randint(model.config.vocab_size, shape, generator=torch.Generator().manual_seed(seed))


def save_tensors(tensors: Tensors, path: Path) -> None:
    # Cloned, because safetensors refuses tensors that share memory, as the last hidden state does with its list.
    save_file({name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}, path, {"format": "pt"})


def empty_folder(name: str) -> Path:
    folder = FIXTURES / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def report(folder: Path) -> None:
    files = sorted(folder.iterdir())
    sizes = ", ".join(f"{file.name} {file.stat().st_size:,}" for file in files)
    print(f"{folder.name:<16}{sum(file.stat().st_size for file in files):>10,} bytes: {sizes}")


if __name__ == "__main__":
    main()
