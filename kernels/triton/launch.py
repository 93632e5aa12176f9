"""How each attention kernel is launched: tile sizes, warps, and the arguments in their order.

`kernels.triton.ahead` compiles with the same sizes. They were chosen by what the compiler says of
registers and shared memory for sm_80 and sm_90a; none of them has been timed on a GPU yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.interface import TILE, AttentionBatch, AttentionParams, KVShape
from kernels.triton.decode import merge_kernel, segment_kernel
from kernels.triton.dflash import most_worth, worth_kernel, worth_of
from kernels.triton.plan import NARROW
from kernels.triton.pool import Pool
from kernels.triton.prefill import prefill_kernel
from kernels.triton.tables import Tables
from kernels.triton.tile import LOG2_E
from kernels.triton.write import padded

TL_DTYPES = {
    torch.float32: tl.float32,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
}

MERGED = ("HEADS", "KV_HEADS", "D", "DP")  # what merge_kernel is compiled for


@dataclass(frozen=True, slots=True)
class Sizes:
    """m query rows by n positions; how many warps work on them, how many tiles are under way."""

    m: int
    n: int
    warps: int
    stages: int

    def options(self) -> dict[str, int]:
        """Returns them as a kernel takes them."""
        return {"M": self.m, "N": self.n, "num_warps": self.warps, "num_stages": self.stages}


def wide_rows(shape: KVShape) -> int:
    """Returns how many query rows a large tile has: fewer, the more registers a row takes."""
    width = padded(shape.head_dim)
    if shape.eight_bit and shape.dtype == torch.float32 and width > 64:
        return NARROW
    return 64 * 256 // max(256, width * shape.dtype.itemsize)


def sizes_of(m: int, shape: KVShape) -> Sizes:
    """Returns the sizes for m query rows.

    They are the largest whose registers are not, or hardly, spilled: float32 is multiplied outside
    of the tensor cores ("ieee"), which takes more of them.
    """
    width = padded(shape.head_dim)
    if shape.dtype == torch.float32:
        return Sizes(m, 32 if width <= 64 and not shape.eight_bit else 16, 8, 2)
    return Sizes(m, 64 if width <= 128 else 32, 8 if m > NARROW and width > 64 else 4, 2)


def constants_of(shape: KVShape, heads: int) -> dict[str, Any]:
    """Returns what every attention kernel is compiled for."""
    return {
        "HEADS": heads,
        "KV_HEADS": shape.num_kv_heads,
        "PAGE": shape.page_size,
        "D": shape.head_dim,
        "DP": padded(shape.head_dim),
        "DTYPE": TL_DTYPES[shape.dtype],
    }


def reading_of(shape: KVShape, params: AttentionParams) -> dict[str, Any]:
    """Returns what kernels that read K/V are compiled for besides."""
    return {
        "EIGHT": shape.eight_bit,
        "CAPPED": params.softcap is not None,
        "PRECISION": "ieee",
    }


@dataclass(frozen=True, slots=True)
class Call:
    """One layer's attention: its pool, the query [T, H, D], the result, the batch."""

    shape: KVShape
    pool: Pool
    query: torch.Tensor
    out: torch.Tensor
    batch: AttentionBatch
    params: AttentionParams

    @property
    def heads(self) -> int:
        """Query heads of a kv head."""
        return self.query.shape[1] // self.shape.num_kv_heads

    @property
    def factors(self) -> tuple[float, float]:
        """The factor on scores, for softmax in powers of two, and the softcap."""
        return self.params.scale * LOG2_E.value, self.params.softcap or 1.0


def prefill(call: Call, blocks: torch.Tensor) -> None:
    """Attends the chunks in blocks, int32 [blocks, 5]."""
    sizes = sizes_of(wide_rows(call.shape), call.shape)
    prefill_kernel[(blocks.shape[0], call.shape.num_kv_heads)](
        call.query,
        *call.pool.tensors()[:4],
        blocks,
        call.batch.block_table,
        call.out,
        *call.query.stride(),
        call.out.stride(0),
        call.batch.block_table.stride(0),
        call.params.sliding_window or 0,
        *call.factors,
        **constants_of(call.shape, call.heads),
        **reading_of(call.shape, call.params),
        **sizes.options(),
    )


def decode(call: Call, tables: Tables, tiles_width: int) -> None:
    """Attends the decode rows of the tables. tiles_width: tiles of the longest context."""
    room = tables.room
    nothing = tables.view("sparse")
    if room.narrow:
        _segments(call, tables, tables.view("narrow"), NARROW, nothing)
    if room.wide:
        _segments(call, tables, tables.view("wide"), wide_rows(call.shape), nothing)
    if room.chosen:
        tiles = _choose(call, tables, tiles_width)
        _segments(call, tables, tables.view("chosen"), NARROW, tiles)
    merge_kernel[(room.rows, call.query.shape[1])](
        tables.acc,
        tables.stats,
        *(tables.view(name) for name in ("merge_start", "merge", "rows")),
        call.out,
        tables.capacity,
        call.out.stride(0),
        **{k: v for k, v in constants_of(call.shape, call.heads).items() if k in MERGED},
    )


def _segments(
    call: Call, tables: Tables, items: torch.Tensor, size: int, tiles: torch.Tensor
) -> None:
    """Computes the partials of items; tiles: of sparse rows [S, KV_HEADS, width], else flat."""
    chosen = tiles.ndim == 3
    segment_kernel[(items.numel() // 5, call.shape.num_kv_heads)](
        call.query,
        *call.pool.tensors()[:4],
        items,
        *(tables.view(name) for name in ("owner", "rows")),
        tiles,
        tables.view("sparse"),
        call.batch.block_table,
        tables.acc,
        tables.stats,
        *call.query.stride(),
        call.batch.block_table.stride(0),
        tiles.shape[-1],
        tables.capacity,
        *call.factors,
        **constants_of(call.shape, call.heads),
        **reading_of(call.shape, call.params),
        **sizes_of(size, call.shape).options(),
        CHOSEN=chosen,
        LANES=TILE,
    )


def _choose(call: Call, tables: Tables, width: int) -> torch.Tensor:
    """The tiles of each sparse row and kv head by falling worth: int32 [S, KV_HEADS, width]."""
    size = (tables.room.sparse, call.shape.num_kv_heads, call.heads, width)
    peaks, masses = (torch.empty(size, device=call.query.device) for _ in range(2))
    rows, sparse = tables.view("rows"), tables.view("sparse")
    weighing = worth_constants(call.shape, call.params)
    worth_kernel[(*size[:2], triton.cdiv(width, weighing["N"]))](
        call.query,
        call.pool.codes,
        call.pool.code_scales,
        sparse,
        rows,
        call.batch.block_table,
        peaks,
        masses,
        *call.query.stride(),
        call.batch.block_table.stride(0),
        width,
        call.params.scale,
        call.params.softcap or 1.0,
        **constants_of(call.shape, call.heads),
        **weighing,
    )
    contexts = rows.view(-1, 4)[sparse.clamp(min=0).long(), 3]
    return most_worth(worth_of(peaks, masses, contexts), width)


def worth_constants(shape: KVShape, params: AttentionParams) -> dict[str, Any]:
    """Returns what worth_kernel is compiled for besides. N: tiles that a program weighs."""
    count = 512 // max(64, padded(shape.head_dim))
    return {"N": count, "LANES": TILE, "CAPPED": params.softcap is not None}
