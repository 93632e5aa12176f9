"""What `check` looks at: one machine as a plain value, probed or planted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Torch:
    """The installed torch. cuda: the CUDA version it's built for. error: why it can't be loaded."""

    version: str = ""
    cuda: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """The graphics card's driver and the newest CUDA version that it runs."""

    name: str
    driver: str
    cuda: str | None = None


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The model's files. error: why they can't be used. converts: a GGUF, converted at first."""

    weights_bytes: int = 0
    kv_bytes_per_token: int | None = None
    converts: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """All that the rules look at.

    available_bytes: what may still be taken, by system and cgroup. package_files: where our
    top-level packages would be imported from; root: the folder in which they should lie.
    foreign_packages: installed distributions that bring packages under our names.
    """

    python: tuple[int, int, int]
    libc: tuple[str, str]
    torch: Torch | None
    gpu: Gpu | None
    compiler: str | None
    available_bytes: int | None
    model: str
    model_files: ModelFiles
    kv_bytes: int
    port: int
    port_error: str | None
    root: str
    package_files: Mapping[str, str | None] = field(default_factory=dict)
    foreign_packages: tuple[str, ...] = ()
