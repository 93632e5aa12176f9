"""The cpu member keeps its promise: a row's bits depend on its own sequence only."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels import Place, make_backend
from kernels.cpu.attention import CpuAttention
from kernels.cpu.elementwise import CpuOps
from kernels.interface import AttentionParams, KVShape
from tests.kernels.attending import Contents, Step, alone, mixed, run_schedule, whole
from tests.kernels.paging import Part, batch_of, random_tables, same_bits

LENGTHS = [37, 150, 16, 5, 64]
CONTENTS = Contents(LENGTHS, num_heads=6, num_kv_heads=2, head_dim=32)
PARAMS = [
    AttentionParams(0.2),
    AttentionParams(0.2, sliding_window=21),
    AttentionParams(0.2, softcap=5.0),
]


def attend(
    schedule: list[Step], params: AttentionParams, page_size: int = 16, **options: int
) -> list[torch.Tensor]:
    pages = sum(-(-n // page_size) for n in LENGTHS) + 5
    shape = KVShape(1, pages, page_size, 2, 32, torch.float32)
    backend = make_backend("cpu", shape, Place(threads=options.get("threads", 1)))
    assert isinstance(backend, CpuAttention)
    tables = random_tables(LENGTHS, shape, seed=options.get("seed", 0))
    return run_schedule(backend, CONTENTS, tables, schedule, params)


def assert_same(left: list[torch.Tensor], right: list[torch.Tensor]) -> None:
    for sequence, (a, b) in enumerate(zip(left, right, strict=True)):
        assert same_bits(a, b), f"sequence {sequence} differs"


@pytest.mark.parametrize("params", PARAMS)
@pytest.mark.parametrize("chunk", [1, 7, 16, 512])
def test_chunks_of_any_size_give_the_same_bits(params: AttentionParams, chunk: int) -> None:
    expected = attend(whole(LENGTHS), params)
    assert_same(attend(alone(LENGTHS, chunk), params), expected)


@pytest.mark.parametrize("params", PARAMS)
def test_batch_mates_do_not_change_bits(params: AttentionParams) -> None:
    assert_same(attend(mixed(LENGTHS), params), attend(whole(LENGTHS), params))


@pytest.mark.parametrize("params", PARAMS)
@pytest.mark.parametrize("page_size", [1, 3, 8, 24, 32, 48, 256])
def test_page_size_does_not_change_bits(params: AttentionParams, page_size: int) -> None:
    expected = attend(whole(LENGTHS), params)
    assert_same(attend(mixed(LENGTHS), params, page_size), expected)


def test_page_ids_do_not_change_bits() -> None:
    expected = attend(whole(LENGTHS), PARAMS[0])
    assert_same(attend(whole(LENGTHS), PARAMS[0], seed=9), expected)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_do_not_change_bits(threads: int) -> None:
    expected = attend(mixed(LENGTHS), PARAMS[0])
    assert_same(attend(mixed(LENGTHS), PARAMS[0], threads=threads), expected)


@pytest.mark.parametrize("window", [None, 5000])
def test_a_long_context_split_among_threads_gives_the_bits_of_one(window: int | None) -> None:
    length = 9000
    shape = KVShape(1, 600, 16, 1, 16, torch.float32)
    generator = torch.Generator().manual_seed(2)
    key, value = torch.randn(2, length, 1, 16, generator=generator)
    query = torch.randn(length, 3, 16, generator=generator)
    [table] = random_tables([length], shape)
    params = AttentionParams(0.25, sliding_window=window)
    found = []
    for threads in (1, 3):
        backend = make_backend("cpu", shape, Place(threads=threads))
        backend.fill_pages(list(range(600)), float("nan"))
        backend.write(0, key, value, batch_of([Part(table, 0, length)], 16))
        for begin in (length - 1, length - 20):
            batch = batch_of([Part(table, begin, length)], 16)
            found.append(backend.attend(0, query[begin:], batch, params)[-1])
    assert all(same_bits(found[0], other) for other in found[1:])
    first = 0 if window is None else length - window
    truth = torch.einsum("hd,td->ht", query[-1].double(), key[first:, 0].double()) * 0.25
    expected = truth.softmax(-1) @ value[first:, 0].double()
    torch.testing.assert_close(found[0].double(), expected, atol=1e-5, rtol=1e-5)


def test_sharing_a_prefix_page_gives_the_bits_of_having_an_own_copy() -> None:
    count, shared, length = 7, 48, 55
    contents = Contents([length] * count, 6, 2, 32)
    for stream in (contents.keys, contents.values):
        for own in stream[1:]:
            own[:shared] = stream[0][:shared]
    shape = KVShape(1, 40, 16, 2, 32, torch.float32)
    backend = make_backend("cpu", shape, Place())
    tables = random_tables([length] * count, shape)
    decode: Step = [(s, length - 1, length) for s in range(count)]
    expected = run_schedule(backend, contents, tables, whole(contents.lengths), PARAMS[0])
    joint = [tables[0]] + [tables[0][:3] + own[3:] for own in tables[1:]]
    fill: list[Step] = [[(0, 0, length - 1)], [(s, shared, length - 1) for s in range(1, count)]]
    found = run_schedule(backend, contents, joint, [*fill, decode], PARAMS[0])
    assert_same([x[-1:] for x in found], [x[-1:] for x in expected])


@pytest.mark.parametrize(("outputs", "inputs"), [(96, 64), (70, 33), (5, 100), (1, 1)])
@pytest.mark.parametrize("biased", [False, True])
def test_a_linear_row_has_the_same_bits_in_any_batch_and_on_any_threads(
    outputs: int, inputs: int, biased: bool
) -> None:
    generator = torch.Generator().manual_seed(outputs)
    weight = torch.randn(outputs, inputs, generator=generator)
    bias = torch.randn(outputs, generator=generator) if biased else None
    x = torch.randn(41, inputs, generator=generator)
    linear, threaded = CpuOps(1).pack(weight, bias), CpuOps(2).pack(weight, bias)
    expected = torch.cat([linear(row[None]) for row in x])
    for rows in range(1, 42):
        assert same_bits(linear(x[:rows]), expected[:rows])
        assert same_bits(threaded(x[41 - rows :]), expected[41 - rows :])


def _norm(ops: CpuOps, x: torch.Tensor) -> torch.Tensor:
    return ops.rms_norm(x, torch.linspace(0.5, 1.5, x.shape[1]), 1e-5)


def _add_norm(ops: CpuOps, x: torch.Tensor) -> torch.Tensor:
    total = x.clone()
    normed = ops.add_rms_norm(total, x * 0.3, torch.linspace(0.5, 1.5, x.shape[1]), 1e-5)
    return torch.cat([total, normed], dim=1)


def _rope(ops: CpuOps, x: torch.Tensor) -> torch.Tensor:
    angle = torch.linspace(0, 3, 10 * (x.shape[1] // 4)).reshape(10, -1)
    heads = x.clone().view(len(x), 2, -1)
    # The position follows from the row's content, so that it stays with the row.
    positions = (x[:, 0].abs() * 100).long() % 10
    ops.rope(heads, positions, angle.cos(), angle.sin())
    return heads.flatten(1)


def _silu(ops: CpuOps, x: torch.Tensor) -> torch.Tensor:
    return ops.silu_mul(x)


@pytest.mark.parametrize("operation", [_norm, _add_norm, _rope, _silu])
@pytest.mark.parametrize("width", [4, 44, 2048])
def test_a_row_has_the_same_bits_in_any_batch_and_on_any_threads(
    operation: Any, width: int
) -> None:
    x = torch.randn(70, width, generator=torch.Generator().manual_seed(width))
    expected = torch.cat([operation(CpuOps(1), row[None]) for row in x])
    assert same_bits(operation(CpuOps(1), x), expected)
    assert same_bits(operation(CpuOps(2), x), expected)
    assert same_bits(operation(CpuOps(1), x[3:20]), expected[3:20])


def test_a_batch_value_is_not_mistaken_for_an_earlier_one() -> None:
    """The backend keeps a plan per batch; a new batch of the same form has its own."""
    backend = make_backend("cpu", KVShape(1, 4, 16, 1, 16, torch.float32), Place())
    key = torch.randn(2, 16, 1, 16, generator=torch.Generator().manual_seed(0))
    for page in (0, 1):
        backend.write(0, key[page], key[page], batch_of([Part([page], 0, 16)], 16))
    query = torch.ones(1, 1, 16)
    results = [
        backend.attend(0, query, batch_of([Part([page], 15, 16)], 16), PARAMS[0]) for page in (0, 1)
    ]
    assert not torch.equal(*results)
