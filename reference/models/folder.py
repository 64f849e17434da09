"""One folder of fixtures/models/: a tiny checkpoint sampled from a seed, saved, loaded again, and its outputs.

The keys of a golden are transformers' names of the inputs and outputs of a forward pass. A list
of tensors is NAME.0, NAME.1 and so on. Cases beyond the first batch have a prefix, such as `padded.`.

Values are computed in float64 and rounded to float32 once, so that they are more exact than any float32
computation. Float32 must be close (`exact`): where it is not, the weights are too large, and are resampled.
"""

import copy
import functools
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.overrides import TorchFunctionMode

FIXTURES = Path(__file__).resolve().parent.parent.parent / "fixtures" / "models"
IGNORED = -100
NEW_TOKENS = 32
BEAM_TOKENS = 24
BEAMS = 4
EVERYTHING = {"output_hidden_states": True, "output_attentions": True}
QUERIES_AND_KEYS = re.compile(r"\.(q|k|q_proj|k_proj|query|key)\.weight$")
# The tolerance between float32 and float64, relative to a tensor's largest value: outputs and gradients.
OUTPUTS, GRADIENTS = 2e-6, 2e-5

Tensors = dict[str, torch.Tensor]


class Double(TorchFunctionMode):
    """A context in which float32 means float64.

    transformers computes norms, softmaxes, RoPE and beam scores in float32 whatever the dtype of the model. Random
    values stay those of float32.
    """

    def __enter__(self):
        self.before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        torch.set_default_dtype(self.before)

    def __torch_function__(self, function, types, arguments=(), named=None):
        named = named or {}
        if function is torch.randn:
            return function(*arguments, **named | {"dtype": torch.float32}).double()
        if function is torch.Tensor.float:
            function = torch.Tensor.double
        arguments = [wider(it) for it in arguments]
        return function(*arguments, **{name: wider(it) for name, it in named.items()})


def wider(argument):
    return torch.float64 if argument is torch.float32 else argument


def doubled(model: torch.nn.Module) -> torch.nn.Module:
    return copy.deepcopy(model).double()


def exact(compute: Callable[..., Tensors | str]) -> Callable[..., Tensors | str]:
    """Runs a function of a model, its first argument, in float64, and compares its results in float32.

    A reason to reject the model is passed on.
    """

    @functools.wraps(compute)
    def both(model: torch.nn.Module, *arguments, **named) -> Tensors | str:
        if model.dtype == torch.float64:
            return compute(model, *arguments, **named)
        precise = doubled(model)  # Before `compute`, as some models are stateful.
        rounded = compute(model, *arguments, **named)
        if isinstance(rounded, str):
            return rounded
        with Double():
            found = compute(precise, *arguments, **named)
        return found if isinstance(found, str) else compared(found, rounded)

    return both


def compared(precise: Tensors, rounded: Tensors) -> Tensors:
    """The float64 values. Gradients that are zero in exact arithmetic, such as those of key biases, become zeros."""
    assert precise.keys() == rounded.keys()
    largest = {name: it.abs().max().item() for name, it in precise.items()}
    largest_gradient = max((it for name, it in largest.items() if "gradient." in name), default=0.0)
    kept = {}
    for name, value in precise.items():
        if not value.is_floating_point():
            assert torch.equal(value, rounded[name]), f"{name} depends on rounding"
        else:
            assert value.dtype == torch.float64, f"{name} is {value.dtype}"
            is_gradient, scale = "gradient." in name, largest[name]
            if is_gradient and scale < 1e-12 * largest_gradient:
                value, scale = torch.zeros_like(value), largest_gradient
            error = (value - rounded[name]).abs().max().item() / (scale or 1.0)
            bound = GRADIENTS if is_gradient else OUTPUTS
            assert error < bound, f"{name}: float32 is {error:.1e} from float64; sample smaller weights"
        kept[name] = value
    return kept


def saved(
    name: str,
    model: torch.nn.Module,
    seed: int,
    scale: float = 0.25,
    embedding: float = 0.5,
    positions: float | None = None,
    scores: float | None = None,
    boosted: int | None = None,
) -> Path:
    """A new folder with the resampled model. Tied tensors are saved under one name only.

    The embedding of the token `boosted` is tripled, so that some beams end with it.
    """
    folder = FIXTURES / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    resample(model, seed, scale, embedding, positions or embedding, scores or scale)
    if boosted is not None:
        with torch.no_grad():
            model.get_output_embeddings().weight[boosted] *= 3
    model.save_pretrained(folder)
    return folder


def loaded(folder: Path, transformers_class: type) -> torch.nn.Module:
    """Goldens are computed from the saved model. Only eager attention returns its weights."""
    return transformers_class.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()


def reloaded(name: str, model: torch.nn.Module, seed: int, **settings) -> tuple[Path, torch.nn.Module]:
    folder = saved(name, model, seed, **settings)
    return folder, loaded(folder, type(model))


