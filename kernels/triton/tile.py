"""What all attention kernels do with one tile of K/V: read it, score it, fold it in.

Softmax is online and in powers of two: `scale` has log2(e) in it already. Scores of positions that
a row does not see are -inf; such positions are read as zeros where no row of the tile sees them,
so that what lies there, NaN even, is nobody's.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def page_rows(
    table: tl.tensor,
    position: tl.tensor,
    there: tl.tensor,
    head: tl.tensor,
    KV_HEADS: tl.constexpr,
    PAGE: tl.constexpr,
) -> tl.tensor:
    """The rows [n] of one layer's pool that hold the positions of the sequence of this table."""
    page = tl.load(table + position // PAGE, mask=there, other=0).to(tl.int64)
    return (page * KV_HEADS + head) * PAGE + position % PAGE


@triton.jit
def slot_rows(
    slots: tl.tensor,
    token: tl.tensor,
    there: tl.tensor,
    head: tl.tensor,
    KV_HEADS: tl.constexpr,
    PAGE: tl.constexpr,
) -> tl.tensor:
    """The rows [n] of one layer's pool that hold these tokens of a batch."""
    slot = tl.load(slots + token, mask=there, other=0)
    return (slot // PAGE * KV_HEADS + head) * PAGE + slot % PAGE


@triton.jit
def queries(
    query: tl.tensor,
    token: tl.tensor,
    head: tl.tensor,
    used: tl.tensor,
    query_token: tl.tensor,
    query_head: tl.tensor,
    query_step: tl.tensor,
    D: tl.constexpr,
    DP: tl.constexpr,
    DTYPE: tl.constexpr,
) -> tl.tensor:
    """[m, DP], of each row's token and query head; zeros where a row is not used."""
    d = tl.arange(0, DP)
    place = token * query_token + head * query_head
    both = used[:, None] & (d < D)[None, :]
    return tl.load(query + place[:, None] + d[None, :] * query_step, both, 0.0).to(DTYPE)


@triton.jit
def read(
    kept: tl.tensor,
    scales: tl.tensor,
    row: tl.tensor,
    there: tl.tensor,
    D: tl.constexpr,
    DP: tl.constexpr,
    EIGHT: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """[n, DP] as it is kept, and float32 [n], the factor of each row."""
    d = tl.arange(0, DP)
    both = there[:, None] & (d < D)[None, :]
    x = tl.load(kept + row[:, None] * D + d[None, :], mask=both, other=0.0)
    factor = there.to(tl.float32)
    if EIGHT:
        factor = tl.load(scales + row, mask=there, other=0.0)
    return x, factor


@triton.jit
def score(
    q: tl.tensor,
    k: tl.tensor,
    factor: tl.tensor,
    sees: tl.tensor,
    scale: tl.tensor,
    softcap: tl.tensor,
    EIGHT: tl.constexpr,
    CAPPED: tl.constexpr,
    PRECISION: tl.constexpr,
) -> tl.tensor:
    """Scores [m, n] of q [m, DP] and k [n, DP], -inf where not seen."""
    s = tl.dot(q, tl.trans(k.to(q.dtype)), input_precision=PRECISION)
    if EIGHT:
        s = s * factor[None, :]
    s = s * scale
    if CAPPED:
        s = capped(s, softcap * LOG2_E)
    return tl.where(sees, s, float("-inf"))


@triton.jit
def capped(s: tl.tensor, cap: tl.tensor) -> tl.tensor:
    """Returns cap * tanh(s / cap), by e ** (-2 |s| / cap), which can't overflow."""
    e = tl.exp2(tl.abs(s) * (-2.0 * LOG2_E / cap))
    return tl.where(s < 0, -cap, cap) * ((1.0 - e) / (1.0 + e))


@triton.jit
def fold(
    s: tl.tensor,
    v: tl.tensor,
    factor: tl.tensor,
    top: tl.tensor,
    total: tl.tensor,
    acc: tl.tensor,
    DTYPE: tl.constexpr,
    EIGHT: tl.constexpr,
    PRECISION: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """The new (top, total, acc) of rows that have seen scores s [m, n] of values v [n, DP] too."""
    peak = tl.maximum(top, tl.max(s, 1))
    base = tl.where(peak == float("-inf"), 0.0, peak)
    shrink = tl.exp2(top - base)
    p = tl.exp2(s - base[:, None])
    total = total * shrink + tl.sum(p, 1)
    if EIGHT:
        p = p * factor[None, :]
    acc = acc * shrink[:, None] + tl.dot(p.to(DTYPE), v.to(DTYPE), input_precision=PRECISION)
    return peak, total, acc


@triton.jit
def attend(
    q: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    key_scales: tl.tensor,
    value_scales: tl.tensor,
    line: tl.tensor,
    there: tl.tensor,
    sees: tl.tensor,
    top: tl.tensor,
    total: tl.tensor,
    acc: tl.tensor,
    scale: tl.tensor,
    softcap: tl.tensor,
    D: tl.constexpr,
    DP: tl.constexpr,
    EIGHT: tl.constexpr,
    CAPPED: tl.constexpr,
    DTYPE: tl.constexpr,
    PRECISION: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """The new (top, total, acc) of rows q [m, DP] that see one tile more.

    line, there: [n], the tile's rows of the pool, and whether they are any. sees: [m, n].
    """
    k, k_factor = read(keys, key_scales, line, there, D, DP, EIGHT)
    s = score(q, k, k_factor, sees, scale, softcap, EIGHT, CAPPED, PRECISION)
    v, v_factor = read(values, value_scales, line, there, D, DP, EIGHT)
    top, total, acc = fold(s, v, v_factor, top, total, acc, DTYPE, EIGHT, PRECISION)
    return top, total, acc
