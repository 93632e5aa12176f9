"""A network between a gateway and a worker, of our own: it can be cut, or swallow everything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_PIECE = 65_536


class Wire:
    """Carries bytes between a port of its own and the target's. Lives on one event loop."""

    def __init__(self, target: int):
        self.port = 0
        self._target = target
        self._server: asyncio.Server | None = None
        self._intact = asyncio.Event()
        self._intact.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._carrying: set[asyncio.Task[None]] = set()
        self._swallows = False

    async def open(self) -> None:
        """It takes connections at `port`."""
        self._server = await asyncio.start_server(self._taken, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """Every connection is reset; new ones can be made."""
        for writer in self._writers:
            writer.transport.abort()

    def refuse(self) -> None:
        """As cut, and new connections are ended at once until `mend`."""
        self._intact.clear()
        self.cut()

    def swallow(self) -> None:
        """What comes is taken and gone, both ways; no connection ends."""
        self._swallows = True

    def mend(self) -> None:
        """It carries again. Connections that lost bytes are reset: they are worth nothing."""
        self._intact.set()
        if self._swallows:
            self._swallows = False
            self.cut()

    async def close(self) -> None:
        """Nothing is left of it."""
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._carrying)

    def _taken(self, near: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._carry_all(near, out))
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)

    async def _carry_all(self, near: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        if not self._intact.is_set():
            out.transport.abort()
            return
        try:
            far, into = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            out.transport.abort()
            return
        async with self._held(out), self._held(into):
            both = [
                asyncio.ensure_future(self._carry(near, into)),
                asyncio.ensure_future(self._carry(far, out)),
            ]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in both:
                    one.cancel()

    @asynccontextmanager
    async def _held(self, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
        self._writers.add(writer)
        try:
            yield
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(_PIECE):
                if not self._swallows:
                    sink.write(data)
                    await sink.drain()
