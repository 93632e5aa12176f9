"""Turns a checkpoint of the Llama shape into the lowered member's packed weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kernels.interface import AttentionBackend, AttentionParams
from kernels.ops import Linear, Ops
from worker.model.checkpoint import Checkpoint
from worker.model.heads import VOCABULARY, Classifier, Head, Vocabulary, YesNo
from worker.model.interface import ModelShape
from worker.model.lowered import Layer, LoweredModel, Weights
from worker.model.rotary import Rotary, rotary_of

TYPES = frozenset({"llama", "mistral", "qwen2", "qwen3"})
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
ALLOWED = frozenset(
    {"input_layernorm.weight", "post_attention_layernorm.weight"}
    | {f"self_attn.{name}.{part}" for name in PROJECTIONS for part in ("weight", "bias")}
    | {f"self_attn.{name}_norm.weight" for name in "qk"}
    | {f"mlp.{name}_proj.{part}" for name in ("gate", "up", "down") for part in ("weight", "bias")}
    # Old Llama exports carry this buffer; it is derived from the config.
    | {"self_attn.rotary_emb.inv_freq"}
)
OUTER = frozenset({"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"})
SCORE = "score.weight"


def misfit(config: Any, names: frozenset[str], head: Head = VOCABULARY) -> str | None:
    """Returns why a config and its tensor names are not of the Llama shape, None when they are."""
    if config.model_type not in TYPES:
        return f"model type {config.model_type!r} is not of the Llama shape"
    if config.hidden_act not in ("silu", "swish"):
        return f"its activation is {config.hidden_act!r}"
    partial = (config.rope_parameters or {}).get("partial_rotary_factor")
    if partial not in (None, 1.0):
        return "it rotates only a part of each head"
    outer = OUTER | {SCORE} if isinstance(head, Classifier) else OUTER
    for name in sorted(names - outer):
        prefix, _, rest = name.partition("model.layers.")
        if prefix or rest.partition(".")[2] not in ALLOWED:
            return f"it has the unknown tensor {name!r}"
    return None


@dataclass(frozen=True, slots=True)
class Target:
    """What the lowered weights will run with: computes in the pool's dtype, on the device."""

    ops: Ops
    backend: AttentionBackend
    device: str


def lower(
    config: Any,
    checkpoint: Checkpoint,
    shape: ModelShape,
    target: Target,
    head: Head = VOCABULARY,
) -> LoweredModel:
    """Packs the checkpoint's weights; the caller has asked misfit() first."""
    reader = _Reader(checkpoint, target)
    rotary = rotary_of(config, shape.head_dim)
    layers = tuple(_layer(config, reader, index, shape) for index in range(shape.num_layers))
    tied = config.tie_word_embeddings or "lm_head.weight" not in checkpoint
    on_top = _head(reader, "model.embed_tokens" if tied else "lm_head", head)
    weights = Weights(
        # Mapped anew: packing the head has made every page of that mapping resident.
        embedding=checkpoint.get("model.embed_tokens.weight").to(target.device),
        layers=layers,
        norm=reader.tensor("model.norm.weight"),
        head=on_top,
        rotary=Rotary(rotary.cosine.to(target.device), rotary.sine.to(target.device)),
        epsilon=config.rms_norm_eps,
    )
    return LoweredModel(shape, weights, target.ops, target.backend)


def _head(reader: _Reader, vocabulary: str, head: Head) -> Linear:
    """What the last norm's rows go through. vocabulary: the name of the head over all ids."""
    if isinstance(head, Vocabulary):
        return reader.linear(vocabulary)
    if isinstance(head, YesNo):
        return reader.some_rows(vocabulary, head.ids)
    if isinstance(head, Classifier):
        return reader.linear(SCORE.removesuffix(".weight"))
    return _unchanged


def _unchanged(x: torch.Tensor) -> torch.Tensor:
    return x


class _Reader:
    """Reads a checkpoint's tensors into the target's form."""

    def __init__(self, checkpoint: Checkpoint, target: Target) -> None:
        self._checkpoint = checkpoint
        self._target = target

    def tensor(self, name: str) -> torch.Tensor:
        """A small tensor in the target's dtype, no longer mapped."""
        dtype = self._target.backend.shape.dtype
        return self._checkpoint.get(name).to(self._target.device, dtype, copy=True)

    def optional(self, name: str) -> torch.Tensor | None:
        """The same, None where the checkpoint has no such tensor."""
        return self.tensor(name) if name in self._checkpoint else None

    def some_rows(self, name: str, rows: list[int]) -> Linear:
        """Packs some rows of a projection; nothing else of it becomes resident."""
        weight = self._checkpoint.get(f"{name}.weight")[rows]
        bias = self.optional(f"{name}.bias")
        return self._target.ops.pack(weight, None if bias is None else bias[rows])

    def linear(self, *names: str) -> Linear:
        """Packs the named projections side by side: their outputs follow one another."""
        parts = [self._checkpoint.get(f"{name}.weight") for name in names]
        biases = [self.optional(f"{name}.bias") for name in names]
        present = [bias for bias in biases if bias is not None]
        if not present:
            bias = None
        else:
            bias = torch.cat(
                [
                    torch.zeros(len(part), dtype=present[0].dtype, device=present[0].device)
                    if bias is None
                    else bias
                    for part, bias in zip(parts, biases, strict=True)
                ]
            )
        return self._target.ops.pack(parts[0] if len(parts) == 1 else torch.cat(parts), bias)


def _layer(config: Any, reader: _Reader, index: int, shape: ModelShape) -> Layer:
    prefix = f"model.layers.{index}"
    attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
    return Layer(
        attention_norm=reader.tensor(f"{prefix}.input_layernorm.weight"),
        qkv=reader.linear(*(f"{attention}.{name}_proj" for name in "qkv")),
        query_norm=reader.optional(f"{attention}.q_norm.weight"),
        key_norm=reader.optional(f"{attention}.k_norm.weight"),
        out=reader.linear(f"{attention}.o_proj"),
        mlp_norm=reader.tensor(f"{prefix}.post_attention_layernorm.weight"),
        gate_up=reader.linear(f"{mlp}.gate_proj", f"{mlp}.up_proj"),
        down=reader.linear(f"{mlp}.down_proj"),
        attention=AttentionParams(
            scale=shape.head_dim**-0.5, sliding_window=_sliding_window(config, index)
        ),
    )


def _sliding_window(config: Any, index: int) -> int | None:
    """The window of one layer: by layer_types where the config has them, else for all layers."""
    window: int | None = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is not None and kinds[index] != "sliding_attention":
        return None
    return window
