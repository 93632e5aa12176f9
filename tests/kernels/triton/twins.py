"""A Triton backend and the float64 reference that hold the same K/V, the rest of it NaN."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from kernels.interface import AttentionBatch, AttentionParams, KVShape
from kernels.reference import ReferenceAttention
from kernels.triton.attention import TritonAttention
from tests.kernels.paging import Part, batch_of

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-2, torch.bfloat16: 6e-2}


def shape_of(
    page_size: int, head_dim: int, num_kv_heads: int = 2, dtype: torch.dtype = torch.float32
) -> KVShape:
    return KVShape(1, 96, page_size, num_kv_heads, head_dim, dtype)


@dataclass(frozen=True)
class Twins:
    """The two of them, and the random numbers that they are given."""

    triton: TritonAttention
    reference: ReferenceAttention
    generator: torch.Generator

    @property
    def shape(self) -> KVShape:
        return self.triton.shape

    def draw(self, tokens: int, heads: int) -> torch.Tensor:
        drawn = torch.randn(tokens, heads, self.shape.head_dim, generator=self.generator)
        return (1.5 * drawn).to(self.shape.dtype)

    def write(self, parts: list[Part]) -> None:
        """Writes random K/V in the parts' positions, the same in both."""
        batch = batch_of(parts, self.shape.page_size)
        heads = self.shape.num_kv_heads
        key, value = (self.draw(batch.slot_mapping.numel(), heads) for _ in range(2))
        self.triton.write(0, key.to(DEVICE), value.to(DEVICE), on_device(batch))
        self.reference.write(0, key.double(), value.double(), batch)

    def agree(
        self,
        batch: AttentionBatch,
        heads: int,
        params: AttentionParams | None = None,
        tolerance: float | None = None,
    ) -> torch.Tensor:
        """Compares them on a random query, so many heads for each kv head; returns the result."""
        params = params or AttentionParams(self.shape.head_dim**-0.5)
        query = self.draw(batch.slot_mapping.numel(), heads * self.shape.num_kv_heads)
        found = self.triton.attend(0, query.to(DEVICE), on_device(batch), params).cpu()
        expected = self.reference.attend(0, query.double(), batch, params)
        assert found.dtype == query.dtype
        tolerance = tolerance or TOLERANCE[self.shape.dtype]
        torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)
        return found


def twins(shape: KVShape) -> Twins:
    made = Twins(
        TritonAttention(shape, DEVICE),
        ReferenceAttention(replace(shape, dtype=torch.float64)),
        torch.Generator().manual_seed(5),
    )
    for backend in (made.triton, made.reference):
        backend.fill_pages(list(range(shape.num_pages)), float("nan"))
    return made


def on_device(batch: AttentionBatch) -> AttentionBatch:
    """The batch with its tensors where the kernels run."""
    if DEVICE == "cpu":
        return batch
    names = ("query_start", "context_len", "block_table", "slot_mapping")
    moved = {name: getattr(batch, name).to(DEVICE) for name in names}
    budget = None if batch.budget is None else batch.budget.to(DEVICE)
    return replace(batch, **moved, budget=budget, host=batch)


def last_tokens(tables: list[list[int]], lengths: list[int], page_size: int) -> AttentionBatch:
    """A batch of decode rows: the last token of each sequence."""
    parts = [Part(table, n - 1, n) for table, n in zip(tables, lengths, strict=True)]
    return batch_of(parts, page_size)
