"""dflash: rows read the tiles that the reference chooses, and a full budget is dense attention."""

from __future__ import annotations

import math

import pytest
import torch

from kernels import Place, make_backend
from kernels.cpu.attention import MAX_SPARSE_HEADS
from kernels.dflash import FIRST, RECENT, choose, is_sparse, tiles_of
from kernels.interface import TILE, AttentionBackend, AttentionParams, KVShape
from tests.kernels.attending import Contents
from tests.kernels.members import MEMBERS, WITH_TRITON
from tests.kernels.paging import Part, batch_of, random_tables, same_bits

LENGTHS = [150, 320, 97, 1, 1000]
PLAIN = AttentionParams(scale=0.25)


def filled(
    member: str,
    contents: Contents,
    *,
    page_size: int = 16,
    dtype: torch.dtype = torch.float32,
    eight_bit: bool = False,
    threads: int = 1,
) -> tuple[AttentionBackend, list[list[int]]]:
    """A backend that holds all but the last token of each sequence; else its pages are NaN."""
    pages = sum(-(-n // page_size) for n in contents.lengths) + 3
    heads, width = contents.num_kv_heads, contents.head_dim
    shape = KVShape(1, pages, page_size, heads, width, dtype, eight_bit, sketched=True)
    backend = make_backend(member, shape, Place(threads=threads))
    assert backend.name == member
    backend.fill_pages(list(range(pages)), math.nan)
    tables = random_tables(contents.lengths, shape)
    for s, length in enumerate(contents.lengths):
        for begin in range(0, length - 1, 70):
            end = min(begin + 70, length - 1)
            batch = batch_of([Part(tables[s], begin, end)], page_size)
            keys, values = contents.keys[s][begin:end], contents.values[s][begin:end]
            backend.write(0, keys.to(dtype), values.to(dtype), batch)
    return backend, tables


def decode(
    backend: AttentionBackend,
    tables: list[list[int]],
    contents: Contents,
    budget: list[int] | None,
    params: AttentionParams = PLAIN,
) -> torch.Tensor:
    """The last token of all sequences in one batch."""
    dtype = backend.shape.dtype
    parts = [Part(t, n - 1, n) for t, n in zip(tables, contents.lengths, strict=True)]
    batch = batch_of(parts, backend.shape.page_size, budget)
    query, key, value = (
        torch.stack([own[-1] for own in stream]).to(dtype)
        for stream in (contents.queries, contents.keys, contents.values)
    )
    backend.write(0, key, value, batch)
    return backend.attend(0, query, batch, params)


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("eight_bit", [False, True])
@pytest.mark.parametrize("page_size", [16, 64])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(6, 2, 64), (4, 4, 24), (24, 1, 128)])
def test_every_member_reads_the_tiles_of_the_truth(
    member: str, eight_bit: bool, page_size: int, heads: int, kv_heads: int, head_dim: int
) -> None:
    contents = Contents(LENGTHS, heads, kv_heads, head_dim)
    budget = [96, 100, 0, 80, 256]
    params = AttentionParams(head_dim**-0.5)
    truth, tables = filled("reference", contents, dtype=torch.float64, eight_bit=eight_bit)
    expected = decode(truth, tables, contents, budget, params)
    backend, tables = filled(member, contents, page_size=page_size, eight_bit=eight_bit)
    found = decode(backend, tables, contents, budget, params)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)
    dense = decode(backend, tables, contents, None, params)
    assert not torch.allclose(dense[1], found[1], atol=1e-3)
    assert same_bits(dense[2], found[2])


