"""What a model takes, and what fits: plain arithmetic. No torch, no weights.

    K and V of a token = 2 x layers x kv heads x head dim x bytes of a number

The worker's start asks it by a call (`token_bytes`); `footprint` and `planner` do for `pando check`
and `pando plan`. Sliding-window layers keep all of a context's pages here, as the worker does; what
only a window would take is told apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# An eight-bit vector's scale; a key's sketch has four bits per dimension, in sixteens, and a scale.
SCALE_BYTES = 4
SKETCH_DIMS, SKETCH_BYTES = 16, 8
# What stays beside weights and K/V: activations, kernels' workspace, the runtime.
RESERVED_SHARE = 0.1
# What is left free of the cached tokens for what runs.
LEFT_SHARE = 0.2
PAGE_TOKENS = 16
MOST = 2**40


class BadPlan(ValueError):
    """A value is wrong; the text names field, value and allowed range."""


@dataclass(frozen=True, slots=True)
class Heads:
    """What decides K/V: layers, K/V heads (with grouped queries fewer than query heads), width.

    windows: tokens that each sliding-window layer looks back; layers that see all are not in it.
    """

    layers: int
    kv_heads: int
    head_dim: int
    windows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class KvFormat:
    """number_bytes: of one number as it is computed with. As kernels keep K/V."""

    number_bytes: int
    eight_bit: bool = False
    sketched: bool = False


def head_bytes(head_dim: int, kept: KvFormat) -> int:
    """K and V of one token in one head of one layer, with scales and sketches."""
    width = head_dim + SCALE_BYTES if kept.eight_bit else head_dim * kept.number_bytes
    sketch = -(-head_dim // SKETCH_DIMS) * SKETCH_BYTES + SCALE_BYTES if kept.sketched else 0
    return 2 * width + sketch


def token_bytes(heads: Heads, kept: KvFormat) -> int:
    """K and V of one token over all layers."""
    return heads.layers * heads.kv_heads * head_bytes(heads.head_dim, kept)


def needed_bytes(heads: Heads, kept: KvFormat, context: int) -> int:
    """K and V of a context where a sliding-window layer keeps its window only."""
    each = heads.kv_heads * head_bytes(heads.head_dim, kept)
    whole = (heads.layers - len(heads.windows)) * context
    return each * (whole + sum(min(window, context) for window in heads.windows))


def heads_of(config: Mapping[str, Any]) -> Heads | None:
    """What a config.json says, nested or not; None where it doesn't tell."""
    text = text_config(config)
    layers = _first(text, "num_hidden_layers", "n_layer", "num_layers")
    queries = _first(text, "num_attention_heads", "n_head", "num_heads")
    hidden = _first(text, "hidden_size", "n_embd")
    width = _first(text, "head_dim")
    if layers is None or queries is None or (hidden is None and width is None):
        return None
    kv_heads = _first(text, "num_key_value_heads", "num_kv_heads") or queries
    return Heads(layers, kv_heads, width or (hidden or 0) // queries, _windows(text, layers))


def parameters_of(config: Mapping[str, Any]) -> int | None:
    """About how many numbers a config's model has, by the Llama shape; None: it doesn't tell.

    An output head that is tied to the embeddings counts once.
    """
    text, heads = text_config(config), heads_of(config)
    queries = _first(text, "num_attention_heads")
    hidden, vocabulary = _first(text, "hidden_size"), _first(text, "vocab_size")
    inner = _first(text, "moe_intermediate_size", "intermediate_size")
    if heads is None or not (hidden and vocabulary and inner and queries):
        return None
    experts = _first(text, "num_local_experts", "num_experts") or 1
    tied = bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings")))
    attention = 2 * hidden * heads.head_dim * (queries + heads.kv_heads)
    layer = attention + 3 * hidden * inner * experts + 2 * hidden
    return heads.layers * layer + hidden * (vocabulary * (1 if tied else 2) + 1)


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part that describes the decoder."""
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def _first(text: Mapping[str, Any], *names: str) -> int | None:
    found = (text.get(name) for name in names)
    return next((one for one in found if isinstance(one, int) and one > 0), None)


def _windows(text: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """By the layers' own types, else by the patterns that families without them follow."""
    window = text.get("sliding_window")
    if not isinstance(window, int) or text.get("use_sliding_window") is False:
        return ()
    types = text.get("layer_types")
    if isinstance(types, list):
        return (window,) * types.count("sliding_attention")
    family = text.get("model_type")
    if family == "gemma2":
        return (window,) * (layers - layers // 2)
    if family in ("gemma3", "gemma3_text"):
        pattern = text.get("sliding_window_pattern")
        return (window,) * (layers - layers // (pattern if isinstance(pattern, int) else 6))
    if family == "qwen2":
        first = text.get("max_window_layers")
        return (window,) * max(layers - (first if isinstance(first, int) else layers), 0)
    return (window,) * layers


@dataclass(frozen=True, slots=True)
class _Parts:
    """Of a request, in tokens of whole pages: what all share, and what is its own."""

    shared: int
    own: int

    @property
    def whole(self) -> int:
        """Both."""
        return self.shared + self.own


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be planned. memory: bytes in all; None: only what would be needed.

    weights: numbers of the model. context: tokens of the longest request; shared: of them, what all
    requests begin with. concurrency: requests together.
    """

    parameters: int
    layers: int
    kv_heads: int
    head_dim: int
    memory: int | None = None
    dtype: str = "bfloat16"
    kv_cache_dtype: str = "auto"
    dflash: bool = False
    context: int = 4096
    concurrency: int = 16
    shared: int = 0
    windows: tuple[int, ...] = ()


class Plan(msgspec.Struct, frozen=True):
    """What fits and what is needed. Bytes and tokens; the fields behind `fits` only with a memory.

    per_request: tokens that a request alone takes, in whole pages. window_bytes: of needed K/V if
    sliding-window layers kept their window only; the worker keeps all. requests, unshared_requests:
    that run together, the shared beginning held once or in each. alternatives: bytes of a token in
    each format.
    """

    bytes_per_token: int
    weights_bytes: int
    per_request: int
    needed_tokens: int
    needed_kv_bytes: int
    needed_bytes: int
    unshared_kv_bytes: int
    window_bytes: int
    alternatives: dict[str, int]
    fits: bool | None = None
    kv_memory: int = 0
    tokens: int = 0
    requests: int = 0
    unshared_requests: int = 0
    max_cached_tokens: int = 0
    max_running_sequences: int = 0


def plan(wanted: Wanted) -> Plan:
    """What the wish comes to. Raises BadPlan."""
    check(wanted)
    heads = Heads(wanted.layers, wanted.kv_heads, wanted.head_dim, wanted.windows)
    number = DTYPE_BYTES[wanted.dtype]
    kept = KvFormat(number, wanted.kv_cache_dtype == "int8", wanted.dflash)
    each, weights = token_bytes(heads, kept), wanted.parameters * number
    parts = _parts(wanted)
    needed = parts.shared + wanted.concurrency * parts.own
    shrunk = needed_bytes(heads, kept, wanted.context) * wanted.concurrency
    alone = wanted.concurrency * parts.whole
    found = Plan(
        bytes_per_token=each,
        weights_bytes=weights,
        per_request=parts.whole,
        needed_tokens=needed,
        needed_kv_bytes=needed * each,
        needed_bytes=math.ceil((weights + needed * each) / (1 - RESERVED_SHARE)),
        unshared_kv_bytes=alone * each,
        window_bytes=shrunk if heads.windows else alone * each,
        alternatives={
            name: token_bytes(heads, one)
            for name, one in (
                ("plain", KvFormat(number)),
                ("int8", KvFormat(number, eight_bit=True)),
                ("dflash", KvFormat(number, sketched=True)),
                ("int8 and dflash", KvFormat(number, eight_bit=True, sketched=True)),
            )
        },
    )
    return found if wanted.memory is None else _fitted(found, wanted, wanted.memory)


def _parts(wanted: Wanted) -> _Parts:
    """In whole pages: what is shared rounds down, and a request's own rounds up."""
    shared = wanted.shared // PAGE_TOKENS * PAGE_TOKENS
    return _Parts(shared, -(-(wanted.context - shared) // PAGE_TOKENS) * PAGE_TOKENS)


def _fitted(found: Plan, wanted: Wanted, memory: int) -> Plan:
    """With what the memory holds."""
    room = int(memory * (1 - RESERVED_SHARE)) - found.weights_bytes
    tokens = max(room, 0) // (found.bytes_per_token * PAGE_TOKENS) * PAGE_TOKENS
    parts = _parts(wanted)
    requests = max(tokens - parts.shared, 0) // parts.own
    return msgspec.structs.replace(
        found,
        fits=tokens >= found.needed_tokens,
        kv_memory=tokens * found.bytes_per_token,
        tokens=tokens,
        requests=requests,
        unshared_requests=tokens // parts.whole,
        max_cached_tokens=int(tokens * (1 - LEFT_SHARE)),
        max_running_sequences=requests,
    )


def check(wanted: Wanted) -> None:
    """Raises BadPlan where a value is out of its range."""
    for name in ("parameters", "layers", "kv_heads", "head_dim", "context", "concurrency"):
        if not 1 <= getattr(wanted, name) <= MOST:
            raise BadPlan(f"{name} is {getattr(wanted, name)}: from 1 to {MOST}.")
    if wanted.memory is not None and not 1 <= wanted.memory <= MOST * 1024:
        raise BadPlan(f"memory is {wanted.memory}: from 1 to {MOST * 1024} bytes.")
    if not 0 <= wanted.shared < wanted.context:
        raise BadPlan(
            f"shared_prefix is {wanted.shared}: from 0 to context - 1, which is "
            f"{wanted.context - 1}."
        )
    for name, known in (("dtype", tuple(DTYPE_BYTES)), ("kv_cache_dtype", ("auto", "int8"))):
        if getattr(wanted, name) not in known:
            raise BadPlan(f"{name} is {getattr(wanted, name)!r}: one of {', '.join(known)}.")


def wanted_of(model: Mapping[str, Any], told: Mapping[str, Any]) -> Wanted:
    """What the model's files say, and over it what is told. Raises BadPlan."""
    try:
        return msgspec.convert({**model, **told}, Wanted)
    except msgspec.ValidationError as error:
        missing = str(error).rpartition("`")[0].rpartition("`")[2]
        raise BadPlan(
            f"{missing} is not known: name a model whose files tell it, or give a number with "
            f"--{missing.replace('_', '-')}."
        ) from error
