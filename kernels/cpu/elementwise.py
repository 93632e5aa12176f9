"""The `cpu` member of Ops: the row-wise operations in C, float32, bitwise per row."""

from __future__ import annotations

import ctypes

import torch

from kernels.cpu.build import load_library
from kernels.cpu.crew import crew_of
from kernels.cpu.linear import CpuLinear, linear_library

_POINTER = ctypes.c_void_p
_SIGNATURES = {
    "rms_norm": [*[_POINTER] * 5, ctypes.c_float, _POINTER],
    "add_rms_norm": [*[_POINTER] * 5, ctypes.c_float, _POINTER],
    "rope": [_POINTER] * 7,
    "silu_mul": [_POINTER] * 4,
}


class CpuOps:
    """Ops in C. float32 on the CPU; threads is the number each call may use.

    half: linear layers keep their weights as float16. Raises BuildError when the libraries can't
    be built.
    """

    name = "cpu"
    bitwise = True

    def __init__(self, threads: int = 1, half: bool = False) -> None:
        self._threads = threads
        self._half = half
        self._crew = crew_of(threads)
        linear_library(half)
        library = load_library("elementwise.c")
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes = arguments
            function.restype = None
        self._library = library

    def pack(self, weight: torch.Tensor, bias: torch.Tensor | None) -> CpuLinear:
        """Packs weight [N, K], any float dtype; keeps no reference to it."""
        return CpuLinear(weight, bias, self._threads, self._half)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        """Returns x / rms(x) * weight over the last axis of x [T, width]."""
        out = torch.empty(x.shape)
        self._norm(x[:, None], weight, out[:, None], epsilon)
        return out

    def add_rms_norm(
        self, x: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, epsilon: float
    ) -> torch.Tensor:
        """Adds delta to x in place, then returns the new x's rms_norm. Both [T, width], dense."""
        out = torch.empty(x.shape)
        sizes = (ctypes.c_int32 * 2)(*x.shape)
        self._library.add_rms_norm(
            x.data_ptr(),
            delta.data_ptr(),
            weight.data_ptr(),
            out.data_ptr(),
            ctypes.addressof(sizes),
            epsilon,
            self._crew,
        )
        return out

    def rms_norm_heads(self, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> None:
        """Replaces x [T, heads, width], a view, by its rms_norm over the last axis."""
        self._norm(x, weight, x, epsilon)

    def _norm(
        self, x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, epsilon: float
    ) -> None:
        strides = (ctypes.c_int64 * 4)(*x.stride()[:2], *out.stride()[:2])
        sizes = (ctypes.c_int32 * 3)(*x.shape)
        self._library.rms_norm(
            x.data_ptr(),
            weight.data_ptr(),
            out.data_ptr(),
            ctypes.addressof(strides),
            ctypes.addressof(sizes),
            epsilon,
            self._crew,
        )

    def rope(
        self,
        x: torch.Tensor,
        positions: torch.Tensor,
        cosine: torch.Tensor,
        sine: torch.Tensor,
    ) -> None:
        """Rotates x [T, heads, 2 half], a view, in place (rotate-half layout)."""
        strides = (ctypes.c_int64 * 2)(*x.stride()[:2])
        sizes = (ctypes.c_int32 * 3)(*x.shape)
        self._library.rope(
            x.data_ptr(),
            positions.data_ptr(),
            cosine.data_ptr(),
            sine.data_ptr(),
            ctypes.addressof(strides),
            ctypes.addressof(sizes),
            self._crew,
        )

    def silu_mul(self, x: torch.Tensor) -> torch.Tensor:
        """Returns silu(gate) * up, [T, width], of dense x [T, 2 width]."""
        rows, width = x.shape[0], x.shape[1] // 2
        out = torch.empty(rows, width)
        sizes = (ctypes.c_int32 * 2)(rows, width)
        self._library.silu_mul(x.data_ptr(), out.data_ptr(), ctypes.addressof(sizes), self._crew)
        return out
