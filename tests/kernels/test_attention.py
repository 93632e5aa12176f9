"""Every backend agrees with the reference, whatever the pages, heads and schedule."""

from __future__ import annotations

import pytest
import torch

from kernels import Place, make_backend
from kernels.interface import AttentionParams, KVShape
from tests.kernels.attending import Contents, Step, alone, mixed, run_schedule, whole
from tests.kernels.members import MEMBERS, WITH_TRITON
from tests.kernels.paging import Part, batch_of, random_tables

LENGTHS = [37, 70, 16, 5]
PLAIN = AttentionParams(scale=0.25)


def pool(page_size: int, contents: Contents, dtype: torch.dtype = torch.float32) -> KVShape:
    pages = sum(-(-n // page_size) for n in contents.lengths) + 3
    return KVShape(2, pages, page_size, contents.num_kv_heads, contents.head_dim, dtype)


def attend(
    member: str,
    contents: Contents,
    page_size: int,
    schedule: list[Step],
    params: AttentionParams,
) -> list[torch.Tensor]:
    shape = pool(page_size, contents)
    tables = random_tables(contents.lengths, shape)
    return run_schedule(make_backend(member, shape, Place()), contents, tables, schedule, params)


def truth(contents: Contents, params: AttentionParams) -> list[torch.Tensor]:
    shape = pool(16, contents, torch.float64)
    backend = make_backend("reference", shape, Place())
    tables = random_tables(contents.lengths, shape, seed=1)
    return run_schedule(backend, contents, tables, whole(contents.lengths), params)


def assert_close(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left.double(), right, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("member", WITH_TRITON)
@pytest.mark.parametrize("page_size", [1, 16, 24, 64])
def test_every_page_size_gives_the_truth(member: str, page_size: int) -> None:
    contents = Contents(LENGTHS)
    found = attend(member, contents, page_size, mixed(LENGTHS), PLAIN)
    assert_close(found, truth(contents, PLAIN))


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"),
    [(4, 4, 16), (9, 3, 64), (8, 1, 24), (40, 1, 16), (2, 2, 80), (4, 2, 128), (2, 1, 256)],
)
def test_every_grouping_of_heads_gives_the_truth(
    member: str, heads: int, kv_heads: int, head_dim: int
) -> None:
    contents = Contents([33, 18], heads, kv_heads, head_dim)
    params = AttentionParams(scale=head_dim**-0.5)
    found = attend(member, contents, 16, mixed(contents.lengths), params)
    assert_close(found, truth(contents, params))


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize(
    "params",
    [
        AttentionParams(0.25, sliding_window=1),
        AttentionParams(0.25, sliding_window=20),
        AttentionParams(0.25, sliding_window=16),
        AttentionParams(0.25, softcap=5.0),
        AttentionParams(0.25, sliding_window=20, softcap=5.0),
    ],
)
@pytest.mark.parametrize("page_size", [16, 24])
def test_windows_and_softcaps_give_the_truth(
    member: str, params: AttentionParams, page_size: int
) -> None:
    contents = Contents(LENGTHS)
    for schedule in (mixed(LENGTHS), alone(LENGTHS, 17)):
        found = attend(member, contents, page_size, schedule, params)
        assert_close(found, truth(contents, params))


@pytest.mark.parametrize("member", WITH_TRITON)
def test_a_window_does_not_read_what_it_has_left_behind(member: str) -> None:
    """Freed pages before the window may be anything, NaN too."""
    contents = Contents([50], 4, 2, 16)
    backend = make_backend(member, pool(16, contents), Place())
    tables = random_tables([50], backend.shape)
    params = AttentionParams(0.25, sliding_window=10)
    expected = run_schedule(backend, contents, tables, whole([50]), params)[0][49:]
    backend.fill_pages(tables[0][:2], float("nan"))
    batch = batch_of([Part(tables[0], 49, 50)], 16)
    found = backend.attend(0, contents.queries[0][49:], batch, params)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("member", WITH_TRITON)
def test_layers_do_not_see_one_another(member: str) -> None:
    contents = Contents([20], 2, 1, 16)
    backend = make_backend(member, pool(16, contents), Place())
    tables = random_tables([20], backend.shape)
    expected = run_schedule(backend, contents, tables, whole([20]), PLAIN)[0]
    batch = batch_of([Part(tables[0], 0, 20)], 16)
    backend.write(1, contents.values[0], contents.keys[0], batch)
    assert torch.equal(backend.attend(0, contents.queries[0], batch, PLAIN), expected)


@pytest.mark.parametrize("member", WITH_TRITON)
def test_a_strided_view_is_as_good_as_a_copy(member: str) -> None:
    contents = Contents([20], 4, 2, 16)
    backend = make_backend(member, pool(16, contents), Place())
    tables = random_tables([20], backend.shape)
    expected = run_schedule(backend, contents, tables, whole([20]), PLAIN)[0]
    fused = torch.cat([contents.queries[0], contents.keys[0], contents.values[0]], dim=1)
    query, key, value = fused[:, :4], fused[:, 4:6], fused[:, 6:]
    batch = batch_of([Part(tables[0], 0, 20)], 16)
    backend.write(0, key, value, batch)
    assert torch.equal(backend.attend(0, query, batch, PLAIN), expected)


def test_a_sequence_reads_a_page_that_another_fills_in_the_same_step() -> None:
    contents = Contents([40, 40], 4, 2, 16)
    for stream in (contents.queries, contents.keys, contents.values):
        stream[1][:32] = stream[0][:32]
    for member in WITH_TRITON:
        backend = make_backend(member, pool(16, contents), Place())
        own = random_tables([40, 40], backend.shape)
        tables = [own[0], own[0][:2] + own[1][2:]]
        found = run_schedule(backend, contents, tables, [[(1, 32, 40), (0, 0, 40)]], PLAIN)
        torch.testing.assert_close(
            found[1].double(), truth(contents, PLAIN)[1][32:], atol=5e-6, rtol=1e-5
        )


def test_an_unknown_member_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'magic' is none of auto, reference"):
        make_backend("magic", KVShape(1, 1, 16, 1, 16, torch.float32), Place())
