"""What a forward of straight code asks for between its attentions. Members: `cpu` and `torch`.

    norm -> linear(qkv) -> [norm of heads] -> rope -> attention -> linear -> add + norm
         -> linear(gate, up) -> silu_mul -> linear

All tensors are [T, ...], one row per flattened token.
"""

from __future__ import annotations

from typing import Protocol

import torch


class Linear(Protocol):
    """A weight [N, K] in the member's own layout, with its optional bias."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Returns x w^T + bias, [T, N], of x [T, K]."""


class Ops(Protocol):
    """Row-wise operations. `bitwise`: a row's result does not depend on the rows beside it."""

    name: str
    bitwise: bool

    def pack(self, weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
        """Takes weight [N, K] and bias [N] over into the member's layout, device and dtype."""

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        """Returns x / rms(x) * weight over the last axis of x [T, width]."""

    def add_rms_norm(
        self, x: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, epsilon: float
    ) -> torch.Tensor:
        """Adds delta to x in place, then returns the new x's rms_norm. Both [T, width], dense."""

    def rms_norm_heads(self, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> None:
        """Replaces x [T, heads, width], a view, by its rms_norm over the last axis."""

    def rope(
        self,
        x: torch.Tensor,
        positions: torch.Tensor,
        cosine: torch.Tensor,
        sine: torch.Tensor,
    ) -> None:
        """Rotates x [T, heads, 2 half], a view, in place (rotate-half layout).

        positions: int64 [T]. cosine, sine: [max position, half], dense.
        """

    def silu_mul(self, x: torch.Tensor) -> torch.Tensor:
        """Returns silu(gate) * up, [T, width], of x [T, 2 width] = gate, then up."""
