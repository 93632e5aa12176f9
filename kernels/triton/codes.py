"""Whole numbers with a scale for each vector, as `kernels.codes.encode` gives them, bit for bit."""

from __future__ import annotations

import triton
import triton.language as tl

# 1.5 * 2 ** 23: adding and subtracting it rounds a float32 below 2 ** 22 to an integer, ties even.
ROUNDER: tl.constexpr = tl.constexpr(12582912.0)


@triton.jit
def scales_of(
    largest: tl.tensor, broken: tl.tensor, LARGEST: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """The scale of vectors whose largest element is this, NaN where broken, and its inverse."""
    scale = tl.where(broken, float("nan"), tl.div_rn(largest, LARGEST))
    inverse = tl.where(scale > 0, tl.div_rn(1.0, tl.where(scale > 0, scale, 1.0)), 0.0)
    return scale, inverse


@triton.jit
def coded(x: tl.tensor, inverse: tl.tensor, LARGEST: tl.constexpr) -> tl.tensor:
    """Codes of x, float32 whole numbers. Clamping before rounding keeps out a fused operation."""
    ratio = x * inverse
    ratio = tl.minimum(tl.maximum(tl.where(ratio != ratio, 0.0, ratio), -LARGEST), LARGEST)
    return (ratio + ROUNDER) - ROUNDER
