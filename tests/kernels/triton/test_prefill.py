"""Chunks give the truth, over cached prefixes and beside decode rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernels.interface import AttentionParams
from tests.kernels.paging import Part, batch_of, random_tables
from tests.kernels.triton.twins import Twins, shape_of, twins

CHUNKS = [(0, 2), (0, 17), (5, 70), (63, 66), (64, 96), (0, 1), (99, 100)]
WINDOWED = AttentionParams(0.2, sliding_window=20)
BOTH = AttentionParams(0.2, sliding_window=33, softcap=5.0)


def chunks(made: Twins, spans: list[tuple[int, int]]) -> list[Part]:
    """Sequences written up to the end of their spans; the parts are the spans."""
    ends = [end for _, end in spans]
    tables = random_tables(ends, made.shape)
    made.write([Part(table, 0, end) for table, end in zip(tables, ends, strict=True)])
    return [Part(table, *span) for table, span in zip(tables, spans, strict=True)]


@pytest.mark.parametrize(
    ("page_size", "head_dim", "kv_heads", "heads"),
    [(16, 64, 2, 3), (24, 80, 1, 1), (64, 128, 1, 8), (16, 256, 1, 2), (16, 16, 1, 40)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_chunks_beside_decode_rows_give_the_truth(
    page_size: int, head_dim: int, kv_heads: int, heads: int, dtype: torch.dtype
) -> None:
    made = twins(shape_of(page_size, head_dim, kv_heads, dtype))
    made.agree(batch_of(chunks(made, CHUNKS), page_size), heads)


def test_pages_of_one_token_give_the_truth() -> None:
    made = twins(shape_of(1, 64))
    made.agree(batch_of(chunks(made, [(3, 40), (0, 20)]), 1), heads=2)


@pytest.mark.parametrize("params", [WINDOWED, BOTH])
@pytest.mark.parametrize("eight_bit", [False, True])
def test_windows_softcaps_and_eight_bits_give_the_truth(
    params: AttentionParams, eight_bit: bool
) -> None:
    made = twins(replace(shape_of(16, 64), eight_bit=eight_bit))
    made.agree(batch_of(chunks(made, CHUNKS), 16), 2, params)


def test_a_window_reads_nothing_that_it_has_left_behind() -> None:
    made = twins(shape_of(16, 16, 1))
    (part,) = chunks(made, [(60, 75)])
    for backend in (made.triton, made.reference):
        backend.fill_pages(part.table[:2], float("nan"))
    made.agree(batch_of([part], 16), 2, AttentionParams(0.25, sliding_window=29))


@pytest.mark.parametrize("spans", [[(0, 5), (3, 9)], [(4, 5), (8, 9)]])
def test_batches_of_chunks_alone_and_of_decode_rows_alone_are_whole(
    spans: list[tuple[int, int]],
) -> None:
    made = twins(shape_of(16, 16, 1))
    made.agree(batch_of(chunks(made, spans), 16), 2)
