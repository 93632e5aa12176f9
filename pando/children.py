"""Child processes that never outlive the command that started them.

Each is the leader of its own process group, so that a terminal's Ctrl-C reaches only the command,
which ends them in order. When the command itself is killed, the kernel kills them (Linux: parent
death signal); the processes need not cooperate.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

POLL_S = 0.05
TAIL_BYTES = 8192
# gRPC's C library would write lines of its own into a log of ours.
_QUIET = {"GRPC_VERBOSITY": "ERROR"}


@dataclass(slots=True)
class Child:
    """A started process. Both of its outputs go to the log file."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]
    _read_to: int = 0

    def fresh_lines(self) -> list[str]:
        """Returns the whole lines that were logged since the last call."""
        with self.log.open("rb") as file:
            file.seek(self._read_to)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._read_to += end
        return data[:end].decode("utf-8", "replace").splitlines()

    def last_lines(self, count: int = 20) -> str:
        """Returns the end of the log."""
        with self.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
        return "\n".join(lines[-count:])


class Children:
    """A context in which processes run; leaving it ends them all.

    folder: where logs go. grace_s: how long they have between SIGTERM and SIGKILL.
    """

    def __init__(self, folder: Path, cwd: Path, grace_s: float = 10.0) -> None:
        self._folder = folder
        self._cwd = cwd
        self._grace_s = grace_s
        self._running: list[Child] = []
        self._names: set[str] = set()

    def __enter__(self) -> Children:
        self._folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Child:
        """Returns the started process. The log of one that bore the name before is kept."""
        log = self._folder / f"{name}.log"
        mode = "ab" if name in self._names else "wb"
        self._names.add(name)
        with log.open(mode) as output:
            written = output.tell()
            process = subprocess.Popen(
                dying_with_us(command),
                cwd=self._cwd,
                env={**_QUIET, **os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        child = Child(name, log, process, written)
        self._running.append(child)
        return child

    @property
    def running(self) -> tuple[Child, ...]:
        """What was started and not forgotten."""
        return tuple(self._running)

    def dead(self) -> Child | None:
        """Returns a child that has ended by itself, or None."""
        return next((one for one in self._running if one.process.poll() is not None), None)

    def forget(self, child: Child) -> None:
        """Takes a child that has ended out of the watch."""
        _signal_group(child, signal.SIGKILL)
        self._running.remove(child)

    def end(self, child: Child, grace_s: float) -> None:
        """Ends one before the others, with a grace of its own."""
        self._running.remove(child)
        _end([child], grace_s)

    def stop(self) -> None:
        """Ends all: SIGTERM, and SIGKILL for those and their offspring that outstay the grace."""
        _end(self._running, self._grace_s)
        self._running.clear()


def _end(children: Sequence[Child], grace_s: float) -> None:
    for child in children:
        _signal_group(child, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline:
        if all(child.process.poll() is not None for child in children):
            break
        time.sleep(POLL_S)
    for child in children:
        _signal_group(child, signal.SIGKILL)
        child.process.wait()


def _signal_group(child: Child, number: signal.Signals) -> None:
    """Reaches the child and what it started, also when the child itself is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.process.pid, number)


def dying_with_us(command: Sequence[str]) -> list[str]:
    """Returns a command whose process is killed as soon as the thread that started it is gone.

    Where util-linux is (Linux). Nothing of ours runs between fork and exec: in a process with
    threads, as gRPC's, that can crash.
    """
    program = shutil.which("setpriv")
    return [*((program, "--pdeathsig", "KILL", "--") if program else ()), *command]
