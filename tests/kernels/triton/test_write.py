"""What is stored is what `kernels.eight_bit` and `kernels.dflash` say, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernels.dflash import sketch
from kernels.eight_bit import store
from kernels.interface import KVShape
from kernels.triton.copy import copy_pages
from kernels.triton.pool import Pool, fill, make_pool
from kernels.triton.write import write
from tests.kernels.triton.twins import DEVICE, shape_of

AWKWARD = [0.0, -0.0, 1e-45, 3e-39, 1.1754944e-38, 1.0, 127.0, 0.5, 2.5, 63.5, 3e38]


def written(shape: KVShape, key: torch.Tensor, value: torch.Tensor, slots: list[int]) -> Pool:
    pool = make_pool(shape, DEVICE)
    fill(pool, list(range(shape.num_pages)), float("nan"))
    put(pool, shape, key, value, slots)
    return pool


def put(
    pool: Pool, shape: KVShape, key: torch.Tensor, value: torch.Tensor, slots: list[int]
) -> None:
    write(
        pool.layer(0), shape, key.to(DEVICE), value.to(DEVICE), torch.tensor(slots, device=DEVICE)
    )


def at(kept: torch.Tensor, slots: list[int], page_size: int) -> torch.Tensor:
    """What layer 0 keeps in the slots, [slots, kv_heads, ...]."""
    where = torch.tensor(slots)
    return kept.cpu()[0, where // page_size, :, where % page_size]


def awkward(tokens: int, heads: int, head_dim: int) -> torch.Tensor:
    """Random vectors; some of them all ties, tiny, huge, zero, infinite or with a NaN."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(tokens, heads, head_dim, generator=generator)
    for row, special in enumerate(AWKWARD):
        x[row] = x[row].sign() * special
        x[row, :, 0] = special * 2 if special < 1e38 else special
    x[len(AWKWARD)] = 0.0
    x[len(AWKWARD) + 1, 0, 3] = float("nan")
    x[len(AWKWARD) + 2, 0, 3] = float("inf")
    x[len(AWKWARD) + 3] = torch.arange(head_dim) - 0.5
    x[len(AWKWARD) + 3, :, 0] = 127
    return x


# numpy, which computes in the interpreter, tells of NaN and infinity.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_eight_bits_are_those_of_the_definition(dtype: torch.dtype) -> None:
    shape = replace(shape_of(16, 40, 2, dtype), eight_bit=True)
    key = awkward(37, 2, 40).to(dtype)
    value = key.flip(0)
    slots = torch.randperm(shape.num_pages * 16, generator=torch.Generator().manual_seed(1))[:37]
    pool = written(shape, key, value, slots.tolist())
    for given, stored, scales in (
        (key, pool.keys, pool.key_scales),
        (value, pool.values, pool.value_scales),
    ):
        expected = store(given)
        assert torch.equal(at(stored, slots.tolist(), 16), expected.stored)
        found = at(scales, slots.tolist(), 16)
        torch.testing.assert_close(found, expected.scale, atol=0, rtol=0, equal_nan=True)


@pytest.mark.parametrize("page_size", [1, 24])
def test_any_strides_are_read_and_other_slots_stay(page_size: int) -> None:
    shape = shape_of(page_size, 16)
    fused = torch.randn(16, 5, 6).permute(1, 2, 0)  # [tokens, heads, D], no axis dense
    key, value = fused[:, :2], fused[:, 2:4]
    slots = [3, 50, 51, 7, 90]
    pool = written(shape, key, value, slots)
    assert torch.equal(at(pool.keys, slots, page_size), key)
    assert torch.equal(at(pool.values, slots, page_size), value)
    rest = [slot for slot in range(96 * page_size) if slot not in slots]
    assert at(pool.keys, rest, page_size).isnan().all()


def test_nothing_to_write_is_allowed() -> None:
    nothing = torch.zeros(0, 2, 16)
    assert written(shape_of(16, 16), nothing, nothing, []).keys.isnan().all()


# numpy, which computes in the interpreter, tells of NaN and infinity.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("eight_bit", [False, True])
@pytest.mark.parametrize("head_dim", [24, 17])
def test_sketches_are_those_of_the_keys_as_stored(eight_bit: bool, head_dim: int) -> None:
    shape = replace(shape_of(32, head_dim), sketched=True, eight_bit=eight_bit)
    key = awkward(37, 2, head_dim)
    slots = torch.randperm(shape.num_pages * 32, generator=torch.Generator().manual_seed(1))[:37]
    pool = written(shape, key, key, slots.tolist())
    expected = sketch(store(key).read() if eight_bit else key)
    assert torch.equal(codes_in(at(pool.codes, slots.tolist(), 32), head_dim), expected.code)
    found = at(pool.code_scales, slots.tolist(), 32)
    torch.testing.assert_close(found, expected.scale, atol=0, rtol=0, equal_nan=True)


def codes_in(packed: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Codes [..., head_dim] out of bytes that hold two each."""
    both = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)
    return both[..., :head_dim].float() - 8


def test_sketches_go_along_with_a_copied_page() -> None:
    shape = replace(shape_of(32, 16, 1), sketched=True)
    pool = written(shape, torch.randn(32, 1, 16), torch.randn(32, 1, 16), list(range(32)))
    copy_pages(pool, [0], [3])
    assert torch.equal(pool.codes[0, 3], pool.codes[0, 0])
    assert torch.equal(pool.code_scales[0, 3], pool.code_scales[0, 0])
