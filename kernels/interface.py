"""What every attention backend does: K/V on pages, addressed by block tables.

    block_table[s]   page ids of sequence s, in order of position
    slot             page * page_size + offset: where one token's K/V lives
    position p of sequence s lies in slot block_table[s][p // page_size] * page_size + p % page_size

A ragged batch is flattened to T tokens. Sequence s owns rows [query_start[s], query_start[s + 1]),
q of them; they are its positions [context_len[s] - q, context_len[s]).
Every layer writes its K/V before it attends, so one sequence may read a page that another one
fills in the same batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch

TILE = 16  # positions that are chosen together


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """One step's ragged batch of S sequences and T tokens.

    query_start: int32 [S + 1], cumulative, query_start[S] == T.
    context_len: int32 [S], tokens of each sequence after this step, its new ones included.
    block_table: int32 [S, max_pages], rows padded with 0 past the sequence's pages.
    slot_mapping: int64 [T], where each new token's K/V is written.
    max_query_len, max_context_len: largest q and context_len, as plain ints.
    budget: int32 [S], tokens of its context that a decode row (q == 1) reads at most, chosen as
    `kernels.dflash` says; 0: all. None: all rows read all.
    host: the same batch on the host, where this one lies on a device; None: it is on the host.
    """

    query_start: torch.Tensor
    context_len: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor
    page_size: int
    max_query_len: int
    max_context_len: int
    budget: torch.Tensor | None = None
    host: AttentionBatch | None = None

    @property
    def on_host(self) -> AttentionBatch:
        """The batch whose tensors can be read without waiting for a device."""
        return self.host or self

    def on_device(self, device: torch.device) -> AttentionBatch:
        """A batch of the host on a device, with itself as what can be read on the host."""
        if device.type == "cpu":
            return self
        return replace(
            self,
            query_start=self.query_start.to(device),
            context_len=self.context_len.to(device),
            block_table=self.block_table.to(device),
            slot_mapping=self.slot_mapping.to(device),
            budget=None if self.budget is None else self.budget.to(device),
            host=self,
        )


@dataclass(frozen=True, slots=True)
class KVShape:
    """Size of a page pool: everything that a backend needs to allocate it.

    dtype: of what is computed. eight_bit: K/V is kept as `kernels.eight_bit` says. sketched: each
    key's sketch is kept too (`kernels.dflash`); page_size is a multiple of 16 then.
    """

    num_layers: int
    num_pages: int
    page_size: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    eight_bit: bool = False
    sketched: bool = False

    @property
    def bytes_per_token(self) -> int:
        """Bytes of K and V over all layers, with scales and sketches."""
        width = self.head_dim + 4 if self.eight_bit else self.head_dim * self.dtype.itemsize
        sketch = -(-self.head_dim // 16) * 8 + 4 if self.sketched else 0
        return self.num_layers * self.num_kv_heads * (2 * width + sketch)


@dataclass(frozen=True, slots=True)
class AttentionParams:
    """What a layer asks of attention beyond the batch.

    scale: factor on q.k. sliding_window: a query sees only its last so many positions, its own
    included. softcap: scores become softcap * tanh(score / softcap) before the softmax.
    """

    scale: float
    sliding_window: int | None = None
    softcap: float | None = None


class AttentionBackend(Protocol):
    """Owns the K/V page pool of one model and attends over it.

    The memory layout is the backend's own; nobody else looks inside. `bitwise` says whether a
    row's result depends only on its query and the K/V at its positions, bit for bit: not on batch
    mates, chunking, page size or page ids.
    """

    name: str
    bitwise: bool
    shape: KVShape

    def write(
        self, layer: int, key: torch.Tensor, value: torch.Tensor, batch: AttentionBatch
    ) -> None:
        """Stores key and value [T, num_kv_heads, head_dim] in the batch's slots."""

    def attend(
        self, layer: int, query: torch.Tensor, batch: AttentionBatch, params: AttentionParams
    ) -> torch.Tensor:
        """Returns causal attention [T, num_heads, head_dim] of query (same shape) over the pages.

        num_heads is a multiple of num_kv_heads (grouped queries).
        """

    def copy_pages(self, source: list[int], target: list[int]) -> None:
        """Copies whole pages, all layers, K and V: target[i] becomes equal to source[i]."""

    def fill_pages(self, pages: list[int], value: float) -> None:
        """Sets every element of the pages (tests poison freed pages with NaN)."""


@runtime_checkable
class Holding(Protocol):
    """A backend whose kernels read tables that the host makes for each batch.

    For a step that is captured and run again it keeps them in one place: `hold` once for a batch
    whose tensors, those of `batch.host` too, are refilled in place, then `plan` before each run.
    """

    def hold(
        self, batch: AttentionBatch, num_heads: int, windows: tuple[int | None, ...] = (None,)
    ) -> None:
        """Makes and fills tables of fixed size for a batch of decode rows.

        num_heads: of every layer's query. windows: the sliding windows of the layers, each once.
        """

    def plan(self, batch: AttentionBatch) -> None:
        """Fills the tables of a held batch from what its tensors hold now."""


def can_capture(backend: AttentionBackend) -> bool:
    """Whether a decode step over the backend can be captured as a graph and run again.

    One says so by `capturable = True` (it never waits for the device and takes all that changes
    from tensors), or by being a Holding.
    """
    return isinstance(backend, Holding) or bool(getattr(backend, "capturable", False))
