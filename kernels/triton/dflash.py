"""The tiles that sparse decode rows read, chosen on the device as `kernels.dflash.choose` does.

Codes are whole numbers below 2 ** 8 and sums of their products below 2 ** 24: float32 holds them
exactly, in whatever order they are added.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.dflash import FIRST, RECENT
from kernels.interface import TILE
from kernels.triton.codes import coded, scales_of
from kernels.triton.tile import capped, page_rows


@triton.jit
def _asked(
    query: tl.tensor, query_step: tl.tensor, D: tl.constexpr, DP: tl.constexpr, DTYPE: tl.constexpr
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """A query's codes of even and odd dimensions [DP / 2], and their scale."""
    half = tl.arange(0, DP // 2)
    even = tl.load(query + 2 * half * query_step, mask=2 * half < D, other=0.0)
    odd = tl.load(query + (2 * half + 1) * query_step, mask=2 * half + 1 < D, other=0.0)
    even, odd = even.to(DTYPE).to(tl.float32), odd.to(DTYPE).to(tl.float32)
    largest = tl.maximum(tl.max(tl.abs(even), 0), tl.max(tl.abs(odd), 0))
    scale, inverse = scales_of(largest, largest != largest, 127.0)
    return coded(even, inverse, 127.0), coded(odd, inverse, 127.0), scale


@triton.jit
def _codes(
    codes: tl.tensor, place: tl.tensor, there: tl.tensor, D: tl.constexpr, DP: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """Codes of keys at their even and odd dimensions, float32 [n, DP / 2] each."""
    half = tl.arange(0, DP // 2)
    width = (D + 1) // 2
    both = there[:, None] & (half < width)[None, :]
    packed = tl.load(codes + place[:, None] * width + half[None, :], mask=both, other=0).to(
        tl.int32
    )
    return ((packed & 15) - 8).to(tl.float32), ((packed >> 4) - 8).to(tl.float32)


@triton.jit
def _weighed(score: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Of each tile [n, LANES] the largest score, and the sum of exp(score - it)."""
    peak = tl.max(score, 1)
    floor = tl.where(peak == float("-inf"), 0.0, peak)
    return peak, tl.sum(tl.exp(score - floor[:, None]), 1)


@triton.jit
def worth_kernel(
    query: tl.tensor,
    codes: tl.tensor,
    code_scales: tl.tensor,
    sparse: tl.tensor,
    rows: tl.tensor,
    table: tl.tensor,
    peaks: tl.tensor,
    masses: tl.tensor,
    query_token: int,
    query_head: int,
    query_step: int,
    table_width: int,
    worth_width: int,
    scale: float,
    softcap: float,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    PAGE: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    N: tl.constexpr,
    LANES: tl.constexpr,
    CAPPED: tl.constexpr,
    DTYPE: tl.constexpr,
) -> None:
    """What N tiles hold of a sparse row's attention. Grid: (sparse rows, KV_HEADS, tiles / N).

    sparse: int32 [sparse rows], decode rows, -1: none. rows: as in segment_kernel. peaks, masses:
    float32 [sparse rows, KV_HEADS, HEADS, worth_width], the largest score of a tile and the sum of
    exp(score - it); -inf and 0 behind the end.
    """
    index, head = tl.program_id(0), tl.program_id(1)
    row = tl.load(sparse + index)
    if row < 0:
        return
    own = rows + row * 4
    table += tl.load(own).to(tl.int64) * table_width
    token = tl.load(own + 1).to(tl.int64)
    position = tl.program_id(2) * N * LANES + tl.arange(0, N * LANES)
    there = position < tl.load(own + 3)
    place = page_rows(table, position, there, head, KV_HEADS, PAGE)
    low, high = _codes(codes, place, there, D, DP)
    kept = tl.load(code_scales + place, mask=there, other=0.0)
    tile = tl.program_id(2) * N + tl.arange(0, N)
    for member in range(HEADS):
        begin = query + token * query_token + (head * HEADS + member) * query_head
        even, odd, asked = _asked(begin, query_step, D, DP, DTYPE)
        score = tl.sum(low * even[None, :] + high * odd[None, :], 1) * kept * (asked * scale)
        if CAPPED:
            score = capped(score, softcap)
        peak, mass = _weighed(tl.reshape(tl.where(there, score, float("-inf")), (N, LANES)))
        where = ((index.to(tl.int64) * KV_HEADS + head) * HEADS + member) * worth_width + tile
        tl.store(peaks + where, peak, mask=tile < worth_width)
        tl.store(masses + where, mass, mask=tile < worth_width)


def worth_of(peaks: torch.Tensor, masses: torch.Tensor, contexts: torch.Tensor) -> torch.Tensor:
    """Returns what tiles are worth: float32 [S, kv_heads, tiles]; inf: read anyway.

    peaks, masses: [S, kv_heads, heads, tiles], of worth_kernel. contexts: int [S]; -inf behind
    their ends.
    """
    mass = masses * torch.exp(peaks - peaks.amax(-1, keepdim=True))
    worth = (mass / mass.sum(-1, keepdim=True)).amax(2)
    tile = torch.arange(worth.shape[-1], device=worth.device)
    count = ((contexts + (TILE - 1)) // TILE)[:, None, None]
    worth = worth.where((tile >= FIRST) & (tile < count - RECENT), float("inf"))
    return worth.where(tile < count, float("-inf"))


def most_worth(worth: torch.Tensor, most: int) -> torch.Tensor:
    """Returns the tiles of each row and head by falling worth, of equals the earlier first.

    worth: [..., tiles]. int32 [..., most]; a row reads as many of them as its budget allows.
    """
    order = worth.sort(dim=-1, descending=True, stable=True).indices
    return order[..., :most].to(torch.int32).contiguous()
