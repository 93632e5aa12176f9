"""Which sequence and position each flattened row of a batch has."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.interface import AttentionBatch, AttentionParams


@dataclass(frozen=True, slots=True)
class FlatRows:
    """sequence, position: int64 [T], of each flattened row."""

    sequence: torch.Tensor
    position: torch.Tensor


def flat_positions(batch: AttentionBatch) -> FlatRows:
    """Derives sequence and position of the batch's T rows, on the batch's device."""
    start = batch.query_start.long()
    count = start[1:] - start[:-1]
    sequence = torch.repeat_interleave(torch.arange(count.numel(), device=start.device), count)
    offset = torch.arange(sequence.numel(), device=start.device) - start[sequence]
    position = batch.context_len.long()[sequence] - count[sequence] + offset
    return FlatRows(sequence, position)


def slots_of(batch: AttentionBatch, sequence: int, begin: int, end: int) -> torch.Tensor:
    """int64 [end - begin]: slots of the sequence's positions [begin, end)."""
    position = torch.arange(begin, end, device=batch.block_table.device)
    page = batch.block_table[sequence].long()[position // batch.page_size]
    return page * batch.page_size + position % batch.page_size


def budgets_of(batch: AttentionBatch, params: AttentionParams) -> list[int]:
    """The tokens each sequence may read in a layer; 0: all, as where there is a window."""
    if batch.budget is None or params.sliding_window is not None:
        return [0] * batch.context_len.numel()
    return [int(tokens) for tokens in batch.budget.tolist()]
