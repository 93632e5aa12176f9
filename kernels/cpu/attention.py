"""The `cpu` attention backend: pages in the layout of pages.h, read in place.

Rows are bitwise independent of batch mates, chunking, page size, page ids and threads.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch

from kernels.cpu.build import load_library
from kernels.cpu.crew import crew_of
from kernels.cpu.pool import Layout, Pool
from kernels.dflash import FIRST, RECENT, is_sparse, tiles_of
from kernels.interface import TILE, AttentionBatch, AttentionParams, KVShape
from kernels.rows import flat_positions

# Query heads of one K/V head whose rows can be sparse: a task holds all of them.
MAX_SPARSE_HEADS = 24


class _Request(ctypes.Structure):
    """struct request of attention.c, field by field."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("query", "pool", "sketches", "out", "block_table")),
        *((name, ctypes.c_void_p) for name in ("context_len", "token_seq", "token_row")),
        *((name, ctypes.c_void_p) for name in ("token_pos", "token_tiles")),
        *((name, ctypes.c_int64) for name in ("query_token_stride", "query_head_stride")),
        *((name, ctypes.c_int32) for name in ("num_tokens", "num_sparse", "num_heads")),
        *((name, ctypes.c_int32) for name in ("num_kv_heads", "table_stride", "page_size")),
        *((name, ctypes.c_int32) for name in ("max_context", "sliding_window")),
        *((name, ctypes.c_float) for name in ("scale", "softcap")),
        ("crew", ctypes.c_void_p),
    )


@dataclass(frozen=True, slots=True)
class _Order:
    """Flat rows in job order: sequences that share pages side by side, sparse tokens last.

    All int32 [T]; tiles: how many a sparse token reads, 0: all.
    """

    seq: torch.Tensor
    row: torch.Tensor
    pos: torch.Tensor
    tiles: torch.Tensor
    num_sparse: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """What every layer of one step needs. dense: for layers that read all."""

    batch: AttentionBatch
    dense: _Order
    sparse: _Order
    block_table: torch.Tensor
    context_len: torch.Tensor
    slots: torch.Tensor


