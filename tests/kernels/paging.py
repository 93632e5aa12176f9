"""Sequences on pages for tests: tables in random order, batches over parts of them."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch

from kernels.interface import AttentionBatch, KVShape


@dataclass(frozen=True, slots=True)
class Part:
    """Positions [begin, end) of the sequence whose pages are `table`."""

    table: list[int]
    begin: int
    end: int


def random_tables(lengths: list[int], shape: KVShape, seed: int = 0) -> list[list[int]]:
    """Gives each sequence pages of its own, scattered over the pool."""
    free = list(range(shape.num_pages))
    random.Random(seed).shuffle(free)
    return [[free.pop() for _ in range(-(-n // shape.page_size))] for n in lengths]


def batch_of(parts: list[Part], page_size: int, budget: list[int] | None = None) -> AttentionBatch:
    """The ragged batch of the parts, in order; budget: of each part."""
    width = max(len(part.table) for part in parts)
    counts = torch.tensor([part.end - part.begin for part in parts])
    slots = [
        part.table[position // page_size] * page_size + position % page_size
        for part in parts
        for position in range(part.begin, part.end)
    ]
    return AttentionBatch(
        query_start=torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]).int(),
        context_len=torch.tensor([part.end for part in parts], dtype=torch.int32),
        block_table=torch.tensor(
            [part.table + [0] * (width - len(part.table)) for part in parts], dtype=torch.int32
        ),
        slot_mapping=torch.tensor(slots),
        page_size=page_size,
        max_query_len=int(counts.max()),
        max_context_len=max(part.end for part in parts),
        budget=None if budget is None else torch.tensor(budget, dtype=torch.int32),
    )


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two float32 tensors are equal bit for bit (zeros with their sign)."""
    return torch.equal(left.contiguous().view(torch.int32), right.contiguous().view(torch.int32))
