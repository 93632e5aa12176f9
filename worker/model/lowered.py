"""The `lowered` member: the Llama shape as straight code over packed weights.

Covers Llama, Mistral, Qwen2, Qwen3, SmolLM and kin. With bitwise operations and a bitwise backend
a row's logits depend on its own sequence only, bit for bit: not on batch mates, chunking or pages.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.interface import AttentionBackend, AttentionBatch, AttentionParams
from kernels.ops import Linear, Ops
from worker.model.interface import ModelShape
from worker.model.rotary import Rotary


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer. qkv and gate_up are fused; query_norm and key_norm are Qwen3's."""

    attention_norm: torch.Tensor
    qkv: Linear
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    out: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear
    attention: AttentionParams


@dataclass(frozen=True, slots=True)
class Weights:
    """All parameters. embedding: [vocab, hidden], perhaps a view of the mapped checkpoint.

    head: to logits over the vocabulary, or to what the model's task needs instead (`heads`).
    """

    embedding: torch.Tensor
    layers: tuple[Layer, ...]
    norm: torch.Tensor
    head: Linear
    rotary: Rotary
    epsilon: float


class LoweredModel:
    """Model of the Llama shape. Computes in the dtype and on the device of the norms' weights."""

    name = "lowered"

    def __init__(
        self, shape: ModelShape, weights: Weights, ops: Ops, backend: AttentionBackend
    ) -> None:
        self.shape = shape
        self.backend = backend
        self.bitwise = ops.bitwise and backend.bitwise
        # In the order of their first layers.
        self.windows = tuple(
            dict.fromkeys(layer.attention.sliding_window for layer in weights.layers)
        )
        self._weights = weights
        self._ops = ops

    @torch.no_grad()
    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        batch: AttentionBatch,
        rows: torch.Tensor,
    ) -> torch.Tensor:
        """As Model.forward."""
        weights, ops, epsilon = self._weights, self._ops, self._weights.epsilon
        positions = positions.contiguous()
        x = self._embed(token_ids)
        normed = ops.rms_norm(x, weights.layers[0].attention_norm, epsilon)
        following = (*(layer.attention_norm for layer in weights.layers[1:]), weights.norm)
        last = len(weights.layers) - 1
        for index, layer in enumerate(weights.layers):
            attended = self._attend(index, normed, positions, batch)
            if index == last:
                # Nobody attends to what follows: only the requested rows go on.
                attended, x = attended[rows], x[rows]
            normed = ops.add_rms_norm(x, layer.out(attended), layer.mlp_norm, epsilon)
            delta = layer.down(ops.silu_mul(layer.gate_up(normed)))
            normed = ops.add_rms_norm(x, delta, following[index], epsilon)
        return weights.head(normed).float()

    def _embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        embedding, norm = self._weights.embedding, self._weights.norm
        return embedding[token_ids.to(embedding.device)].to(norm.device, norm.dtype)

    def _attend(
        self, index: int, normed: torch.Tensor, positions: torch.Tensor, batch: AttentionBatch
    ) -> torch.Tensor:
        """Writes the layer's K/V and returns the attended values [T, num_heads * head_dim]."""
        layer, ops, shape = self._weights.layers[index], self._ops, self.shape
        heads, kv_heads = shape.num_heads, shape.num_kv_heads
        qkv = layer.qkv(normed).view(-1, heads + 2 * kv_heads, shape.head_dim)
        query, key = qkv[:, :heads], qkv[:, heads : heads + kv_heads]
        value = qkv[:, heads + kv_heads :]
        if layer.query_norm is not None and layer.key_norm is not None:
            ops.rms_norm_heads(query, layer.query_norm, self._weights.epsilon)
            ops.rms_norm_heads(key, layer.key_norm, self._weights.epsilon)
        rotary = self._weights.rotary
        ops.rope(qkv[:, : heads + kv_heads], positions, rotary.cosine, rotary.sine)
        self.backend.write(index, key, value, batch)
        return self.backend.attend(index, query, batch, layer.attention).flatten(1)
