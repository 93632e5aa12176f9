"""What the machine can do at best, measured beside the kernels: reading memory, multiplying."""

from __future__ import annotations

import ctypes

import torch

from kernels.bench.clock import best
from kernels.cpu.build import load_library
from kernels.cpu.crew import crew_of
from kernels.cpu.memory import large_buffer

READ_BYTES = 256 << 20
PARTS = 256
GEMM = 1024


class Reading:
    """Reads a buffer that no cache holds, with so many threads, each time it is called."""

    def __init__(self, threads: int) -> None:
        self._library = load_library("limits.c")
        self._library.read_memory.argtypes = [
            *(ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64),
            *(ctypes.c_void_p, ctypes.c_void_p),
        ]
        self._library.read_memory.restype = None
        self._buffer = large_buffer(READ_BYTES // 4).fill_(1.0)
        self._sums = torch.empty(PARTS)
        self._crew = crew_of(threads)
        self()
        assert self._sums.sum() == self._buffer.numel()

    def __call__(self) -> None:
        """Reads all of it once: READ_BYTES."""
        part = self._buffer.numel() // PARTS
        self._library.read_memory(
            self._buffer.data_ptr(), PARTS, part, self._sums.data_ptr(), self._crew
        )


def multiply_rate() -> float:
    """Returns the operations a second of torch's float32 matrix product, by torch's threads."""
    left, right = torch.randn(2, GEMM, GEMM)
    return 2 * GEMM**3 / best(lambda: left @ right, rounds=7)
