"""Helpers take tasks without losing, doubling or waiting for any."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from kernels.cpu.crew import crew_of
from kernels.cpu.elementwise import CpuOps
from tests.kernels.paging import same_bits

TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, TASK, ctypes.c_void_p)


def run(crew: int, count: int) -> list[int]:
    """Shares `count` tasks through the crew's own entry and returns the indices that ran."""
    seen: list[int] = []
    entry = ctypes.cast(ctypes.c_void_p.from_address(crew).value or 0, RUN)
    entry(crew, count, TASK(lambda _, index: seen.append(index)), None)
    return seen


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_every_task_runs_exactly_once(threads: int) -> None:
    crew = crew_of(threads)
    assert crew is not None
    for count in (1, 2, 3, 7, 50, 400):
        assert sorted(run(crew, count)) == list(range(count))


def test_thousands_of_short_calls_keep_their_results_apart() -> None:
    """A helper that wakes late must not claim a task of a call that is over."""
    alone, shared = CpuOps(1), CpuOps(4)
    weight = torch.randn(96, 8, generator=torch.Generator().manual_seed(0))
    inputs = torch.randn(40, 8, generator=torch.Generator().manual_seed(1))
    expected = alone.pack(weight, None)(inputs)
    linear = shared.pack(weight, None)
    for call in range(4000):
        rows = 1 + call % 40
        assert same_bits(linear(inputs[:rows]), expected[:rows])


def test_callers_on_several_threads_do_not_disturb_one_another() -> None:
    ops = CpuOps(2)
    weights = torch.randn(4, 96, 64, generator=torch.Generator().manual_seed(2))
    inputs = torch.randn(30, 64, generator=torch.Generator().manual_seed(3))
    linears = [ops.pack(weight, None) for weight in weights]
    expected = [linear(inputs) for linear in linears]

    def repeat(caller: int) -> bool:
        return all(same_bits(linears[caller](inputs), expected[caller]) for _ in range(300))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(repeat, range(4)))


def test_one_thread_needs_no_crew_and_none_is_refused() -> None:
    assert crew_of(1) is None
    with pytest.raises(ValueError, match="threads is 0, must be at least 1"):
        crew_of(0)
