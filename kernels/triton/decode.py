"""Decode rows: a partial result for each work item of the plan, then their merge.

An item's program reads its positions of its leader's pages once, for all its query rows: the heads
of a group and the sequences that share the pages lie in one dense tile. Unused rows of a tile see
nothing. Every item writes rows of its own, so the items of all widths run in any order.

Launches depend on the counts of items and rows alone; an item of zeros does nothing.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.tile import attend, page_rows, queries


@triton.jit
def segment_kernel(
    query: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    key_scales: tl.tensor,
    value_scales: tl.tensor,
    items: tl.tensor,
    owner: tl.tensor,
    rows: tl.tensor,
    tiles: tl.tensor,
    sparse: tl.tensor,
    table: tl.tensor,
    acc_out: tl.tensor,
    stats_out: tl.tensor,
    query_token: int,
    query_head: int,
    query_step: int,
    table_width: int,
    tiles_width: int,
    capacity: int,
    scale: float,
    softcap: float,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    PAGE: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    EIGHT: tl.constexpr,
    CAPPED: tl.constexpr,
    CHOSEN: tl.constexpr,
    LANES: tl.constexpr,
    DTYPE: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    """Writes the partials of one item and kv head. Grid: (items, KV_HEADS).

    items: int32 [items, 5] of `kernels.triton.plan`. owner: int32 [partials]. rows: int32 [R, 4]:
    sequence, token, first position, context. tiles: int32 [sparse rows, KV_HEADS, tiles_width],
    sparse: their decode rows (where CHOSEN). acc_out, stats_out: float32
    [KV_HEADS, capacity, D] and [2, KV_HEADS, capacity]: values, then maxima and sums.
    """
    item = items + tl.program_id(0) * 5
    head = tl.program_id(1)
    leader, begin, end = tl.load(item), tl.load(item + 1), tl.load(item + 2)
    first_row, end_row = tl.load(item + 3), tl.load(item + 4)
    if first_row >= end_row:
        return
    tiles += (leader.to(tl.int64) * KV_HEADS + head) * tiles_width
    if CHOSEN:
        leader = tl.load(sparse + leader)
        begin = begin * LANES
        end = end * LANES
    limit = tl.load(rows + leader * 4 + 3)
    table += tl.load(rows + leader * 4).to(tl.int64) * table_width
    row = first_row + tl.arange(0, M)
    used = row < end_row
    own = rows + tl.load(owner + row // HEADS, mask=used, other=0) * 4
    token = tl.load(own + 1, mask=used, other=0).to(tl.int64)
    first = tl.load(own + 2, mask=used, other=0)
    context = tl.load(own + 3, mask=used, other=0)
    own_head = head * HEADS + row % HEADS
    q = queries(query, token, own_head, used, query_token, query_head, query_step, D, DP, DTYPE)
    top = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    acc = tl.zeros([M, DP], tl.float32)
    for start in range(begin, end, N):
        position, there = _positions(start + tl.arange(0, N), end, limit, tiles, CHOSEN, LANES)
        line = page_rows(table, position, there, head, KV_HEADS, PAGE)
        seen = there[None, :] & (position[None, :] >= first[:, None])
        seen = seen & (position[None, :] < context[:, None])
        top, total, acc = attend(
            *(q, keys, values, key_scales, value_scales, line, there, seen, top, total, acc),
            *(scale, softcap, D, DP, EIGHT, CAPPED, DTYPE, PRECISION),
        )
    d = tl.arange(0, DP)
    place = head.to(tl.int64) * capacity + row
    both = used[:, None] & (d < D)[None, :]
    tl.store(acc_out + place[:, None] * D + d[None, :], acc, mask=both)
    tl.store(stats_out + place, top, mask=used)
    tl.store(stats_out + KV_HEADS * capacity + place, total, mask=used)


@triton.jit
def _positions(
    at: tl.tensor,
    end: tl.tensor,
    limit: tl.tensor,
    tiles: tl.tensor,
    CHOSEN: tl.constexpr,
    LANES: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Positions [n] that an item reads `at` its places, and which of these are any.

    They are the places themselves, or where CHOSEN those of the tiles side by side; limit: the
    context.
    """
    there = at < end
    position = at
    if CHOSEN:
        tile = tl.load(tiles + at // LANES, mask=there, other=0)
        position = tile * LANES + at % LANES
        there = there & (position < limit)
    return position, there


@triton.jit
def merge_kernel(
    acc: tl.tensor,
    stats: tl.tensor,
    merge_start: tl.tensor,
    merge: tl.tensor,
    rows: tl.tensor,
    out: tl.tensor,
    capacity: int,
    out_token: int,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
) -> None:
    """Puts one decode row's partials together, in their order. Grid: (R, KV_HEADS * HEADS).

    out: [T, KV_HEADS * HEADS, D], dense but for its first axis. The rest as in segment_kernel.
    """
    row = tl.program_id(0)
    head = tl.program_id(1)
    d = tl.arange(0, DP)
    base = (head // HEADS).to(tl.int64) * capacity + head % HEADS
    top = float("-inf")
    total = 0.0
    result = tl.zeros([DP], tl.float32)
    for index in range(tl.load(merge_start + row), tl.load(merge_start + row + 1)):
        place = base + tl.load(merge + index) * HEADS
        own_top = tl.load(stats + place)
        own_total = tl.load(stats + KV_HEADS * capacity + place)
        part = tl.load(acc + place * D + d, mask=d < D, other=0.0)
        peak = tl.maximum(top, own_top)
        base_of = tl.where(peak == float("-inf"), 0.0, peak)
        keep = tl.exp2(top - base_of)
        take = tl.exp2(own_top - base_of)
        total = total * keep + own_total * take
        result = result * keep + part * take
        top = peak
    token = tl.load(rows + row * 4 + 1).to(tl.int64)
    place = token * out_token + head * D + d
    tl.store(out + place, (result / total).to(out.dtype.element_ty), mask=d < D)
