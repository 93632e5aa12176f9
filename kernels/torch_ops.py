"""The `torch` member of Ops: any device and dtype, and where no compiler is."""

from __future__ import annotations

import torch
from torch.nn import functional


class TorchLinear:
    """A weight as torch keeps it."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Returns x w^T + bias, [T, N], of x [T, K]."""
        return functional.linear(x, self._weight, self._bias)


class TorchOps:
    """Ops in plain torch. Products choose their order of summation by shape: not bitwise."""

    name = "torch"
    bitwise = False

    def __init__(
        self, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
    ) -> None:
        self._device = torch.device(device)
        self._dtype = dtype or torch.float32

    def pack(self, weight: torch.Tensor, bias: torch.Tensor | None) -> TorchLinear:
        """Takes weight [N, K] and bias [N] over to the device and dtype."""
        moved = weight.to(self._device, self._dtype)
        return TorchLinear(moved, None if bias is None else bias.to(self._device, self._dtype))

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        """Returns x / rms(x) * weight over the last axis, computed in float32 or wider."""
        wide = x if x.dtype == torch.float64 else x.float()
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
        return weight * normed.to(x.dtype)

    def add_rms_norm(
        self, x: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, epsilon: float
    ) -> torch.Tensor:
        """Adds delta to x in place, then returns the new x's rms_norm."""
        return self.rms_norm(x.add_(delta), weight, epsilon)

    def rms_norm_heads(self, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> None:
        """Replaces x [T, heads, width] by its rms_norm over the last axis."""
        x.copy_(self.rms_norm(x, weight, epsilon))

    def rope(
        self,
        x: torch.Tensor,
        positions: torch.Tensor,
        cosine: torch.Tensor,
        sine: torch.Tensor,
    ) -> None:
        """Rotates x [T, heads, 2 half] in place (rotate-half layout)."""
        cos, sin = cosine[positions][:, None].to(x.dtype), sine[positions][:, None].to(x.dtype)
        low, high = x.chunk(2, dim=-1)
        x.copy_(torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1))

    def silu_mul(self, x: torch.Tensor) -> torch.Tensor:
        """Returns silu(gate) * up of x [T, 2 width]."""
        gate, up = x.chunk(2, dim=-1)
        return functional.silu(gate) * up
