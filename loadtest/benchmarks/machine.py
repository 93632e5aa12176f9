"""Where and when figures were made, without a name of the machine."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from loadtest.processes import PROC, TICKS_PER_S

# What a run writes itself is no change of the code.
_WRITTEN = (":!docs/benchmarks.md", ":!docs/benchmarks.json", ":!docs/pictures")


@dataclass(frozen=True, slots=True)
class Origin:
    """date: as 2026-11-30. commit: what was checked out, `+` behind it where it was changed."""

    date: str
    commit: str
    machine: str


@dataclass(frozen=True, slots=True)
class Reading:
    """Seconds: of the clock, of CPU that ended children took, of CPU that all processes took."""

    at_s: float
    children_s: float
    busy_s: float


def reading() -> Reading:
    """Returns what the clocks say now; the difference of two tells what lay between."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Reading(time.monotonic(), used.ru_utime + used.ru_stime, busy_seconds(PROC / "stat"))


def busy_seconds(stat: Path) -> float:
    """Returns what all cores have worked since the start, also for others on the same host."""
    user, nice, system, _idle, _iowait, *rest = map(
        int, stat.read_text().split("\n")[0].split()[1:]
    )
    return (user + nice + system + sum(rest[:3])) / TICKS_PER_S


def described() -> str:
    """Returns cores, processor, memory and versions, in a few words."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    words = (f"{cores} cores of {processor(PROC / 'cpuinfo')}", f"{memory:.0f} GiB")
    return ", ".join((*words, f"Python {platform.python_version()}", f"torch {_version('torch')}"))


def processor(cpuinfo: Path) -> str:
    """Returns the processor's name, or what kind it is."""
    for line in cpuinfo.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return " ".join(value.split())
    return platform.machine()


def commit(root: Path) -> str:
    """Returns the short id of what is checked out; empty where git does not know."""
    found = _git(root, "rev-parse", "--short", "HEAD")
    changed = found and _git(root, "status", "--porcelain", "--", ".", *_WRITTEN)
    return f"{found}+" if changed else found


def _git(root: Path, *arguments: str) -> str:
    try:
        told = subprocess.run(
            ("git", *arguments), cwd=root, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return told.stdout.strip() if told.returncode == 0 else ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
