"""K/V in eight bits: one scale for each token and kv head, so a token's bits are its own.

    stored[i] = round(x[i] / scale), ties to even, in [-127, 127]      scale = max |x| / 127
    read[i]   = stored[i] * scale                                      error at most scale / 2

A vector depends on no other token, so cached pages hold what computing them again would give. A
vector with a NaN in it reads as NaN everywhere; one of zeros has the scale 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.codes import encode

LARGEST = 127.0


@dataclass(frozen=True, slots=True)
class EightBit:
    """Vectors over the last axis. stored: int8 [..., D]. scale: float32 [...]."""

    stored: torch.Tensor
    scale: torch.Tensor

    def read(self) -> torch.Tensor:
        """Returns what it stands for, float32 [..., D]."""
        return self.stored.float() * self.scale[..., None]


def store(x: torch.Tensor) -> EightBit:
    """Returns x [..., D], any floating dtype, in eight bits."""
    codes = encode(x, LARGEST)
    return EightBit(codes.code.to(torch.int8), codes.scale)
