"""A real redis-server on a free port of 127.0.0.1, which can be stopped, started and paused."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from pando.children import dying_with_us

START_S = 10.0


class RedisServer:
    """One process at a time on one port; what it holds is gone with it unless told to persist."""

    def __init__(self, folder: Path):
        program = shutil.which("redis-server")
        assert program, "redis-server is missing: .ci/system-packages redis-server installs it"
        self._program = program
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = int(listener.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self, *flags: str) -> None:
        """It listens, and nothing is in it.

        Somebody's outgoing connection may sit on the port for a moment: it is tried again.
        """
        base = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir"]
        deadline = time.monotonic() + START_S
        while not self._listens():
            assert time.monotonic() < deadline, "redis-server doesn't listen"
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    dying_with_us([self._program, *base, str(self._folder), *flags]),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            time.sleep(0.01)

    def stop(self) -> None:
        """It is gone, and all that it held."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """It keeps its connections and says nothing more."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def command(self, *words: str) -> str:
        """The first line of the reply, as Redis sends it."""
        return self._lines(words, 1)[0]

    def reply(self, *words: str) -> str:
        """What a string holds, or the first of a list of strings; empty if there is none."""
        first = self.command(*words)
        if first in ("$-1", "*0"):
            return ""
        return self._lines(words, 2 if first.startswith("$") else 3)[-1]

    def _lines(self, words: tuple[str, ...], count: int) -> list[str]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            pieces = [f"*{len(words)}\r\n", *(f"${len(w.encode())}\r\n{w}\r\n" for w in words)]
            connection.sendall("".join(pieces).encode())
            with connection.makefile("rb") as answer:
                return [answer.readline().decode().strip() for _ in range(count)]

    def _listens(self) -> bool:
        try:
            return self.command("PING").startswith(("+PONG", "-NOAUTH"))
        except OSError:
            return False
