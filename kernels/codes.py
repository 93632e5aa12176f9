"""Vectors as whole numbers with one scale each: K/V in eight bits, and the sketches of dflash.

    code[i] = round(x[i] / scale), ties to even, in [-largest, largest]   scale = max |x| / largest

A vector's codes depend on nothing else. One with a NaN in it has zeros and the scale NaN; one of
zeros has the scale 0. kernels/cpu/pages.h and kernels/triton/codes.py give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Codes:
    """Vectors over the last axis. code: float32 [..., D], whole numbers. scale: float32 [...]."""

    code: torch.Tensor
    scale: torch.Tensor


def encode(x: torch.Tensor, largest: float) -> Codes:
    """Returns x [..., D], any floating dtype, in codes of at most `largest`."""
    x = x.float()
    scale = x.abs().amax(dim=-1) / largest
    inverse = torch.where(scale > 0, 1 / scale, torch.zeros_like(scale))
    code = torch.nan_to_num((x * inverse[..., None]).round()).clamp(-largest, largest)
    return Codes(code, scale)
