"""Stores new keys and values in their slots, in eight bits where asked, and sketches the keys.

A program stores some tokens of one kv head. Where the pool is sketched a second launch, which sees
what the first one stored, makes the sketches.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.interface import KVShape
from kernels.triton.codes import coded, scales_of
from kernels.triton.pool import Pool
from kernels.triton.tile import slot_rows

TOKENS = 16


@triton.jit
def _eight_bit(x: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """What `kernels.eight_bit.store` gives for x [n, D], bit for bit: float32 integers, scales."""
    x = x.to(tl.float32)
    broken = tl.max((x != x).to(tl.int32), axis=1) > 0
    largest = tl.max(tl.where(x != x, 0.0, tl.abs(x)), axis=1)
    scale, inverse = scales_of(largest, broken, 127.0)
    return coded(x, inverse[:, None], 127.0), scale


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
    row = slot_rows(slots, token, there, head, KV_HEADS, PAGE)
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
def sketch_kernel(
    keys: tl.tensor,
    key_scales: tl.tensor,
    codes: tl.tensor,
    code_scales: tl.tensor,
    slots: tl.tensor,
    tokens: int,
    KV_HEADS: tl.constexpr,
    PAGE: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    EIGHT: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """Sketches ROWS keys of one kv head as they are stored. Grid: (tokens / ROWS, KV_HEADS)."""
    token = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    head = tl.program_id(1)
    there = token < tokens
    row = slot_rows(slots, token, there, head, KV_HEADS, PAGE)
    half = tl.arange(0, DP // 2)
    place = row[:, None] * D + 2 * half[None, :]
    even = there[:, None] & (2 * half < D)[None, :]
    odd = there[:, None] & (2 * half + 1 < D)[None, :]
    low = tl.load(keys + place, mask=even, other=0.0).to(tl.float32)
    high = tl.load(keys + place + 1, mask=odd, other=0.0).to(tl.float32)
    if EIGHT:
        factor = tl.load(key_scales + row, mask=there, other=0.0)[:, None]
        low, high = low * factor, high * factor
    broken = tl.max((low != low).to(tl.int32) | (high != high).to(tl.int32), axis=1) > 0
    size = tl.maximum(
        tl.where(low != low, 0.0, tl.abs(low)), tl.where(high != high, 0.0, tl.abs(high))
    )
    scale, inverse = scales_of(tl.max(size, axis=1), broken, 7.0)
    low, high = coded(low, inverse[:, None], 7.0), coded(high, inverse[:, None], 7.0)
    packed = (low.to(tl.int32) + 8) | ((high.to(tl.int32) + 8) << 4)
    tl.store(codes + row[:, None] * ((D + 1) // 2) + half[None, :], packed.to(tl.uint8), mask=even)
    tl.store(code_scales + row, scale, mask=there)


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
    if shape.sketched:
        sketch_kernel[(triton.cdiv(tokens, TOKENS), shape.num_kv_heads)](
            pool.keys,
            pool.key_scales,
            pool.codes,
            pool.code_scales,
            slots,
            tokens,
            **constants,
            ROWS=TOKENS,
        )
