"""Which model types run on our pages, and why others do not.

The list holds what was compared with transformers' own attention, chunked and batched; anything
else may load and compute nonsense without a word, so it is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from worker.model.errors import UnsupportedModel

SUPPORTED = frozenset(
    {
        "cohere",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "glm4",
        "gpt2",
        "gpt_neox",
        "granite",
        "llama",
        "mistral",
        "mixtral",
        "olmo2",
        "opt",
        "phi",
        "phi3",
        "qwen2",
        "qwen3",
        "qwen3_moe",
        "smollm3",
        "starcoder2",
    }
)

REASONS = {
    "bloom": "its ALiBi bias is not part of paged attention",
    "deepseek_v2": "its latent attention (MLA) keeps another kind of K/V",
    "deepseek_v3": "its latent attention (MLA) keeps another kind of K/V",
    "falcon": "its attention does not go through transformers' attention interface",
    "falcon_mamba": "it keeps a recurrent state instead of K/V",
    "gpt_oss": "its attention sinks are not part of paged attention",
    "jamba": "its Mamba layers keep a recurrent state instead of K/V",
    "mamba": "it keeps a recurrent state instead of K/V",
    "mamba2": "it keeps a recurrent state instead of K/V",
    "mpt": "its ALiBi bias is not part of paged attention",
    "qwen3_next": "its linear attention layers keep a recurrent state instead of K/V",
    "rwkv": "it keeps a recurrent state instead of K/V",
}

STATIC_ROPE = frozenset({"default", "linear", "llama3", "yarn"})


def require_supported(model_type: str) -> None:
    """Raises UnsupportedModel unless the type is on the list."""
    if model_type in SUPPORTED:
        return
    reason = REASONS.get(model_type, "it was never compared with its own attention on our pages")
    raise UnsupportedModel(
        f"Model type {model_type!r} is not supported: {reason}. "
        f"Supported types: {', '.join(sorted(SUPPORTED))}."
    )


def require_static_rope(config: Any) -> None:
    """Raises UnsupportedModel where rotary frequencies depend on a batch's longest position."""
    for kind in rope_types(config):
        if kind not in STATIC_ROPE:
            raise UnsupportedModel(
                f"Rotary scaling {kind!r} is not supported: its frequencies are not fixed per "
                f"model, so cached K/V would not stay valid. "
                f"Supported: {', '.join(sorted(STATIC_ROPE))}."
            )


def rope_types(config: Any) -> Iterator[str]:
    """Yields the rotary scaling types of a text config, one per layer kind where they differ."""
    parameters = getattr(config, "rope_parameters", None) or {}
    nested = [value for value in parameters.values() if isinstance(value, dict)]
    for entry in nested or [parameters]:
        yield str(entry.get("rope_type") or "default")
