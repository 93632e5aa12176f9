"""CPU time of a process and all that it started, as Linux counts it."""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Returns user and system time of the process, its living descendants and its ended children.

    0.0 once it is gone.
    """
    return sum(_own(one) for one in (pid, *descendants(pid)))


def descendants(pid: int) -> list[int]:
    """Returns the ids of all processes below this one, in any order."""
    below: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            below.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        children = below.get(todo.pop(), [])
        found += children
        todo += children
    return found


def _own(pid: int) -> float:
    fields = _stat(pid)
    return sum(int(field) for field in fields[11:15]) / TICKS_PER_S if fields else 0.0


def _stat(pid: int) -> list[str]:
    """Returns the fields of /proc/PID/stat behind the command name; empty when it is gone."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()
