"""Whether a machine can run a worker: rules over a probed `Machine`, one sentence each. Pure.

Nothing here looks at the machine itself; `probe` does, so tests can plant any.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath

from pando.machine import Gpu, Machine
from pando.sizes import readable

MIN_PYTHON = (3, 11)
MIN_GLIBC = (2, 28)
# Interpreter, torch and the worker's own buffers, beside weights and K/V pages.
RUNTIME_BYTES = 600 * 1024**2
# transformers holds a GGUF's weights about twice while it converts them.
CONVERSION_FACTOR = 2.2
# NVIDIA's oldest driver for each CUDA major version.
MIN_DRIVER = {11: "450.80", 12: "525.60", 13: "580.65"}


class Level(Enum):
    """How bad a finding is: only a problem keeps a worker from running."""

    OK = 0
    WARNING = 1
    PROBLEM = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about the machine."""

    level: Level
    text: str


def findings(machine: Machine) -> list[Finding]:
    """Returns what each rule says of the machine, in the order in which a user should read it."""
    return [finding for rule in RULES for finding in rule(machine)]


def python_rule(machine: Machine) -> Iterator[Finding]:
    """Python is new enough."""
    version = ".".join(map(str, machine.python))
    if machine.python[:2] < MIN_PYTHON:
        yield problem(f"Python is {version}; Pando needs 3.11 or newer.")
    else:
        yield ok(f"Python is {version}.")


def libc_rule(machine: Machine) -> Iterator[Finding]:
    """The C library can load torch's and grpc's wheels."""
    name, version = machine.libc
    if name != "glibc":
        yield warning(
            f"The C library is {name or 'unknown'}, not glibc: torch and grpc may not load."
        )
    elif numbers(version) < MIN_GLIBC:
        yield problem(f"glibc is {version}; torch's wheels need 2.28 or newer.")
    else:
        yield ok(f"glibc is {version}.")


def torch_rule(machine: Machine) -> Iterator[Finding]:
    """torch is there and loads."""
    torch = machine.torch
    if torch is None:
        yield problem("torch is not installed: pip install 'pando[worker]'.")
    elif torch.error:
        yield problem(f"torch {torch.version} is installed but can't be loaded: {torch.error}")
    else:
        yield ok(f"torch is {torch.version}.")


def gpu_rule(machine: Machine) -> Iterator[Finding]:
    """torch's CUDA fits the driver; without a card there is nothing to fit."""
    gpu, torch = machine.gpu, machine.torch
    if gpu is None:
        yield ok("No NVIDIA GPU was found: workers compute on the CPU.")
        return
    card = f"{gpu.name} (driver {gpu.driver}, CUDA up to {gpu.cuda or 'unknown'})"
    if torch is None or torch.error:
        return
    if torch.cuda is None:
        yield warning(
            f"{card} is there, but this torch is built without CUDA: workers compute on the CPU."
        )
    elif not driver_runs(gpu, torch.cuda):
        least = MIN_DRIVER.get(numbers(torch.cuda)[0], "a newer one")
        yield problem(
            f"torch is built for CUDA {torch.cuda}, which driver {gpu.driver} of {gpu.name} can't "
            f"run (it needs {least} or newer): update the driver, or install a torch built for "
            f"CUDA {gpu.cuda or 'that it knows'}."
        )
    else:
        yield ok(f"{card} runs this torch's CUDA {torch.cuda}.")


def compiler_rule(machine: Machine) -> Iterator[Finding]:
    """A C compiler builds the CPU kernels at first use."""
    if machine.compiler is None:
        yield warning(
            "No C compiler was found (cc, gcc or clang): CPU workers fall back to torch's slower "
            "attention. Install gcc."
        )
    else:
        yield ok(f"The CPU kernels are built with {machine.compiler}.")


def model_rule(machine: Machine) -> Iterator[Finding]:
    """The model's files are all here."""
    files = machine.model_files
    if files.error:
        yield problem(files.error)
        return
    size = readable(files.weights_bytes)
    note = ", converted once from GGUF" if files.converts else ""
    yield ok(f"Model {machine.model} is here: {size} of weights in float32{note}.")


