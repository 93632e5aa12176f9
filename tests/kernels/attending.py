"""Runs a schedule of prefill chunks and decodes through a backend, token contents fixed."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from kernels.interface import AttentionBackend, AttentionParams
from tests.kernels.paging import Part, batch_of

Step = list[tuple[int, int, int]]  # (sequence, begin, end)


@dataclass(frozen=True)
class Contents:
    """Random query, key and value of each sequence, [length, heads, head_dim]."""

    lengths: list[int]
    num_heads: int = 6
    num_kv_heads: int = 2
    head_dim: int = 16
    queries: list[torch.Tensor] = field(init=False)
    keys: list[torch.Tensor] = field(init=False)
    values: list[torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(7)
        for name, heads in (("queries", self.num_heads), ("keys", self.num_kv_heads)):
            object.__setattr__(self, name, self._draw(heads, generator))
        object.__setattr__(self, "values", self._draw(self.num_kv_heads, generator))

    def _draw(self, heads: int, generator: torch.Generator) -> list[torch.Tensor]:
        return [
            2 * torch.randn(length, heads, self.head_dim, generator=generator)
            for length in self.lengths
        ]


def run_schedule(
    backend: AttentionBackend,
    contents: Contents,
    tables: list[list[int]],
    schedule: list[Step],
    params: AttentionParams,
) -> list[torch.Tensor]:
    """Returns each sequence's attention [length, heads, head_dim] over the whole schedule.

    The pool starts full of NaN, so that a slot read without having been written shows.
    """
    backend.fill_pages(list(range(backend.shape.num_pages)), float("nan"))
    dtype = backend.shape.dtype
    found: list[list[torch.Tensor]] = [[] for _ in contents.lengths]
    for step in schedule:
        batch = batch_of([Part(tables[s], b, e) for s, b, e in step], backend.shape.page_size)
        query, key, value = (
            torch.cat([stream[s][b:e] for s, b, e in step]).to(dtype)
            for stream in (contents.queries, contents.keys, contents.values)
        )
        backend.write(0, key, value, batch)
        result = backend.attend(0, query, batch, params)
        for (s, begin, end), first in zip(step, batch.query_start.tolist(), strict=False):
            found[s].append(result[first : first + end - begin])
    return [torch.cat(parts) for parts in found]


def whole(lengths: list[int]) -> list[Step]:
    """Every sequence in one chunk, all in one batch."""
    return [[(s, 0, n) for s, n in enumerate(lengths)]]


def alone(lengths: list[int], chunk: int) -> list[Step]:
    """One sequence after the other, in chunks of so many tokens."""
    return [
        [(s, begin, min(begin + chunk, n))]
        for s, n in enumerate(lengths)
        for begin in range(0, n, chunk)
    ]


def mixed(lengths: list[int]) -> list[Step]:
    """Prefill chunks of uneven size beside decodes, sequences joining over time."""
    done = [0] * len(lengths)
    schedule: list[Step] = []
    while done != lengths:
        step: Step = []
        for s, n in enumerate(lengths):
            if done[s] == n or s > len(schedule):
                continue
            count = 1 if (s + len(schedule)) % 3 else 5 + 6 * s
            end = min(n, done[s] + count)
            step.append((s, done[s], end))
            done[s] = end
        schedule.append(step)
    return schedule
