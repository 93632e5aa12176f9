"""A pipe that is read late, or never."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

ROOM = 4096


@dataclass
class Pipe:
    """A pipe with little room. Its ends are closed with the test."""

    read_end: int
    write_end: int

    def close_reader(self) -> None:
        os.close(self.read_end)
        self.read_end = -1

    def read(self) -> str:
        """Everything that is written until the other end is closed, here and elsewhere."""
        os.close(self.write_end)
        self.write_end = -1
        with os.fdopen(self.read_end, closefd=False) as file:
            return file.read()


@contextmanager
def opened() -> Iterator[Pipe]:
    """It has ROOM for bytes; its ends are closed behind."""
    pipe = Pipe(*os.pipe())
    fcntl.fcntl(pipe.write_end, fcntl.F_SETPIPE_SZ, ROOM)
    yield pipe
    for end in (pipe.read_end, pipe.write_end):
        if end >= 0:
            os.close(end)


def in_background(read: Callable[[], str]) -> Callable[[], str]:
    """What is read, once it is over."""
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(read()))
    thread.start()

    def result() -> str:
        thread.join()
        return found[0]

    return result
