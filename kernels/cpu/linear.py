"""Packed-weight linear layer in C: streams the weights once for few rows, bitwise per row."""

from __future__ import annotations

import ctypes
import functools

import torch

from kernels.cpu.build import load_library
from kernels.cpu.crew import crew_of
from kernels.cpu.memory import large_buffer

LARGEST_HALF = 65504.0


@functools.cache
def linear_library(half: bool) -> ctypes.CDLL:
    """The compiled linear.c. half: weights are kept as float16. Raises BuildError."""
    library = load_library("linear.c", {"HALF": int(half)})
    pointer, int32, int64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
    library.pack_weight.argtypes = [pointer, int64, pointer, int32, int32]
    library.pack_weight.restype = None
    library.linear.argtypes = [pointer, int64, *[pointer] * 5]
    library.linear.restype = int32
    return library


class CpuLinear:
    """A weight [N, K] packed as [ceil(N / panel)][K][panel]; the original may be freed.

    half: it is kept as float16, half the bytes, each number within 2^-11 of itself; all sums are
    float32. Raises BuildError when the library can't be built, ValueError where a number is larger
    than float16 has.
    """

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        threads: int = 1,
        half: bool = False,
    ) -> None:
        library = linear_library(half)
        self._linear = library.linear
        self._outputs, self._inputs = weight.shape
        self._crew = crew_of(threads)
        panel = library.panel_width()
        panels = -(-self._outputs // panel)
        dtype = torch.float16 if half else torch.float32
        self._packed = large_buffer(panels, self._inputs, panel, dtype=dtype)
        for first in range(0, self._outputs, panel * 64):
            part = weight[first : first + panel * 64].float().contiguous()
            if half:
                _check_range(part)
            library.pack_weight(
                part.data_ptr(),
                part.stride(0),
                self._packed[first // panel].data_ptr(),
                part.shape[0],
                self._inputs,
            )
        self._bias = None if bias is None else bias.float().contiguous()
        self._packed_at = self._packed.data_ptr()
        self._bias_at = None if self._bias is None else self._bias.data_ptr()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Returns x w^T + bias, float32 [T, N], of float32 x [T, K]."""
        if x.stride(-1) != 1:
            x = x.contiguous()
        rows = x.shape[0]
        out = torch.empty(rows, self._outputs)
        sizes = (ctypes.c_int32 * 3)(rows, self._outputs, self._inputs)
        failed = self._linear(
            x.data_ptr(),
            x.stride(0),
            self._packed_at,
            self._bias_at,
            out.data_ptr(),
            ctypes.addressof(sizes),
            self._crew,
        )
        if failed:
            raise MemoryError(f"no scratch memory for {rows} rows of {self._inputs}")
        return out


def _check_range(weight: torch.Tensor) -> None:
    """Raises ValueError where float16 would make an infinity of a number."""
    most = float(weight.abs().max()) if weight.numel() else 0.0
    if most > LARGEST_HALF:
        raise ValueError(f"a weight is {most:.6g}, above float16's largest {LARGEST_HALF:.0f}")
