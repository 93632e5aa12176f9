"""Batches over pages for one attention layer, with or without pages in common."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.interface import AttentionBackend, AttentionBatch
from loadtest.gpu_check.scale import Scale


@dataclass(frozen=True, slots=True)
class Span:
    """Positions [begin, end) of the sequence whose pages are `table`."""

    table: list[int]
    begin: int
    end: int


def batch_of(spans: list[Span], page_size: int, budget: int = 0) -> AttentionBatch:
    """Returns the ragged batch of the spans, on the host. budget: of each row; 0: none."""
    width = max(len(span.table) for span in spans)
    counts = torch.tensor([span.end - span.begin for span in spans])
    slots = []
    for span in spans:
        positions = torch.arange(span.begin, span.end)
        slots.append(torch.tensor(span.table)[positions // page_size] * page_size)
        slots[-1] += positions % page_size
    tables = [span.table + [0] * (width - len(span.table)) for span in spans]
    return AttentionBatch(
        query_start=torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]).int(),
        context_len=torch.tensor([span.end for span in spans], dtype=torch.int32),
        block_table=torch.tensor(tables, dtype=torch.int32),
        slot_mapping=torch.cat(slots),
        page_size=page_size,
        max_query_len=int(counts.max()),
        max_context_len=max(span.end for span in spans),
        budget=torch.full((len(spans),), budget, dtype=torch.int32) if budget else None,
    )


def tables_of(count: int, length: int, shared: int, page_size: int) -> list[list[int]]:
    """Returns page tables whose first `shared` tokens lie in the same pages, the rest apart."""
    common = list(range(shared // page_size))
    own = -(-length // page_size) - len(common)
    first = len(common)
    return [common + list(range(first + s * own, first + (s + 1) * own)) for s in range(count)]


def num_pages(tables: list[list[int]]) -> int:
    """Returns how many pages a pool needs for the tables."""
    return 1 + max(page for table in tables for page in table)


def fill(backend: AttentionBackend, scale: Scale, layer: int, seed: int = 0) -> None:
    """Writes random K/V to all of a layer's pages."""
    shape, device = backend.shape, torch.device(scale.device)
    generator = torch.Generator(device).manual_seed(seed)
    size = (shape.num_pages * shape.page_size, shape.num_kv_heads, shape.head_dim)
    key, value = (
        torch.randn(size, generator=generator, device=device, dtype=torch.float32).to(shape.dtype)
        for _ in range(2)
    )
    whole = Span(list(range(shape.num_pages)), 0, size[0])
    batch = batch_of([whole], shape.page_size)
    backend.write(layer, key, value, batch.on_device(device))
