"""The packed linear layer against torch's F.linear, at SmolLM2-135M's shapes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional

from kernels.bench.clock import contest
from kernels.cpu.linear import CpuLinear

SHAPES = {
    "qkv": (960, 576),
    "out": (576, 576),
    "gate_up": (3072, 576),
    "down": (576, 1536),
    "head": (49152, 576),
}
ROWS = (1, 2, 4, 8, 16, 32, 512)
# Enough copies of a weight that it comes from memory, as in a model, and not from a cache.
COLD_BYTES = 100 << 20


def compare(threads: int) -> Iterator[str]:
    """Yields a line per layer and number of rows: ms per layer, GFLOP/s and GB/s of weights."""
    torch.set_num_threads(threads)
    for name, (outputs, inputs) in SHAPES.items():
        copies = max(1, COLD_BYTES // (4 * outputs * inputs))
        weights = [torch.randn(outputs, inputs) * 0.05 for _ in range(copies)]
        packed = [CpuLinear(weight, None, threads) for weight in weights]
        halves = [CpuLinear(weight, None, threads, half=True) for weight in weights]
        for rows in ROWS:
            if name == "head" and rows > 32:
                continue  # only sampled rows reach the head
            yield _compare_rows(name, weights, (packed, halves), rows)


def _compare_rows(
    name: str,
    weights: list[torch.Tensor],
    kept: tuple[list[CpuLinear], list[CpuLinear]],
    rows: int,
) -> str:
    """kept: the same weights packed as float32 and as float16."""
    packed, halves = kept
    outputs, inputs = weights[0].shape
    x = torch.randn(rows, inputs)
    used = min(len(packed), 4) if rows >= 512 else len(packed)

    def ours() -> None:
        for linear in packed[:used]:
            linear(x)

    def half() -> None:
        for linear in halves[:used]:
            linear(x)

    def theirs() -> None:
        for weight in weights[:used]:
            functional.linear(x, weight)

    times = contest([ours, half, theirs], rounds=3 if rows >= 512 else 5)
    seconds, half_s, theirs_s = (time / used for time in times)
    error = (packed[0](x).double() - x.double() @ weights[0].double().T).abs().max().item()
    return (
        f"linear {name:8s} M={rows:<4d} ours {seconds * 1e3:8.3f} ms  "
        f"float16 {half_s * 1e3:8.3f} ms  F.linear {theirs_s * 1e3:8.3f} ms  "
        f"x{theirs_s / seconds:5.2f} x{theirs_s / half_s:5.2f}  "
        f"{2e-9 * rows * outputs * inputs / seconds:6.1f} GFLOP/s  "
        f"{4e-9 * outputs * inputs / seconds:5.1f} GB/s  error {error:.1e}"
    )
