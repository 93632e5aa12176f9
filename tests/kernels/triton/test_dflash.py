"""Sparse rows read the tiles that `kernels.dflash` chooses, and give what the reference gives."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernels.interface import AttentionBatch, AttentionParams
from kernels.triton.dflash import most_worth
from tests.kernels.paging import Part, batch_of, random_tables
from tests.kernels.triton.twins import DEVICE, Twins, last_tokens, on_device, shape_of, twins

LENGTHS = [200, 333, 97, 80, 161, 400]
BUDGETS = [1, 120, 96, 16, 0, 399]  # the first three are sparse; 399 is 25 of 25 tiles


def sparse_batch(made: Twins, budgets: list[int]) -> AttentionBatch:
    tables = random_tables(LENGTHS, made.shape)
    made.write([Part(table, 0, n) for table, n in zip(tables, LENGTHS, strict=True)])
    batch = last_tokens(tables, LENGTHS, made.shape.page_size)
    return replace(batch, budget=torch.tensor(budgets, dtype=torch.int32))


@pytest.mark.parametrize(
    ("page_size", "head_dim", "heads"), [(16, 64, 3), (32, 80, 8), (64, 16, 1), (16, 16, 20)]
)
def test_rows_with_a_budget_give_what_the_reference_gives(
    page_size: int, head_dim: int, heads: int
) -> None:
    made = twins(replace(shape_of(page_size, head_dim), sketched=True))
    made.agree(sparse_batch(made, BUDGETS), heads)


@pytest.mark.parametrize("eight_bit", [False, True])
def test_a_budget_in_sixteen_and_eight_bits(eight_bit: bool) -> None:
    dtype = torch.float16
    made = twins(replace(shape_of(16, 64, 2, dtype), sketched=True, eight_bit=eight_bit))
    made.agree(sparse_batch(made, BUDGETS), 2, AttentionParams(0.125, softcap=9.0))


def test_a_window_reads_all_whatever_the_budget() -> None:
    made = twins(replace(shape_of(16, 64), sketched=True))
    made.agree(sparse_batch(made, BUDGETS), 2, AttentionParams(0.125, sliding_window=150))


def test_chunks_read_all_beside_sparse_rows() -> None:
    made = twins(replace(shape_of(16, 16), sketched=True))
    tables = random_tables([200, 200], made.shape)
    made.write([Part(table, 0, 200) for table in tables])
    batch = batch_of([Part(tables[0], 190, 200), Part(tables[1], 199, 200)], 16)
    made.agree(replace(batch, budget=torch.tensor([80, 80], dtype=torch.int32)), 2)


def test_a_budget_of_the_whole_context_gives_the_bits_of_none() -> None:
    made = twins(replace(shape_of(16, 64), sketched=True))
    batch = sparse_batch(made, [length + 5 for length in LENGTHS])
    query = made.draw(len(LENGTHS), 6).to(DEVICE)
    params = AttentionParams(0.125)
    found = made.triton.attend(0, query, on_device(batch), params)
    dense = made.triton.attend(0, query, on_device(replace(batch, budget=None)), params)
    assert torch.equal(found, dense)


def test_of_tiles_worth_the_same_the_earlier_are_read() -> None:
    """All keys are equal, so is what the tiles are worth; the values tell which were read."""
    made = twins(replace(shape_of(16, 16, 1), sketched=True))
    table = list(range(13))
    batch = batch_of([Part(table, 0, 200)], 16)
    key, value = torch.ones(200, 1, 16), torch.randn(200, 1, 16)
    for backend in (made.triton, made.reference):
        kept = made.shape.dtype if backend is made.triton else torch.float64
        place = DEVICE if backend is made.triton else "cpu"
        moved = on_device(batch) if backend is made.triton else batch
        backend.write(0, key.to(place, kept), value.to(place, kept), moved)
    rows = replace(last_tokens([table], [200], 16), budget=torch.tensor([112], dtype=torch.int32))
    made.agree(rows, 2)


def test_tiles_come_by_falling_worth_and_then_in_order() -> None:
    worth = torch.tensor([[3.0, float("inf"), 3.0, 7.0, 3.0, float("-inf")]])
    assert most_worth(worth, 5).tolist() == [[1, 3, 0, 2, 4]]