def memory_rule(machine: Machine) -> Iterator[Finding]:
    """Weights and K/V pages fit what the system and the container leave."""
    files = machine.model_files
    if files.error:
        return
    if files.kv_bytes_per_token and files.kv_bytes_per_token > machine.kv_bytes:
        yield problem(
            f"{readable(machine.kv_bytes)} of K/V memory can't hold one token; a token takes "
            f"{readable(files.kv_bytes_per_token)}."
        )
        return
    serving = files.weights_bytes + machine.kv_bytes + RUNTIME_BYTES
    converting = int(files.weights_bytes * CONVERSION_FACTOR) if files.converts else 0
    yield fits(machine, max(serving, converting + RUNTIME_BYTES))


def fits(machine: Machine, needed: int) -> Finding:
    """Says whether so much memory is left for one worker."""
    available = machine.available_bytes
    parts = (
        f"A worker takes about {readable(needed)} ({readable(machine.model_files.weights_bytes)} "
        f"weights, {readable(machine.kv_bytes)} K/V{tokens(machine)})"
    )
    if available is None:
        return warning(f"{parts}; how much is available couldn't be read.")
    if needed > available:
        return problem(f"{parts}, but {readable(available)} are available: lower --kv-memory.")
    if needed > 0.8 * available:
        return warning(f"{parts}; {readable(available)} are available, which is tight.")
    return ok(f"{parts}; {readable(available)} are available.")


def tokens(machine: Machine) -> str:
    """Returns how many tokens the K/V memory holds, as a clause."""
    each = machine.model_files.kv_bytes_per_token
    return f" for {machine.kv_bytes // each:,} tokens" if each else ""


def port_rule(machine: Machine) -> Iterator[Finding]:
    """The gateway's port is free."""
    if machine.port_error:
        yield problem(
            f"Port {machine.port} can't be listened on ({machine.port_error}): choose another one "
            "with --port."
        )
    else:
        yield ok(f"Port {machine.port} is free.")


def packages_rule(machine: Machine) -> Iterator[Finding]:
    """Our package names mean our packages."""
    shadowed = {
        name: file
        for name, file in machine.package_files.items()
        if file is None or not PurePath(file).is_relative_to(machine.root)
    }
    for name, file in shadowed.items():
        where = f"comes from {file}" if file else "can't be found"
        yield problem(f"Package {name} {where} instead of {machine.root}: another one shadows it.")
    for package in machine.foreign_packages:
        yield warning(
            f"Package {package} is installed and brings a module under one of our names: run from "
            f"{machine.root}, or uninstall it."
        )
    if not shadowed and not machine.foreign_packages:
        yield ok("No other package stands in the way of ours.")


RULES: tuple[Callable[[Machine], Iterator[Finding]], ...] = (
    python_rule,
    libc_rule,
    torch_rule,
    gpu_rule,
    compiler_rule,
    model_rule,
    memory_rule,
    port_rule,
    packages_rule,
)


def driver_runs(gpu: Gpu, cuda: str) -> bool:
    """Whether the driver runs programs built for `cuda`; within a major version any does."""
    if gpu.cuda is not None:
        return numbers(gpu.cuda)[:1] >= numbers(cuda)[:1]
    least = MIN_DRIVER.get(numbers(cuda)[0])
    return least is None or numbers(gpu.driver) >= numbers(least)


def numbers(version: str) -> tuple[int, ...]:
    """Returns the numbers of a version, or (0,) where there are none."""
    return tuple(int(part) for part in re.findall(r"\d+", version)) or (0,)


def ok(text: str) -> Finding:
    """All is well."""
    return Finding(Level.OK, text)


def warning(text: str) -> Finding:
    """A worker runs, but not as it could."""
    return Finding(Level.WARNING, text)


def problem(text: str) -> Finding:
    """A worker won't run."""
    return Finding(Level.PROBLEM, text)
