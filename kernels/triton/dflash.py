"""The tiles that sparse decode rows read, chosen on the device as `kernels.dflash.choose` does."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def worth_kernel(
    query: tl.tensor,
    low: tl.tensor,
    high: tl.tensor,
    sparse: tl.tensor,
    rows: tl.tensor,
    table: tl.tensor,
    worth: tl.tensor,
    query_token: int,
    query_head: int,
    query_step: int,
    table_width: int,
    worth_width: int,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    PAGE: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    N: tl.constexpr,
    LANES: tl.constexpr,
    FIRST: tl.constexpr,
    RECENT: tl.constexpr,
    DTYPE: tl.constexpr,
) -> None:
    """What N tiles are worth to one sparse row. Grid: (sparse rows, KV_HEADS, worth_width / N).

    sparse: int32 [sparse rows], decode rows, -1: none. rows: as in segment_kernel. worth: float32
    [sparse rows, KV_HEADS, worth_width]; inf: read anyway; -inf: behind the end.
    """
    index = tl.program_id(0)
    head = tl.program_id(1)
    row = tl.load(sparse + index)
    if row < 0:
        return
    own = rows + row * 4
    table += tl.load(own).to(tl.int64) * table_width
    token = tl.load(own + 1).to(tl.int64)
    count = (tl.load(own + 3) + LANES - 1) // LANES
    tile = tl.program_id(2) * N + tl.arange(0, N)
    there = tile < count
    d = tl.arange(0, DP)
    both = there[:, None] & (d < D)[None, :]
    page = tl.load(table + tile * LANES // PAGE, mask=there, other=0).to(tl.int64)
    place = (page * KV_HEADS + head) * (PAGE // LANES) + tile % (PAGE // LANES)
    least = tl.load(low + place[:, None] * D + d[None, :], mask=both, other=0.0)
    most = tl.load(high + place[:, None] * D + d[None, :], mask=both, other=0.0)
    best = tl.full([N], float("-inf"), tl.float32)
    for member in range(HEADS):
        begin = query + token * query_token + (head * HEADS + member) * query_head
        q = tl.load(begin + d * query_step, mask=d < D, other=0.0).to(DTYPE).to(tl.float32)
        upper = tl.maximum(q[None, :] * least, q[None, :] * most)
        lower = tl.minimum(q[None, :] * least, q[None, :] * most)
        best = tl.maximum(best, tl.sum(0.75 * upper + 0.25 * lower, 1))
    best = tl.where((tile < FIRST) | (tile >= count - RECENT), float("inf"), best)
    best = tl.where(there, best, float("-inf"))
    where = (index.to(tl.int64) * KV_HEADS + head) * worth_width + tile
    tl.store(worth + where, best, mask=tile < worth_width)


def most_worth(worth: torch.Tensor, most: int) -> torch.Tensor:
    """Returns the tiles of each row and head by falling worth, of equals the earlier first.

    worth: [..., tiles]. int32 [..., most]; a row reads as many of them as its budget allows.
    """
    order = worth.sort(dim=-1, descending=True, stable=True).indices
    return order[..., :most].to(torch.int32).contiguous()
