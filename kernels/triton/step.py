"""What a batch asks of the kernels, read on the host: which rows decode, which are chunks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from kernels.dflash import FIRST, RECENT, is_sparse, tiles_of
from kernels.interface import AttentionBatch, KVShape
from kernels.triton.plan import Chosen
from kernels.triton.runs import Ints, Rows


@dataclass(frozen=True, slots=True)
class Step:
    """A batch's numbers, int32: start [S + 1], context [S], tables [S, width], budget [S] or None.

    decode: the sequences with one new token, which are the decode rows, in order.
    """

    start: Ints
    context: Ints
    tables: Ints
    budget: Ints | None
    decode: Ints
    page_size: int

    def rows(self, window: int | None) -> Rows:
        """Returns the decode rows as a layer with this window sees them."""
        context = self.context[self.decode]
        first = np.maximum(0, context - window) if window else np.zeros_like(context)
        return Rows(self.tables[self.decode], first, context, self.page_size)

    def chosen(self, window: int | None) -> Chosen:
        """Returns which decode rows read chosen tiles only; none in a layer with a window."""
        if self.budget is None or window is not None:
            return Chosen()
        budgets, contexts = self.budget[self.decode].tolist(), self.context[self.decode].tolist()
        rows = [r for r, budget in enumerate(budgets) if is_sparse(budget, contexts[r])]
        return Chosen(tuple(rows), tuple(max(tiles_of(budgets[r]), FIRST + RECENT) for r in rows))

    def row_table(self, rows: Rows) -> Ints:
        """Returns int32 [R, 4] for the kernels: sequence, token, first position, context."""
        columns = (self.decode, self.start[self.decode], rows.first, rows.context)
        return np.stack(columns, axis=1).astype(np.int32)

    def blocks(self, heads: int, size: int) -> Ints:
        """Returns int32 [blocks, 5] for the chunks, as `prefill_kernel` takes them.

        The blocks with the most to read come first, so that none of them is left for the end.
        """
        found = []
        for s in np.flatnonzero(np.diff(self.start) > 1).tolist():
            count = int(self.start[s + 1] - self.start[s])
            position = int(self.context[s]) - count
            for at in range(0, count * heads, size):
                end = min(count * heads, at + size)
                found.append((s, int(self.start[s]), position, at, end))
        found.sort(key=lambda block: -(block[2] + block[4] // heads))
        return np.array(found, dtype=np.int32).reshape(-1, 5)


def step_of(batch: AttentionBatch, shape: KVShape) -> Step:
    """Reads a batch on the host. Raises ValueError where it does not fit the pool."""
    host = batch.on_host
    start, context = _ints(host.query_start), _ints(host.context_len)
    tables = _ints(host.block_table)
    budget = None if host.budget is None else _ints(host.budget)
    if host.page_size != shape.page_size:
        raise ValueError(
            f"page_size of the batch is {host.page_size}, the pool's {shape.page_size}"
        )
    _check(start, context, tables, shape)
    _check_slots(host.slot_mapping.cpu().numpy(), int(start[-1]), shape)
    decode = np.flatnonzero(np.diff(start) == 1).astype(np.int32)
    return Step(start, context, tables, budget, decode, shape.page_size)


def _ints(tensor: torch.Tensor) -> Ints:
    found: Ints = tensor.cpu().numpy().astype(np.int32, copy=False)
    return found


def _check(start: Ints, context: Ints, tables: Ints, shape: KVShape) -> None:
    """Raises ValueError naming the first sequence that would make a kernel leave the pool."""
    if len(start) != len(context) + 1 or tables.shape[:1] != context.shape or tables.ndim != 2:
        raise ValueError(
            f"query_start {start.shape}, context_len {context.shape} and block_table "
            f"{tables.shape} are not of one batch"
        )
    pages = -(-context // shape.page_size)
    used = np.arange(tables.shape[1]) < pages[:, None]
    bad = (np.diff(start) < 0) | (context < np.diff(start)) | (pages > tables.shape[1])
    bad |= (used & ((tables < 0) | (tables >= shape.num_pages))).any(1)
    if bad.any():
        s = int(bad.argmax())
        raise ValueError(
            f"sequence {s} has {start[s + 1] - start[s]} new of {context[s]} tokens and the pages "
            f"{tables[s].tolist()}; a page has {shape.page_size} tokens, the pool "
            f"{shape.num_pages} pages"
        )


def _check_slots(slots: npt.NDArray[np.int64], tokens: int, shape: KVShape) -> None:
    """Raises ValueError where the slots are not the tokens', or not the pool's."""
    room = shape.num_pages * shape.page_size
    if slots.shape != (tokens,) or slots.dtype != np.int64:
        raise ValueError(f"slot_mapping is {slots.dtype} {slots.shape}, not int64 ({tokens},)")
    if tokens and not (slots.min() >= 0 and slots.max() < room):
        raise ValueError(f"slot_mapping leaves the pool's {room} slots")
