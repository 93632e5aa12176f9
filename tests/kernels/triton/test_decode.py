"""Decode rows give the truth, alone and together with those that share their pages."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernels.interface import AttentionParams
from tests.kernels.paging import Part, random_tables
from tests.kernels.triton.twins import Twins, last_tokens, shape_of, twins

EDGES = [1, 2, 15, 16, 17, 63, 64, 65, 129]
WINDOWED = AttentionParams(0.2, sliding_window=20)
CAPPED = AttentionParams(0.2, softcap=5.0)
BOTH = AttentionParams(0.2, sliding_window=70, softcap=5.0)


def with_rows(made: Twins, lengths: list[int]) -> list[list[int]]:
    tables = random_tables(lengths, made.shape)
    made.write([Part(table, 0, n) for table, n in zip(tables, lengths, strict=True)])
    return tables


@pytest.mark.parametrize(
    ("page_size", "head_dim", "kv_heads", "heads"),
    [(16, 64, 2, 3), (24, 80, 1, 1), (64, 128, 1, 8), (16, 256, 1, 2), (16, 16, 1, 40)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_lengths_around_the_edges_of_tiles_give_the_truth(
    page_size: int, head_dim: int, kv_heads: int, heads: int, dtype: torch.dtype
) -> None:
    made = twins(shape_of(page_size, head_dim, kv_heads, dtype))
    tables = with_rows(made, EDGES)
    made.agree(last_tokens(tables, EDGES, page_size), heads)


def test_pages_of_one_token_give_the_truth() -> None:
    made = twins(replace(shape_of(1, 64), num_pages=160))
    lengths = [1, 17, 70]
    made.agree(last_tokens(with_rows(made, lengths), lengths, 1), heads=4)


@pytest.mark.parametrize("params", [WINDOWED, CAPPED, BOTH])
def test_windows_and_softcaps_give_the_truth(params: AttentionParams) -> None:
    made = twins(shape_of(16, 64))
    made.agree(last_tokens(with_rows(made, EDGES), EDGES, 16), 2, params)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_eight_bits_give_what_the_reference_reads_of_them(dtype: torch.dtype) -> None:
    made = twins(replace(shape_of(16, 80, 2, dtype), eight_bit=True))
    made.agree(last_tokens(with_rows(made, EDGES), EDGES, 16), 3, CAPPED)


def family(made: Twins) -> tuple[list[list[int]], list[int]]:
    """Ten rows: nine share 256 tokens, five of these some 40 more, all ending inside a page.

    One of the five goes on in that page and behind it; the tenth row shares nothing.
    """
    size = made.shape.page_size
    lengths = [296, 290, 296, 320, 300, 257, 270, 300, 310, 50]
    stem, branch = 256 // size, -(-300 // size)
    free = iter(range(branch, made.shape.num_pages))
    tables, own = [], []
    for r, n in enumerate(lengths):
        shared = branch if r < 5 else stem if r < 9 else 0
        pages = [next(free) for _ in range(max(0, -(-n // size) - shared))]
        tables.append(list(range(shared))[: -(-n // size)] + pages)
        if r in (3, 9):
            own.append(Part(tables[r], 0, n))
        elif r > 4:
            own.append(Part(tables[r], 256, n))
    made.write(own)
    return tables, lengths


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("params", [None, BOTH])
def test_rows_that_share_pages_at_two_depths_give_the_truth(
    heads: int, params: AttentionParams | None
) -> None:
    made = twins(shape_of(16, 64, 1))
    tables, lengths = family(made)
    made.agree(last_tokens(tables, lengths, 16), heads, params)


def test_rows_that_share_pages_of_another_size_in_eight_bits_give_the_truth() -> None:
    made = twins(replace(shape_of(32, 64, 1, torch.float16), eight_bit=True))
    tables, lengths = family(made)
    made.agree(last_tokens(tables, lengths, 32), heads=8)


def test_a_row_reads_nothing_before_its_window_though_others_see_it() -> None:
    """Two rows share pages; the window of the longer one has left the first page, now NaN."""
    made = twins(shape_of(16, 16, 1))
    tables = [[0, 1, 2, 3], [0, 1, 2, 3, 4]]
    made.write([Part(tables[1], 0, 80)])
    for backend in (made.triton, made.reference):
        backend.fill_pages([0], float("nan"))
    params = AttentionParams(0.25, sliding_window=40)
    made.agree(last_tokens(tables, [64, 80], 16), 2, params)


def test_the_same_batch_gives_the_same_bits() -> None:
    made = twins(shape_of(16, 64, 1))
    tables, lengths = family(made)
    batch = last_tokens(tables, lengths, 16)
    query = made.draw(len(lengths), 4)
    params = AttentionParams(0.125)
    first = made.triton.attend(0, query, batch, params)
    again = made.triton.attend(0, query, last_tokens(tables, lengths, 16), params)
    assert torch.equal(first, again)
