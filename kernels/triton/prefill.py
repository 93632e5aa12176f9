"""Chunks of several tokens over their pages: causal attention with an online softmax.

A program takes M query rows of one kv head: the heads of its group of M / HEADS tokens lie side by
side, so a position's K/V is read once for them all. It goes over the positions that its tokens see,
a cached prefix and the chunk alike, since both lie in pages by now.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.tile import attend, page_rows, queries


@triton.jit
def prefill_kernel(
    query: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    key_scales: tl.tensor,
    value_scales: tl.tensor,
    blocks: tl.tensor,
    table: tl.tensor,
    out: tl.tensor,
    query_token: int,
    query_head: int,
    query_step: int,
    out_token: int,
    table_width: int,
    window: int,
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
    DTYPE: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    """Attends up to M query rows of one sequence. Grid: (blocks, KV_HEADS).

    blocks: int32 [blocks, 5]: sequence, its first token in the batch, the position of that token,
    first and end row of the block, where row = token of the sequence * HEADS + head of the group.
    window: how many positions a token sees; 0: all. out: [T, KV_HEADS * HEADS, D], dense but for
    its first axis.
    """
    block = blocks + tl.program_id(0) * 5
    head = tl.program_id(1)
    table += tl.load(block).to(tl.int64) * table_width
    token_zero, position_zero = tl.load(block + 1), tl.load(block + 2)
    first_row, end_row = tl.load(block + 3), tl.load(block + 4)
    row = first_row + tl.arange(0, M)
    used = row < end_row
    token = (token_zero + row // HEADS).to(tl.int64)
    own = position_zero + row // HEADS
    own_head = head * HEADS + row % HEADS
    q = queries(query, token, own_head, used, query_token, query_head, query_step, D, DP, DTYPE)
    begin = 0
    first = tl.zeros([M], tl.int32)
    if window > 0:
        begin = tl.maximum(0, position_zero + first_row // HEADS - window + 1)
        first = own - window + 1
    end = position_zero + (end_row - 1) // HEADS + 1
    top = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    acc = tl.zeros([M, DP], tl.float32)
    for start in range(begin, end, N):
        position = start + tl.arange(0, N)
        there = position < end
        line = page_rows(table, position, there, head, KV_HEADS, PAGE)
        seen = there[None, :] & (position[None, :] <= own[:, None])
        seen = seen & (position[None, :] >= first[:, None])
        top, total, acc = attend(
            *(q, keys, values, key_scales, value_scales, line, there, seen, top, total, acc),
            *(scale, softcap, D, DP, EIGHT, CAPPED, DTYPE, PRECISION),
        )
    d = tl.arange(0, DP)
    place = token * out_token + own_head * D
    both = used[:, None] & (d < D)[None, :]
    result = acc / tl.where(used, total, 1.0)[:, None]
    tl.store(out + place[:, None] + d[None, :], result.to(out.dtype.element_ty), mask=both)
