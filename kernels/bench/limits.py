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


def read_rate(threads: int) -> float:
    """Returns the bytes a second that so many threads read of a buffer no cache holds."""
    library = load_library("limits.c")
    library.read_memory.argtypes = [ctypes.c_void_p, *[ctypes.c_int64] * 2, *[ctypes.c_void_p] * 2]
    library.read_memory.restype = None
    buffer, sums = large_buffer(READ_BYTES // 4).fill_(1.0), torch.empty(PARTS)
    crew, part = crew_of(threads), buffer.numel() // PARTS

    def read() -> None:
        library.read_memory(buffer.data_ptr(), PARTS, part, sums.data_ptr(), crew)

    seconds = best(read, rounds=7)
    assert sums.sum() == buffer.numel()
    return buffer.nbytes / seconds


def multiply_rate() -> float:
    """Returns the operations a second of torch's float32 matrix product, by torch's threads."""
    left, right = torch.randn(2, GEMM, GEMM)
    return 2 * GEMM**3 / best(lambda: left @ right, rounds=7)
