"""K/V in eight bits: every member stores the same, and reads it like the reference."""

from __future__ import annotations

import math

import pytest
import torch

from kernels import Place, make_backend
from kernels.cpu.attention import CpuAttention
from kernels.eight_bit import store
from kernels.interface import AttentionParams, KVShape
from tests.kernels.attending import Contents, alone, mixed, run_schedule, whole
from tests.kernels.members import MEMBERS
from tests.kernels.paging import Part, batch_of, random_tables, same_bits

LENGTHS = [37, 150, 16, 5]
PLAIN = AttentionParams(scale=0.25)


def pool(contents: Contents, page_size: int, dtype: torch.dtype = torch.float32) -> KVShape:
    pages = sum(-(-n // page_size) for n in contents.lengths) + 3
    heads, width = contents.num_kv_heads, contents.head_dim
    return KVShape(2, pages, page_size, heads, width, dtype, eight_bit=True)


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("page_size", [1, 16, 24])
@pytest.mark.parametrize("head_dim", [24, 64, 128])
@pytest.mark.parametrize("window_and_cap", [(None, None), (20, 5.0)])
def test_every_member_reads_eight_bits_alike(
    member: str, page_size: int, head_dim: int, window_and_cap: tuple[int | None, float | None]
) -> None:
    contents = Contents(LENGTHS, 6, 2, head_dim)
    params = AttentionParams(head_dim**-0.5, *window_and_cap)
    truth = make_backend("reference", pool(contents, 16, torch.float64), Place())
    tables = random_tables(LENGTHS, truth.shape, seed=1)
    expected = run_schedule(truth, contents, tables, whole(LENGTHS), params)
    backend = make_backend(member, pool(contents, page_size), Place())
    tables = random_tables(LENGTHS, backend.shape)
    found = run_schedule(backend, contents, tables, mixed(LENGTHS), params)
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left.double(), right, atol=2e-5, rtol=1e-5)


def test_chunks_pages_and_batch_mates_do_not_change_bits() -> None:
    contents = Contents(LENGTHS, 6, 2, 32)
    bits = []
    for page_size, schedule in (
        (16, whole(LENGTHS)),
        (24, mixed(LENGTHS)),
        (16, alone(LENGTHS, 7)),
    ):
        backend = make_backend("cpu", pool(contents, page_size), Place())
        tables = random_tables(LENGTHS, backend.shape)
        bits.append(run_schedule(backend, contents, tables, schedule, PLAIN))
    for other in bits[1:]:
        assert all(same_bits(a, b) for a, b in zip(bits[0], other, strict=True))


def test_what_is_read_is_within_half_a_scale() -> None:
    x = torch.randn(50, 3, 64) * torch.logspace(-6, 6, 50)[:, None, None]
    kept = store(x)
    error = (kept.read() - x).abs()
    assert (error <= 0.5001 * kept.scale[..., None]).all()
    assert (kept.scale == x.abs().amax(-1) / 127).all()


def test_zeros_stay_zeros_and_a_nan_spoils_its_own_vector_only() -> None:
    x = torch.ones(3, 8)
    x[0], x[1, 5] = 0.0, math.nan
    read = store(x).read()
    assert (read[0] == 0).all()
    assert read[1].isnan().all()
    assert (read[2] == 1).all()


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 0.0, 1e-42, 3e38])
def test_the_cpu_member_stores_odd_numbers_like_the_reference(odd: float) -> None:
    """One key, so attention gives its value back."""
    contents = Contents([1], 1, 1, 16)
    contents.values[0][0, 0, 3] = odd
    contents.values[0][0, 0, 4:] *= 1e-3
    shape = pool(contents, 16)
    found = [
        run_schedule(make_backend(member, shape, Place()), contents, [[0]], whole([1]), PLAIN)[0]
        for member in ("reference", "cpu")
    ]
    torch.testing.assert_close(found[1], found[0], equal_nan=True, rtol=1e-6, atol=0)


@pytest.mark.parametrize("page_size", [4, 16, 24])
def test_pages_are_copied_and_filled_with_their_scales(page_size: int) -> None:
    contents = Contents([page_size] * 3, 2, 1, 16)
    backend = make_backend("cpu", pool(contents, page_size), Place())
    tables = [[0], [1], [2]]
    before = run_schedule(backend, contents, tables, whole(contents.lengths), PLAIN)
    last = batch_of([Part([2], page_size - 1, page_size)], page_size)
    query = contents.queries[0][-1:]
    backend.copy_pages([0], [2])
    assert same_bits(backend.attend(0, query, last, PLAIN)[0], before[0][-1])
    backend.fill_pages([2], math.nan)
    assert backend.attend(0, query, last, PLAIN).isnan().all()
    backend.fill_pages([2], 0.5)
    torch.testing.assert_close(backend.attend(0, query, last, PLAIN), torch.full((1, 2, 16), 0.5))


def test_the_pool_takes_what_the_shape_says() -> None:
    for eight_bit in (False, True):
        for sketched in (False, True):
            shape = KVShape(3, 40, 16, 2, 64, torch.float32, eight_bit, sketched)
            backend = make_backend("cpu", shape, Place())
            assert isinstance(backend, CpuAttention)
            assert backend.nbytes == 40 * 16 * shape.bytes_per_token
