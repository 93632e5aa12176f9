"""Copying and filling whole pages, on every backend and awkward page sizes."""

from __future__ import annotations

import pytest
import torch

from kernels import Place, make_backend
from kernels.interface import AttentionBackend, AttentionParams, KVShape
from tests.kernels.members import WITH_TRITON
from tests.kernels.paging import Part, batch_of

PARAMS = AttentionParams(scale=0.3)
MEMBERS = pytest.mark.parametrize("member", WITH_TRITON)
SIZES = pytest.mark.parametrize("page_size", [1, 4, 16, 24, 64])


def make(member: str, page_size: int) -> AttentionBackend:
    backend = make_backend(member, KVShape(2, 6, page_size, 2, 16, torch.float32), Place())
    generator = torch.Generator().manual_seed(3)
    for page in range(6):
        batch = batch_of([Part([page], 0, page_size)], page_size)
        for layer in range(2):
            key, value = torch.randn(2, page_size, 2, 16, generator=generator)
            backend.write(layer, key, value, batch)
    return backend


def seen(backend: AttentionBackend, page: int) -> torch.Tensor:
    """What a fixed query sees on one page, over both layers."""
    size = backend.shape.page_size
    batch = batch_of([Part([page], size - 1, size)], size)
    query = torch.linspace(-1, 1, 2 * 16).reshape(1, 2, 16)
    return torch.stack([backend.attend(layer, query, batch, PARAMS) for layer in range(2)])


@MEMBERS
@SIZES
def test_a_copied_page_reads_like_its_source_and_the_rest_stays(
    member: str, page_size: int
) -> None:
    backend = make(member, page_size)
    before = [seen(backend, page) for page in range(6)]
    backend.copy_pages([1, 4], [2, 5])
    after = [seen(backend, page) for page in range(6)]
    for page, source in enumerate([0, 1, 1, 3, 4, 4]):
        assert torch.equal(after[page], before[source])


@MEMBERS
def test_all_sources_are_read_before_any_target_is_written(member: str) -> None:
    backend = make(member, 16)
    before = [seen(backend, page) for page in range(6)]
    backend.copy_pages([0, 1], [1, 2])
    assert torch.equal(seen(backend, 1), before[0])
    assert torch.equal(seen(backend, 2), before[1])


@pytest.mark.filterwarnings("ignore:All-NaN slice")  # numpy's, in Triton's interpreter
@MEMBERS
@SIZES
def test_a_filled_page_holds_the_value_and_the_rest_stays(member: str, page_size: int) -> None:
    backend = make(member, page_size)
    before = [seen(backend, page) for page in range(6)]
    backend.fill_pages([3], float("nan"))
    assert seen(backend, 3).isnan().all()
    for page in (0, 1, 2, 4, 5):
        assert torch.equal(seen(backend, page), before[page])


@MEMBERS
def test_copying_nothing_is_allowed(member: str) -> None:
    backend = make(member, 16)
    before = seen(backend, 0)
    backend.copy_pages([], [])
    assert torch.equal(seen(backend, 0), before)
