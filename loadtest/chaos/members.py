"""Processes of the fleet. Their log goes through a pipe, which can be left unread."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pando.children import dying_with_us
from pando.up import ROOT

# The smallest pipe that Linux has: full after some lines.
_PIPE_BYTES = 4096
_FILLINGS, _FILLING_S = 3, 0.02


@dataclass(slots=True)
class Member:
    """A name, and the process that bears it now. Started and ended by the same thread."""

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    _taken: threading.Event = field(default_factory=threading.Event)
    _pump: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """Of the process that runs. It must run."""
        assert self.process is not None
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """A new process runs; its log is read."""
        self.end(signal.SIGKILL)
        self._taken.set()
        self.starts += 1
        self.process = subprocess.Popen(
            dying_with_us(self.command),
            cwd=ROOT,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        assert self.process.stdout is not None
        fcntl.fcntl(self.process.stdout, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._pump = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._pump.start()

    def tell(self, number: signal.Signals) -> None:
        """The process gets it, if there is one."""
        if self.alive:
            os.kill(self.pid, number)

    def end(self, number: signal.Signals, grace_s: float = 60.0) -> None:
        """It has ended and is waited for; what outstays the grace is killed."""
        if self.process is None:
            return
        self._taken.set()
        self.tell(signal.SIGCONT)
        self.tell(number)
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self._pump is not None:
            self._pump.join()

    def hold_log(self) -> None:
        """Nobody reads its log from now on, and the pipe is full."""
        assert self.process is not None
        assert self.process.stdout is not None
        self._taken.clear()
        # The pipe has to be opened anew: what its writers were given must go on to block.
        end = os.open(f"/proc/self/fd/{self.process.stdout.fileno()}", os.O_WRONLY | os.O_NONBLOCK)
        for _ in range(_FILLINGS):  # the reader takes one more piece before it sees that it may not
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(end, b"(the log is full)\n")
            time.sleep(_FILLING_S)
        os.close(end)

    def take_log(self) -> None:
        """Its log is read again."""
        self._taken.set()

    def last_lines(self, count: int = 20) -> str:
        """Returns the end of the log; nothing where it never ran."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-count:])

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with self.log.open("ab") as log, process.stdout:
            while True:
                self._taken.wait()
                data = os.read(process.stdout.fileno(), _PIPE_BYTES)
                if not data:
                    return
                log.write(data)
                log.flush()