class CpuAttention:
    """AttentionBackend in C. float32 only; threads is the number each call may use.

    Raises BuildError when the library can't be built, ValueError for a shape that it doesn't hold.
    """

    name = "cpu"
    bitwise = True

    def __init__(self, shape: KVShape, threads: int = 1) -> None:
        if shape.dtype != torch.float32:
            raise ValueError(f"the cpu backend holds float32 K/V, not {shape.dtype}")
        if shape.sketched and shape.page_size % TILE:
            raise ValueError(f"page_size is {shape.page_size}: with dflash a multiple of {TILE}")
        self.shape = shape
        self._crew = crew_of(threads)
        macros = {"HEAD_DIM": shape.head_dim, "EIGHT_BIT": int(shape.eight_bit)}
        library = load_library("attention.c", macros)
        self._attend = library.attend
        self._attend.argtypes = [ctypes.c_void_p]
        self._attend.restype = ctypes.c_int32
        self._write = library.write_pages
        self._write.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_int32] * 2
        self._write.restype = None
        for told in (library.block_bytes, library.sketch_bytes):
            told.restype = ctypes.c_int64
        assert library.most_sparse_heads() == MAX_SPARSE_HEADS
        layout = Layout(library.block_bytes(), library.sketch_bytes(), library.value_width())
        self._pool = Pool(shape, layout)
        self._plan: _Plan | None = None

    @property
    def nbytes(self) -> int:
        """What the pool takes."""
        return self._pool.nbytes

    def write(
        self, layer: int, key: torch.Tensor, value: torch.Tensor, batch: AttentionBatch
    ) -> None:
        """Stores key and value [T, num_kv_heads, head_dim] in the batch's slots."""
        plan = self._planned(batch)
        key, value = _rows(key), _rows(value)
        strides = (ctypes.c_int64 * 4)(*key.stride()[:2], *value.stride()[:2])
        self._write(
            key.data_ptr(),
            value.data_ptr(),
            self._pool.at[layer],
            self._pool.sketches_at[layer],
            plan.slots.data_ptr(),
            ctypes.addressof(strides),
            key.shape[0],
            self.shape.num_kv_heads,
        )

    def attend(
        self, layer: int, query: torch.Tensor, batch: AttentionBatch, params: AttentionParams
    ) -> torch.Tensor:
        """Returns causal attention [T, num_heads, head_dim] of query over the pages.

        Raises ValueError where a sparse row has more than MAX_SPARSE_HEADS for a K/V head.
        """
        plan = self._planned(batch)
        order = plan.sparse if params.sliding_window is None else plan.dense
        if order.num_sparse:
            _refuse_wide(query.shape[1] // self.shape.num_kv_heads)
        query = _rows(query)
        out = torch.empty(query.shape)
        request = _Request(
            query.data_ptr(),
            self._pool.at[layer],
            self._pool.sketches_at[layer],
            out.data_ptr(),
            plan.block_table.data_ptr(),
            plan.context_len.data_ptr(),
            order.seq.data_ptr(),
            order.row.data_ptr(),
            order.pos.data_ptr(),
            order.tiles.data_ptr(),
            *query.stride()[:2],
            query.shape[0],
            order.num_sparse,
            query.shape[1],
            self.shape.num_kv_heads,
            plan.block_table.stride(0),
            batch.page_size,
            batch.max_context_len,
            params.sliding_window or 0,
            params.scale,
            params.softcap or 0.0,
            self._crew,
        )
        if self._attend(ctypes.addressof(request)):
            raise MemoryError(f"no scratch memory to attend over {batch.max_context_len} positions")
        return out

    def copy_pages(self, source: list[int], target: list[int]) -> None:
        """Copies whole pages, all layers, K and V: target[i] becomes equal to source[i]."""
        if source:
            self._pool.copy(source, target)

    def fill_pages(self, pages: list[int], value: float) -> None:
        """Sets every element of the pages (tests poison freed pages with NaN)."""
        self._pool.fill(pages, value)

    def _planned(self, batch: AttentionBatch) -> _Plan:
        """The plan of this batch; one batch value serves all layers of a step."""
        if self._plan is None or self._plan.batch is not batch:
            if batch.budget is not None and not self.shape.sketched:
                raise ValueError("the batch brings budgets, and the pool keeps no sketches of keys")
            self._plan = _plan(batch)
        return self._plan


def _refuse_wide(heads: int) -> None:
    if heads > MAX_SPARSE_HEADS:
        raise ValueError(f"{heads} query heads for a K/V head: sparse, {MAX_SPARSE_HEADS} fit")


def _plan(batch: AttentionBatch) -> _Plan:
    tables = batch.block_table.to(torch.int32).contiguous()
    keys = [row.tobytes() for row in tables.numpy()]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    rank = torch.empty(len(keys), dtype=torch.int64)
    rank[torch.tensor(order, dtype=torch.int64)] = torch.arange(len(keys))
    tiles = _tiles_read(batch)
    dense = _order(batch, rank, torch.zeros_like(tiles))
    return _Plan(
        batch,
        dense,
        _order(batch, rank, tiles) if tiles.any() else dense,
        tables,
        batch.context_len.to(torch.int32).contiguous(),
        batch.slot_mapping.to(torch.int64).contiguous(),
    )


def _tiles_read(batch: AttentionBatch) -> torch.Tensor:
    """int32 [S]: tiles that each sequence's row reads, 0 where it reads all or has many rows."""
    tiles = torch.zeros(batch.context_len.numel(), dtype=torch.int32)
    if batch.budget is not None:
        counts = (batch.query_start[1:] - batch.query_start[:-1]).tolist()
        budgets, contexts = batch.budget.tolist(), batch.context_len.tolist()
        for s, (count, budget, context) in enumerate(zip(counts, budgets, contexts, strict=True)):
            if count == 1 and is_sparse(budget, context):
                tiles[s] = max(tiles_of(budget), FIRST + RECENT)
    return tiles


def _order(batch: AttentionBatch, rank: torch.Tensor, tiles: torch.Tensor) -> _Order:
    """rank: int64 [S], in which order sequences come."""
    rows = flat_positions(batch)
    token_tiles = tiles[rows.sequence]
    behind = rank[rows.sequence] + (token_tiles > 0) * rank.numel()
    row = torch.argsort(behind, stable=True)
    return _Order(
        rows.sequence[row].to(torch.int32),
        row.to(torch.int32),
        rows.position[row].to(torch.int32),
        token_tiles[row].contiguous(),
        int((token_tiles > 0).sum()),
    )


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy of it when its last axis is not dense."""
    if tensor.dtype != torch.float32:
        raise ValueError(f"the cpu backend computes float32, not {tensor.dtype}")
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()
