"""A file of traffic, line by line: requests in the order in which they came, and what was broken.

    file (gzip or not) ── line ── JSON ── forms ──┬── request
                          │                       └── session ── merged with those that overlap it
                          └── too long, no JSON, no request: counted, and the first ones named

Sessions begin one every SESSION_EVERY_S; only those that overlap are in memory.
"""

from __future__ import annotations

import gzip
import heapq
import itertools
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, cast

import msgspec

from loadtest.analysis.forms import Entry, NoRequest, Session, requests_of
from loadtest.errors import UnreadableLog
from loadtest.traces import SESSION_EVERY_S

MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_NAMED = 5
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class BrokenLine:
    """number: from 1. reason: why it was left out."""

    number: int
    reason: str


@dataclass(slots=True)
class Log:
    """One file. Counts grow while `entries` is read. sessions: lines that were one."""

    path: Path
    lines: int = 0
    broken: int = 0
    sessions: int = 0
    named: list[BrokenLine] = field(default_factory=list)

    def entries(self) -> Iterator[Entry]:
        """The requests. Raises UnreadableLog."""
        waiting: list[tuple[float, int]] = []
        held: dict[int, Entry] = {}
        numbers = itertools.count()
        for found in self._read():
            if isinstance(found, Entry):
                yield found
                continue
            begins = self.sessions * SESSION_EVERY_S
            self.sessions += 1
            while waiting and waiting[0][0] < begins:
                yield held.pop(heapq.heappop(waiting)[1])
            for entry in found.entries:
                at_s, number = begins + (entry.at_s or 0.0), next(numbers)
                held[number] = replace(entry, at_s=at_s)
                heapq.heappush(waiting, (at_s, number))
        while waiting:
            yield held.pop(heapq.heappop(waiting)[1])

    def leave_out(self, reason: str) -> None:
        """The line that was read last is broken."""
        self.broken += 1
        if len(self.named) < MAX_NAMED:
            self.named.append(BrokenLine(self.lines, reason))

    def _read(self) -> Iterator[Entry | Session]:
        for line in self._lines():
            try:
                found = requests_of(msgspec.json.decode(line), self.lines)
            except NoRequest as error:
                self.leave_out(str(error))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                self.leave_out(f"it is no JSON: {error!s:.100}")
            else:
                yield from [found] if isinstance(found, Session) else found

    def _lines(self) -> Iterator[bytes]:
        """Each that holds something and is not too long."""
        try:
            with ExitStack() as stack:
                file = stack.enter_context(_opened(self.path))
                while line := file.readline(MAX_LINE_BYTES):
                    self.lines += 1
                    if not line.endswith(b"\n") and len(line) == MAX_LINE_BYTES:
                        self.leave_out(f"it is longer than {MAX_LINE_BYTES >> 20} MiB")
                        _skip(file)
                    elif line.strip():
                        yield line
        except (OSError, EOFError, zlib.error) as error:
            raise UnreadableLog(f"{self.path} can't be read: {error}") from error


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        is_packed = file.read(2) == _GZIP
    return cast(IO[bytes], gzip.open(path, "rb")) if is_packed else path.open("rb")


def _skip(file: IO[bytes]) -> None:
    """Read to the line's end."""
    while (more := file.readline(1 << 20)) and not more.endswith(b"\n"):
        pass
