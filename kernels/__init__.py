"""Attention and K/V operations on pages, and the row-wise operations beside them.

A backend owns the page pool of one model. A forward gives it each layer's new keys and values
(`write`), then asks for attention over the pages (`attend`); the runner has it copy pages between
steps. A *slot* is page * page_size + offset. A batch is ragged and flattened: any mix of prefill
chunks and decodes, each sequence with its own block table. The contract is `kernels.interface`,
the truth is `kernels.reference`, and every member must agree with it.

Members, chosen here by name and nowhere else:

    reference   obvious, any float dtype, slow
    gather      plain torch, any device
    cpu         C, float32; a row's result is bitwise independent of batch, chunks and pages
    triton      GPU kernels: decode rows that share pages read them once
    flash       vLLM's FlashAttention on CUDA, where a package of it is; never by itself

`make_backend` and `make_ops` fall back from `cpu` to torch, with one log line, where no compiler
is. `triton` is imported when it is asked for, since Triton is not everywhere. A member says in
`bitwise` what it keeps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import torch

from kernels.cpu.attention import MAX_SPARSE_HEADS, CpuAttention
from kernels.cpu.build import BuildError
from kernels.cpu.elementwise import CpuOps
from kernels.flash import make_flash
from kernels.gather import GatherAttention
from kernels.interface import AttentionBackend, KVShape
from kernels.ops import Ops
from kernels.reference import ReferenceAttention
from kernels.torch_ops import TorchOps
from kernels.triton.pool import DTYPES, MAX_HEAD_DIM

logger = logging.getLogger(__name__)

AMPERE = (8, 0)  # the oldest compute capability that `triton` is compiled for as a check


@dataclass(frozen=True, slots=True)
class Place:
    """Where and with how many threads a member computes."""

    device: str = "cpu"
    threads: int = 1


def _triton(shape: KVShape, place: Place) -> AttentionBackend:
    if find_spec("triton") is None:
        raise ValueError(
            "attention 'triton' needs Triton, which is not installed here: pip install "
            "'pando[cuda]' (on Linux)"
        )
    from kernels.triton.attention import TritonAttention

    return TritonAttention(shape, place.device)


BACKENDS: dict[str, Callable[[KVShape, Place], AttentionBackend]] = {
    "reference": lambda shape, place: ReferenceAttention(shape, place.device),
    "gather": lambda shape, place: GatherAttention(shape, place.device),
    "cpu": lambda shape, place: CpuAttention(shape, place.threads),
    "flash": lambda shape, place: make_flash(shape, place.device),
    "triton": _triton,
}


# Members whose pools take fewer bytes with `eight_bit`; others only compute as if.
KEEPS_EIGHT_BIT = ("cpu", "triton")
# Members that read a part of a context for so many query heads of a K/V head only; others: for any.
SPARSE_HEADS = {"cpu": MAX_SPARSE_HEADS}


def make_backend(name: str, shape: KVShape, place: Place) -> AttentionBackend:
    """Returns the named backend with an empty pool; `auto` picks by device and dtype.

    Raises ValueError for an unknown name, and for a shape or place that a named one can't serve.
    """
    if name == "auto":
        name = _automatic(place, shape.dtype)
        if name == "gather" and _has_triton(shape, place):
            name = "triton"
    if name not in BACKENDS:
        raise ValueError(f"attention backend {name!r} is none of auto, {', '.join(BACKENDS)}")
    try:
        return BACKENDS[name](shape, place)
    except BuildError as error:
        logger.warning("attention falls back to torch: %s", error)
        return GatherAttention(shape, place.device)


def make_ops(place: Place, dtype: torch.dtype, half: bool = False) -> Ops:
    """Returns the row-wise operations for a device and dtype.

    half: float32 is computed with weights that are kept as float16. Raises ValueError where that
    can't be had.
    """
    if _automatic(place, dtype) == "cpu":
        try:
            return CpuOps(place.threads, half)
        except BuildError as error:
            logger.warning("row-wise operations fall back to torch: %s", error)
    if half:
        raise ValueError("float16 weights under float32 sums take a CPU, float32 and a C compiler")
    return TorchOps(place.device, dtype)


def _automatic(place: Place, dtype: torch.dtype) -> str:
    return "cpu" if place.device == "cpu" and dtype == torch.float32 else "gather"


def _has_triton(shape: KVShape, place: Place) -> bool:
    """Whether the `triton` member can serve such a pool there."""
    if not place.device.startswith("cuda") or find_spec("triton") is None:
        return False
    fits = shape.dtype in DTYPES and shape.head_dim <= MAX_HEAD_DIM
    return fits and torch.cuda.get_device_capability(place.device) >= AMPERE
