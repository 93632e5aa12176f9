"""Stores new keys and values in their slots, in eight bits where asked, and keeps the bounds.

A program stores some tokens of one kv head. Where the pool is bounded a second launch, which sees
what the first one stored, makes the bounds of each tile anew from its lanes up to the last one
written: what lies behind them may be another sequence's, left there by a copy of the page.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.interface import TILE, KVShape
from kernels.triton.pool import Pool

TOKENS = 16
# 1.5 * 2 ** 23: adding and subtracting it rounds a float32 below 2 ** 22 to an integer, ties even.
ROUNDER: tl.constexpr = tl.constexpr(12582912.0)


@triton.jit
def _eight_bit(x: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """What `kernels.eight_bit.store` gives for x [n, D], bit for bit: float32 integers, scales."""
    x = x.to(tl.float32)
    broken = tl.max((x != x).to(tl.int32), axis=1) > 0
    largest = tl.max(tl.where(x != x, 0.0, tl.abs(x)), axis=1)
    scale = tl.where(broken, float("nan"), tl.div_rn(largest, 127.0))
    inverse = tl.where(scale > 0, tl.div_rn(1.0, tl.where(scale > 0, scale, 1.0)), 0.0)
    ratio = x * inverse[:, None]
    # Clamping before rounding keeps the product and the sum from becoming one fused operation.
    ratio = tl.minimum(tl.maximum(tl.where(ratio != ratio, 0.0, ratio), -127.0), 127.0)
    return (ratio + ROUNDER) - ROUNDER, scale


@triton.jit
def write_kernel(
    key: tl.tensor,
    value: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    key_scales: tl.tensor,
    value_scales: tl.tensor,
    slots: tl.tensor,
    tokens: int,
    key_token: int,
    key_head: int,
    key_step: int,
    value_token: int,
    value_head: int,
    value_step: int,
    KV_HEADS: tl.constexpr,
    PAGE: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    EIGHT: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """Stores ROWS tokens of one kv head. Grid: (tokens / ROWS, KV_HEADS)."""
    token = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    head = tl.program_id(1)
    d = tl.arange(0, DP)
    there = token < tokens
    both = there[:, None] & (d < D)[None, :]
    slot = tl.load(slots + token, mask=there, other=0)
    row = (slot // PAGE * KV_HEADS + head) * PAGE + slot % PAGE
    place = row[:, None] * D + d[None, :]
    k = tl.load(key + token[:, None] * key_token + head * key_head + d * key_step, both, 0.0)
    v = tl.load(
        value + token[:, None] * value_token + head * value_head + d * value_step, both, 0.0
    )
    if EIGHT:
        k, key_scale = _eight_bit(k)
        v, value_scale = _eight_bit(v)
        tl.store(key_scales + row, key_scale, mask=there)
        tl.store(value_scales + row, value_scale, mask=there)
    tl.store(keys + place, k.to(keys.dtype.element_ty), mask=both)
    tl.store(values + place, v.to(values.dtype.element_ty), mask=both)


@triton.jit
def bound_kernel(
    keys: tl.tensor,
    key_scales: tl.tensor,
    low: tl.tensor,
    high: tl.tensor,
    slots: tl.tensor,
    tokens: int,
    KV_HEADS: tl.constexpr,
    PAGE: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    EIGHT: tl.constexpr,
    LANES: tl.constexpr,
) -> None:
    """Bounds the tile of a token that is the tile's last one written. Grid: (tokens, KV_HEADS)."""
    token = tl.program_id(0)
    head = tl.program_id(1)
    slot = tl.load(slots + token)
    after = tl.load(slots + token + 1, mask=token + 1 < tokens, other=-1)
    last = slot % LANES
    if (after == slot + 1) & (last != LANES - 1):
        return
    lane = tl.arange(0, LANES)
    d = tl.arange(0, DP)
    page = slot // PAGE * KV_HEADS + head
    row = page * PAGE + (slot % PAGE - last) + lane
    both = (lane <= last)[:, None] & (d < D)[None, :]
    k = tl.load(keys + row[:, None] * D + d[None, :], mask=both, other=0.0).to(tl.float32)
    if EIGHT:
        k = k * tl.load(key_scales + row, mask=lane <= last, other=0.0)[:, None]
    place = (page * (PAGE // LANES) + slot % PAGE // LANES) * D + d
    least = tl.min(tl.where(both, k, float("inf")), axis=0)
    most = tl.max(tl.where(both, k, float("-inf")), axis=0)
    tl.store(low + place, least, mask=d < D)
    tl.store(high + place, most, mask=d < D)


def padded(head_dim: int) -> int:
    """Returns the power of two that a tile's last axis has; a dot takes 16 at least."""
    return max(16, int(triton.next_power_of_2(head_dim)))


def constants_of(shape: KVShape) -> dict[str, Any]:
    """Returns what the kernels here are compiled for."""
    return {
        "KV_HEADS": shape.num_kv_heads,
        "PAGE": shape.page_size,
        "D": shape.head_dim,
        "DP": padded(shape.head_dim),
        "EIGHT": shape.eight_bit,
    }


def write(
    pool: Pool, shape: KVShape, key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor
) -> None:
    """Stores key and value [T, kv_heads, D], any strides, in slots int64 [T] of one layer."""
    tokens = slots.numel()
    if not tokens:
        return
    constants = constants_of(shape)
    write_kernel[(triton.cdiv(tokens, TOKENS), shape.num_kv_heads)](
        key,
        value,
        *pool.tensors()[:4],
        slots,
        tokens,
        *key.stride(),
        *value.stride(),
        **constants,
        ROWS=TOKENS,
    )
    if shape.bounded:
        bound_kernel[(tokens, shape.num_kv_heads)](
            pool.keys, pool.key_scales, pool.low, pool.high, slots, tokens, **constants, LANES=TILE
        )