@pytest.mark.parametrize("member", MEMBERS)
def test_scores_are_capped_before_they_are_compared(member: str) -> None:
    """Capped, a head's attention spreads: another head's tiles are worth more."""
    contents = Contents(LENGTHS)
    contents.queries[1][-1, ::2] *= 30.0
    params = AttentionParams(0.25, softcap=2.0)
    budget = [0, 112, 0, 0, 0]
    truth, tables = filled("reference", contents, dtype=torch.float64)
    expected = decode(truth, tables, contents, budget, params)
    found = decode(*filled(member, contents), contents, budget, params)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)
    keys = contents.keys[1][:, :1]
    heads = contents.queries[1][-1, : contents.queries[1].shape[1] // contents.num_kv_heads]
    free = choose(heads, keys, 112, AttentionParams(0.25))
    assert not torch.equal(choose(heads, keys, 112, params), free)


@pytest.mark.parametrize("member", WITH_TRITON)
def test_a_budget_that_covers_the_context_is_dense_bit_for_bit(member: str) -> None:
    contents = Contents(LENGTHS)
    backend, tables = filled(member, contents)
    dense = decode(backend, tables, contents, None)
    full = [tiles_of(n) * TILE for n in LENGTHS]
    assert same_bits(decode(backend, tables, contents, full), dense)


@pytest.mark.parametrize("member", WITH_TRITON)
def test_layers_with_a_window_read_all_of_it(member: str) -> None:
    contents = Contents(LENGTHS)
    backend, tables = filled(member, contents)
    params = AttentionParams(0.25, sliding_window=90)
    dense = decode(backend, tables, contents, None, params)
    assert same_bits(decode(backend, tables, contents, [80] * 5, params), dense)


def test_threads_and_batch_mates_do_not_change_bits() -> None:
    contents = Contents(LENGTHS)
    budget = [96, 100, 0, 80, 256]
    expected = decode(*filled("cpu", contents), contents, budget)
    assert same_bits(decode(*filled("cpu", contents, threads=3), contents, budget), expected)
    backend, tables = filled("cpu", contents)
    decode(backend, tables, contents, None)
    for s, length in enumerate(LENGTHS):
        batch = batch_of([Part(tables[s], length - 1, length)], 16, [budget[s]])
        alone = backend.attend(0, contents.queries[s][-1:], batch, PLAIN)
        assert same_bits(alone[0], expected[s])


def test_what_threads_share_out_is_added_to_the_same_bits() -> None:
    """Rows of several runs and spans, few enough for their parts to be shared out."""
    contents = Contents([2500, 3000])
    budget = [1400, 2100]
    truth, tables = filled("reference", contents, dtype=torch.float64)
    expected = decode(truth, tables, contents, budget)
    alone = decode(*filled("cpu", contents), contents, budget)
    torch.testing.assert_close(alone.double(), expected, atol=1e-5, rtol=1e-5)
    assert same_bits(decode(*filled("cpu", contents, threads=3), contents, budget), alone)


@pytest.mark.parametrize("page_size", [16, 64])
def test_a_copied_page_is_chosen_by_what_it_holds(page_size: int) -> None:
    """Two sequences begin alike; the second goes on within a copy of the page where they part."""
    contents, alike = Contents([400, 400]), 230
    for stream in (contents.keys, contents.values):
        stream[1][:alike] = stream[0][:alike]
    fresh, tables = filled("cpu", contents, page_size=page_size)
    expected = decode(fresh, tables, contents, [0, 112])[1]
    backend, tables = filled("cpu", contents, page_size=page_size)
    whole, pages = alike // page_size, -(-400 // page_size)
    spare = sorted(set(range(2 * pages + 3)) - set(tables[0]))[: pages - whole]
    backend.fill_pages(spare, math.nan)
    backend.copy_pages([tables[0][whole]], [spare[0]])
    branch = [*tables[0][:whole], *spare]
    batch = batch_of([Part(branch, alike, 399)], page_size)
    backend.write(0, contents.keys[1][alike:399], contents.values[1][alike:399], batch)
    assert same_bits(decode(backend, [tables[0], branch], contents, [0, 112])[1], expected)


def test_a_tile_that_one_head_alone_attends_to_is_read() -> None:
    """The other head's scores are larger by far, and spread over other tiles."""
    keys = torch.zeros(40 * TILE, 1, 8)
    keys[20 * TILE, 0, 0] = 9.0
    keys[: 16 * TILE, 0, 1] = 50.0
    query = torch.eye(2, 8)
    assert choose(query, keys, 7 * TILE, AttentionParams(1.0))[0, 20]


def test_the_first_and_the_recent_tiles_are_always_read() -> None:
    keys = torch.zeros(40 * TILE, 1, 8)
    keys[TILE : 10 * TILE] = 5.0
    chosen = choose(torch.ones(2, 8), keys, 7 * TILE, PLAIN)[0]
    assert chosen.nonzero().flatten().tolist() == [0, 1, 2, 36, 37, 38, 39]


def test_only_a_budget_below_the_context_is_sparse() -> None:
    least = (FIRST + RECENT) * TILE
    assert not is_sparse(0, 10_000)
    assert not is_sparse(10_000, 10_000)
    assert not is_sparse(9_990, 10_000)  # the same number of tiles
    assert is_sparse(9_980, 10_000)
    assert not is_sparse(1, least)
    assert is_sparse(1, least + 1)


def test_pages_that_tiles_do_not_fit_are_refused() -> None:
    shape = KVShape(1, 4, 24, 1, 16, torch.float32, sketched=True)
    with pytest.raises(ValueError, match="page_size is 24: with dflash a multiple of 16"):
        make_backend("cpu", shape, Place())


def test_budgets_without_sketches_are_refused() -> None:
    backend = make_backend("cpu", KVShape(1, 4, 16, 1, 16, torch.float32), Place())
    batch = batch_of([Part([0], 0, 1)], 16, [80])
    with pytest.raises(ValueError, match="keeps no sketches"):
        backend.attend(0, torch.zeros(1, 1, 16), batch, PLAIN)


def test_more_heads_than_a_task_holds_are_refused_where_a_row_is_sparse() -> None:
    contents = Contents([97, 200], MAX_SPARSE_HEADS + 1, 1, 16)
    backend, tables = filled("cpu", contents)
    assert decode(backend, tables, contents, None).isfinite().all()
    with pytest.raises(ValueError, match="25 query heads for a K/V head: sparse, 24 fit"):
        decode(backend, tables, contents, [0, 80])
