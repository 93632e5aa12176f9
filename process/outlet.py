"""Where log lines leave the process: a bounded queue, and one thread that writes.

    any thread ── emit: never waits ──▶ lines, at most so many bytes ──▶ writer ──▶ descriptor
                    └── no room ──▶ dropped and counted; one line says how many once it goes on

A pipe that nobody reads, a full disk or a stopped terminal holds up the writer alone. It writes to
the descriptor itself: a lock of `sys.stderr`, held while a write hangs, would hold up others and
the process's end.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

MAX_BYTES = 4 * 1024 * 1024
FAREWELL_S = 2.0
# Lines are written together, up to so many bytes.
_BATCH_BYTES = 64 * 1024


class Outlet(logging.Handler):
    """A handler that keeps nobody waiting. Its thread runs until `close`.

    told: the record that says how many lines were dropped. descriptor: stays whoever's it is.
    farewell_s: what is queued at the end has so long to be written.
    """

    def __init__(
        self,
        descriptor: int,
        told: Callable[[int], logging.LogRecord],
        max_bytes: int = MAX_BYTES,
        farewell_s: float = FAREWELL_S,
    ):
        super().__init__()
        self._descriptor = descriptor
        self._told = told
        self._max_bytes = max_bytes
        self._farewell_s = farewell_s
        self._lines: deque[bytes] = deque()
        self._num_bytes = 0
        self._num_dropped = 0
        self._num_untold = 0
        self._ended = False
        self._changed = threading.Condition()
        self._writer = threading.Thread(target=self._write, name="log", daemon=True)
        self._writer.start()

    @property
    def num_dropped(self) -> int:
        """Lines that were never written, since the start."""
        return self._num_dropped

    def emit(self, record: logging.LogRecord) -> None:
        """As logging.Handler: the line is queued, or dropped where there is no room.

        So is one that can't be made. `handleError` would write to `sys.stderr` itself, and what it
        writes are the arguments as they are.
        """
        try:
            line = self._encoded(record)
        except Exception:
            line = None
        with self._changed:
            if line is None or self._num_bytes + len(line) > self._max_bytes:
                self._drop(1)
                return
            self._lines.append(line)
            self._num_bytes += len(line)
            self._changed.notify()

    def close(self) -> None:
        """What is queued is written, as far as it can be in a moment; nothing is any more."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._writer.join(self._farewell_s)
        super().close()

    def _encoded(self, record: logging.LogRecord) -> bytes:
        return (self.format(record) + "\n").encode("utf-8", "backslashreplace")

    def _drop(self, num_lines: int) -> None:
        self._num_dropped += num_lines
        self._num_untold += num_lines

    def _write(self) -> None:
        while batch := self._next():
            data = b"".join(batch)
            try:
                _write_all(self._descriptor, data)
            except OSError:  # nobody is there to read, or the disk is full
                with self._changed:
                    self._drop(len(batch))
                    self._num_bytes -= len(data)
            else:
                self._written(len(data))

    def _next(self) -> list[bytes]:
        """The lines to write now; none: it is over."""
        with self._changed:
            while not self._lines and not self._ended:
                self._changed.wait()
            room = _BATCH_BYTES
            batch: list[bytes] = []
            while self._lines and (room >= len(self._lines[0]) or not batch):
                batch.append(self._lines.popleft())
                room -= len(batch[-1])
            return batch

    def _written(self, num_bytes: int) -> None:
        """It goes on: behind what was queued before, the log says what is missing."""
        with self._changed:
            self._num_bytes -= num_bytes
            num_untold, self._num_untold = self._num_untold, 0
            if num_untold:
                line = self._encoded(self._told(num_untold))
                self._lines.append(line)
                self._num_bytes += len(line)


def last_words(text: str, descriptor: int = 2) -> None:
    """A line of a process that ends is written, if there is room for it at once."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    line = f"{text}\n".encode("utf-8", "backslashreplace")
    if poll.poll(0):
        with suppress(OSError):  # nobody is there to read
            os.write(descriptor, line[: select.PIPE_BUF])  # so much has room, or nothing


def _write_all(descriptor: int, data: bytes) -> None:
    """All of it is written, however long that takes. Raises OSError."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:  # whoever shares the descriptor made it so
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()