def resample(
    model: torch.nn.Module, seed: int, scale: float, embedding: float, positions: float, scores: float
) -> None:
    """Resamples every parameter: a bias of zero or a norm weight of one would hide that it was not loaded.

    The matrices are large for the width, so that attention is far from uniform. Models with a tied head need even larger
    ones, or the argmax after each token is the token itself; but not those of queries and keys (`scores`), as a
    softmax of large scores amplifies the errors of float32. What transformers never trains (Marian's sinusoids) is
    kept; the one buffer in checkpoints, `final_logits_bias`, is sampled.
    """
    draws = generator(seed)
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            noise = torch.randn(parameter.shape, generator=draws)
            is_learned = "embeddings.weights" in name or name.endswith(("_token", "position_embeddings"))
            if id(parameter) in embeddings or is_learned:
                parameter.copy_((positions if "position" in name else embedding) * noise)
            elif parameter.dim() >= 2:
                parameter.copy_((scores if QUERIES_AND_KEYS.search(name) else scale) * noise)
            elif name.endswith("bias"):
                parameter.copy_(0.1 * noise)
            else:
                parameter.copy_(1 + 0.1 * noise)
        for name, buffer in model.named_buffers():
            if name == "final_logits_bias":
                buffer.copy_(embedding * torch.randn(buffer.shape, generator=draws))


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw_ids(vocabulary: int, shape: tuple[int, ...], seed: int, avoided: tuple[int, ...] = ()) -> torch.Tensor:
    """Token ids, none of them in `avoided`."""
    allowed = torch.tensor([it for it in range(vocabulary) if it not in avoided])
    return allowed[torch.randint(len(allowed), shape, generator=generator(seed))]


def three_rows(length: int, right: int = 4, left: int = 3) -> torch.Tensor:
    """A mask of three rows: unpadded, padded on the right, padded on the left."""
    mask = torch.ones(3, length, dtype=torch.long)
    mask[1, length - right :] = 0
    mask[2, :left] = 0
    return mask


def flat(output: dict, prefix: str = "", only: tuple[str, ...] = ()) -> Tensors:
    """The tensors of a model's output by its names; caches are left out."""
    tensors = {}
    for key, value in output.items():
        if only and key not in only:
            continue
        if isinstance(value, torch.Tensor):
            tensors[prefix + key] = value.reshape(1) if value.dim() == 0 else value
        elif isinstance(value, (tuple, list)) and all(isinstance(it, torch.Tensor) for it in value):
            tensors |= {f"{prefix}{key}.{i}": it for i, it in enumerate(value)}
    return tensors


def given(inputs: Tensors, prefix: str = "") -> Tensors:
    return {prefix + name: tensor for name, tensor in inputs.items()}


@exact
@torch.no_grad()
def case(model: torch.nn.Module, inputs: Tensors, prefix: str = "", only: tuple[str, ...] = (), **settings) -> Tensors:
    """Inputs and outputs of one pass."""
    inputs = as_the_model(model, inputs)
    return given(inputs, prefix) | flat(model(**inputs, **settings), prefix, only)


@exact
@torch.no_grad()
def base(
    model: torch.nn.Module, inputs: Tensors, only: tuple[str, ...] = ("last_hidden_state", "pooler_output"), **settings
) -> Tensors:
    """The hidden states and, if there is one, the pooler's output, which models with heads do not return."""
    return flat(model.base_model(**as_the_model(model, inputs), **settings), only=only)


def as_the_model(model: torch.nn.Module, inputs: Tensors) -> Tensors:
    return {name: it.to(model.dtype) if it.is_floating_point() else it for name, it in inputs.items()}


def gradients(model: torch.nn.Module, loss: torch.Tensor, prefix: str = "", only: str = "") -> Tensors:
    """Under the names of the checkpoint, which for some models differ from the module's.

    A tied tensor has one gradient, the sum of its uses.
    """
    from transformers.core_model_loading import revert_weight_conversion

    model.zero_grad()
    loss.backward()
    found = {name: it.grad for name, it in model.named_parameters() if it.grad is not None}
    found = revert_weight_conversion(model, found)
    model.zero_grad()
    return {f"{prefix}gradient.{name}": it.detach().clone() for name, it in found.items() if only in name}


def searched(first_seed: int, attempt: Callable[[int], Tensors | str]) -> Tensors:
    """The first seed that works. Those in the modules do; if one no longer does, the next seeds are tried."""
    for seed in range(first_seed, first_seed + 2000):
        found = attempt(seed)
        if not isinstance(found, str):
            if seed != first_seed:
                print(f"    seed {seed} in place of {first_seed}")
            return found
    raise RuntimeError(f"no seed from {first_seed} on: {found}")


