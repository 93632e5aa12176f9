"""One command as a child process: what it printed, how it ended, and what it took."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest.benchmarks.machine import Reading, reading
from loadtest.benchmarks.said import ENVIRONMENT
from pando.children import Child, Children

# What a command may take to end what it started, once it is asked to.
FAREWELL_S = 30.0
# Of an output, as much is read.
MAX_OUTPUT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Ended:
    """status: None where the limit ended it. others_s: CPU that went to all other processes."""

    status: int | None
    output: str
    seconds: float
    cpu_s: float
    others_s: float


@dataclass(frozen=True, slots=True)
class Place:
    """logs: a file for each command's output. cwd: where commands run."""

    logs: Path
    cwd: Path
    farewell_s: float = FAREWELL_S


def run(name: str, command: Sequence[str], limit_s: float, place: Place) -> Ended:
    """Returns once the command and all that it started have ended; its output is in NAME.log.

    Whatever ends the wait, an interrupt too, ends the command: it is interrupted as by Ctrl-C, so
    that it can end its own processes, and killed if it does not.
    """
    before = reading()
    with Children(place.logs, place.cwd, place.farewell_s) as children:
        child = children.start(name, command, ENVIRONMENT)
        status = _waited(child, limit_s, place.farewell_s)
    return _ended(status, child.log, before, reading())


def _waited(child: Child, limit_s: float, farewell_s: float) -> int | None:
    try:
        return child.process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if child.process.poll() is None:
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(child.process.pid, signal.SIGINT)
                child.process.wait(farewell_s)


def _ended(status: int | None, log: Path, before: Reading, after: Reading) -> Ended:
    cpu_s = after.children_s - before.children_s
    others_s = max(0.0, after.busy_s - before.busy_s - cpu_s)
    return Ended(status, _tail(log), after.at_s - before.at_s, cpu_s, others_s)


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_OUTPUT_BYTES))
        return file.read().decode("utf-8", "replace")
