"""What the machine can do, measured: the limits that other figures are held against."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import torch

from loadtest.gpu_check.findings import Figure, Row
from loadtest.gpu_check.scale import Scale

WARM_RUNS = 3


def measure(scale: Scale) -> list[Row]:
    """Returns one row: versions, the device, bytes a second of a copy, products a second."""
    figures: dict[str, Figure] = {
        "device": _device_name(scale),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "none",
    }
    figures |= {name: _version(name) for name in ("triton", "transformers", "vllm")}
    figures |= {"copy_gb_s": copy_gb_s(scale), "gemm_tflop_s": gemm_tflop_s(scale)}
    return [Row("machine", figures)]


def copy_gb_s(scale: Scale) -> float:
    """Bytes read and written a second by a copy, in 1e9."""
    source = torch.zeros(scale.copy_bytes, dtype=torch.uint8, device=scale.device)
    target = torch.empty_like(source)
    seconds = seconds_of(lambda: target.copy_(source), scale)
    return 2 * scale.copy_bytes / seconds / 1e9


def gemm_tflop_s(scale: Scale) -> float:
    """Operations a second of a square product in the check's dtype, in 1e12."""
    left, right = torch.randn(
        2, scale.gemm, scale.gemm, device=scale.device, dtype=torch.float32
    ).to(scale.dtype)
    seconds = seconds_of(lambda: left @ right, scale)
    return 2 * float(scale.gemm) ** 3 / seconds / 1e12


def seconds_of(call: Callable[[], object], scale: Scale) -> float:
    """Returns what one call takes: the mean over at least min_seconds, once it is warm."""
    for _ in range(WARM_RUNS if scale.min_seconds else 1):
        call()
    count = 1
    while True:
        wait(scale.device)
        began = time.perf_counter()
        for _ in range(count):
            call()
        wait(scale.device)
        seconds = time.perf_counter() - began
        if seconds >= scale.min_seconds:
            return seconds / count
        count = max(2 * count, int(count * 1.2 * scale.min_seconds / max(seconds, 1e-9)))


def wait(device: str) -> None:
    """Returns once the device has done all that it was asked."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def _device_name(scale: Scale) -> str:
    if scale.device == "cpu":
        return platform.machine()
    major, minor = torch.cuda.get_device_capability()
    return f"{torch.cuda.get_device_name()} (sm_{major}{minor})"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