@exact
@torch.no_grad()
def greedy(model: torch.nn.Module, input_ids: torch.Tensor, prefix: str = "", cached: bool = True, **more) -> Tensors | str:
    """Greedy decoding of 32 tokens, or why they are a poor test: ended early, repetitive, or decided by rounding.

    `greedy_ids` starts with the prompt, or with the decoder's start token where there is an encoder.
    """
    both, more = model.config.is_encoder_decoder, as_the_model(model, more)
    settings = {"do_sample": False, "max_new_tokens": NEW_TOKENS, "attention_mask": torch.ones_like(input_ids), **more}
    ids = model.generate(input_ids, use_cache=cached, **settings)
    new = ids[0, -NEW_TOKENS:]
    if ids.shape[1] != NEW_TOKENS + (1 if both else input_ids.shape[1]):
        return "it is cut short"
    if len(new.unique()) <= 5 or repeats(new.tolist()):
        return "it repeats itself"
    logits = model(input_ids, decoder_input_ids=ids[:, :-1]) if both else model(ids[:, :-1], use_cache=False, **more)
    best = logits.logits[0, -NEW_TOKENS:].topk(2)
    assert torch.equal(best.indices[:, 0], new), "generate did not choose the most probable token"
    margin = (best.values[:, 0] - best.values[:, 1]).min()
    if margin < 2e-3:
        return f"two tokens are within {margin:.1e} of each other"
    without_cache = model.generate(input_ids, use_cache=False, **settings)
    assert torch.equal(ids, without_cache), "decoding with a cache differs from decoding without one"
    return {f"{prefix}prompt_ids": input_ids, f"{prefix}greedy_ids": ids}


def repeats(ids: list[int]) -> bool:
    """Whether the run ends in a cycle of one or two tokens."""
    return ids[-6:-3] == ids[-3:] or ids[-6:-2] == ids[-4:]


SEARCHES = {
    "beams.plain": {"length_penalty": 1.0, "early_stopping": False},
    "beams.long": {"length_penalty": 2.0, "early_stopping": False},
    "beams.short": {"length_penalty": -1.0, "early_stopping": False},
    "beams.early": {"length_penalty": 1.0, "early_stopping": True},
    "beams.never": {"length_penalty": 0.5, "early_stopping": "never"},
}


@torch.no_grad()
def beams(model: torch.nn.Module, input_ids: torch.Tensor, padding: int, extra: dict | None = None) -> Tensors | str:
    """Beam search with four beams, all four returned, best first: [rows * 4, longest], padded with the pad id.

    Row 1 is padded on the right. The same searches in float64 must find the same tokens. At least one hypothesis ends with
    the EOS token, and every setting has an effect, early stopping too.
    """
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1, -padding:] = 0
    exact_model = doubled(model)
    tensors = {"beams.input_ids": input_ids, "beams.attention_mask": attention_mask}
    results = {}
    for name, choice in (SEARCHES | (extra or {})).items():
        settings = {
            "attention_mask": attention_mask, "num_beams": BEAMS, "num_return_sequences": BEAMS, "do_sample": False,
            "max_new_tokens": BEAM_TOKENS, "return_dict_in_generate": True, "output_scores": True, **choice,
        }  # fmt: skip
        found = model.generate(input_ids, **settings)
        ends = (found.sequences[:, 1:] == model.generation_config.eos_token_id).any(1)
        if name == "beams.plain" and not ends.any():
            return "no beam ends by itself"
        with Double():
            precise = exact_model.generate(input_ids, **settings)
        if not torch.equal(found.sequences, precise.sequences):
            return f"rounding decides {name}"
        scores = precise.sequences_scores.view(-1, BEAMS)
        if (scores.diff(dim=1) / scores[:, 1:]).abs().min() < 1e-4:
            return f"two beams of {name} score alike"
        scores_name = f"{name}.scores"
        tensors[f"{name}.ids"] = found.sequences
        tensors |= compared({scores_name: precise.sequences_scores}, {scores_name: found.sequences_scores})
        results[name] = str(found.sequences.tolist())
    if len(set(results.values())) < 4 or results["beams.plain"] == results["beams.early"]:
        return "the settings make little difference"
    return tensors


def write_golden(folder: Path, golden: Tensors) -> None:
    """Writes the golden and prints the folder's line."""
    kept = {}
    for name, tensor in golden.items():
        tensor = tensor.detach().clone().contiguous()  # safetensors refuses tensors that share memory.
        assert tensor.isfinite().all(), f"{folder.name}: {name} is not finite"
        kept[name] = tensor.float() if tensor.is_floating_point() else tensor.long()
    save_file(kept, folder / "golden.safetensors", {"format": "pt"})
    files = {it.name: it.stat().st_size for it in sorted(folder.iterdir())}
    allowed = {"config.json", "generation_config.json", "golden.safetensors", "model.safetensors"}
    assert set(files) <= allowed, f"{folder.name} has {set(files) - allowed}"
    with safe_open(folder / "model.safetensors", "pt") as weights:
        sizes = [weights.get_slice(name).get_shape() for name in weights.keys()]
    parameters = sum(torch.Size(it).numel() for it in sizes)
    print(
        f"{folder.name:<25}{sum(files.values()):>9,} bytes{parameters:>8,} parameters{len(sizes):>5} tensors"
        f"{len(kept):>5} keys",
        flush=True,
    )
