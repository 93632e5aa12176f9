"""The `cpu` attention backend: pages in the layout of attention.c, read in place.

Rows are bitwise independent of batch mates, chunking, page size, page ids and threads.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch

from kernels.cpu.build import load_library
from kernels.cpu.crew import crew_of
from kernels.cpu.memory import large_buffer
from kernels.interface import AttentionBatch, AttentionParams, KVShape
from kernels.rows import flat_positions

LANES = 16


class _Request(ctypes.Structure):
    """struct request of attention.c, field by field."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("query", "keys", "values", "out", "block_table")),
        *((name, ctypes.c_void_p) for name in ("context_len", "token_seq", "token_row")),
        ("token_pos", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("query_token_stride", "query_head_stride")),
        *((name, ctypes.c_int32) for name in ("num_tokens", "num_heads", "num_kv_heads")),
        *((name, ctypes.c_int32) for name in ("table_stride", "page_size", "sliding_window")),
        *((name, ctypes.c_float) for name in ("scale", "softcap")),
        ("crew", ctypes.c_void_p),
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """What every layer of one step needs, in job order: sequences that share pages side by side."""

    batch: AttentionBatch
    token_seq: torch.Tensor
    token_row: torch.Tensor
    token_pos: torch.Tensor
    block_table: torch.Tensor
    context_len: torch.Tensor
    slots: torch.Tensor


class CpuAttention:
    """AttentionBackend in C. float32 only; threads is the number each call may use.

    Raises BuildError when the library can't be built, ValueError for another dtype.
    """

    name = "cpu"
    bitwise = True

    def __init__(self, shape: KVShape, threads: int = 1) -> None:
        if shape.dtype != torch.float32:
            raise ValueError(f"the cpu backend holds float32 K/V, not {shape.dtype}")
        self.shape = shape
        self._crew = crew_of(threads)
        self._library = load_library("attention.c", {"HEAD_DIM": shape.head_dim})
        self._attend = self._library.attend
        self._attend.argtypes = [ctypes.c_void_p]
        self._attend.restype = None
        self._write = self._library.write_pages
        self._write.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_int32] * 2
        self._write.restype = None
        blocks = -(-shape.num_pages * shape.page_size // LANES)
        layers, heads, width = shape.num_layers, shape.num_kv_heads, self._library.value_width()
        self._keys = large_buffer(layers, blocks, heads, shape.head_dim, LANES)
        self._values = large_buffer(layers, blocks, heads, LANES, width)
        self._key_at = [layer.data_ptr() for layer in self._keys]
        self._value_at = [layer.data_ptr() for layer in self._values]
        self._plan: _Plan | None = None

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
            self._key_at[layer],
            self._value_at[layer],
            plan.slots.data_ptr(),
            ctypes.addressof(strides),
            key.shape[0],
            self.shape.num_kv_heads,
        )

    def attend(
        self, layer: int, query: torch.Tensor, batch: AttentionBatch, params: AttentionParams
    ) -> torch.Tensor:
        """Returns causal attention [T, num_heads, head_dim] of query over the pages."""
        plan = self._planned(batch)
        query = _rows(query)
        out = torch.empty(query.shape)
        request = _Request(
            query.data_ptr(),
            self._key_at[layer],
            self._value_at[layer],
            out.data_ptr(),
            plan.block_table.data_ptr(),
            plan.context_len.data_ptr(),
            plan.token_seq.data_ptr(),
            plan.token_row.data_ptr(),
            plan.token_pos.data_ptr(),
            *query.stride()[:2],
            query.shape[0],
            query.shape[1],
            self.shape.num_kv_heads,
            plan.block_table.stride(0),
            batch.page_size,
            params.sliding_window or 0,
            params.scale,
            params.softcap or 0.0,
            self._crew,
        )
        self._attend(ctypes.addressof(request))
        return out

    def copy_pages(self, source: list[int], target: list[int]) -> None:
        """Copies whole pages, all layers, K and V: target[i] becomes equal to source[i]."""
        if not source:
            return
        old_block, old_lane = self._places(source)
        block, lane = self._places(target)
        self._keys[:, block, :, :, lane] = self._keys[:, old_block, :, :, old_lane]
        self._values[:, block, :, lane] = self._values[:, old_block, :, old_lane]

    def fill_pages(self, pages: list[int], value: float) -> None:
        """Sets every element of the pages (tests poison freed pages with NaN)."""
        block, lane = self._places(pages)
        self._keys[:, block, :, :, lane] = value
        self._values[:, block, :, lane] = value

    def _places(self, pages: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        size = self.shape.page_size
        slots = (torch.tensor(pages)[:, None] * size + torch.arange(size)).flatten()
        return slots // LANES, slots % LANES

    def _planned(self, batch: AttentionBatch) -> _Plan:
        """The plan of this batch; one batch value serves all layers of a step."""
        if self._plan is None or self._plan.batch is not batch:
            self._plan = _plan(batch)
        return self._plan


def _plan(batch: AttentionBatch) -> _Plan:
    tables = batch.block_table.to(torch.int32).contiguous()
    keys = [row.tobytes() for row in tables.numpy()]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    rows = flat_positions(batch)
    rank = torch.empty(len(keys), dtype=torch.int64)
    rank[torch.tensor(order, dtype=torch.int64)] = torch.arange(len(keys))
    token_row = torch.argsort(rank[rows.sequence], stable=True)
    return _Plan(
        batch,
        rows.sequence[token_row].to(torch.int32),
        token_row.to(torch.int32),
        rows.position[token_row].to(torch.int32),
        tables,
        batch.context_len.to(torch.int32).contiguous(),
        batch.slot_mapping.to(torch.int64).contiguous(),
    )


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy of it when its last axis is not dense."""
    if tensor.dtype != torch.float32:
        raise ValueError(f"the cpu backend computes float32, not {tensor.dtype}")
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()
