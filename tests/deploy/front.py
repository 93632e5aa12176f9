"""A Service in front of pods: new connections go to ready endpoints, a while after a change."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count

_PIECE = 65_536


class Front:
    """Carries connections. delay_s: until every node has heard of a change of the endpoints."""

    def __init__(self, delay_s: float):
        self.port = 0
        self.refused = 0
        self._delay_s = delay_s
        self._endpoints: list[int] = []
        self._turn = count()
        self._server: asyncio.Server | None = None
        self._carrying: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """It takes connections at `port`."""
        self._server = await asyncio.start_server(self._taken, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    def change(self, port: int, *, ready: bool) -> None:
        """An endpoint comes or goes; connections that stand are left alone."""
        asyncio.get_running_loop().call_later(self._delay_s, self._changed, port, ready)

    async def close(self) -> None:
        """Nothing is carried any more."""
        assert self._server is not None
        self._server.close()
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    def _changed(self, port: int, ready: bool) -> None:
        if ready:
            self._endpoints.append(port)
        else:
            self._endpoints.remove(port)

    def _taken(self, near: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._carry_all(near, out))
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)

    async def _carry_all(self, near: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        try:
            port = self._endpoints[next(self._turn) % len(self._endpoints)]
            far, into = await asyncio.open_connection("127.0.0.1", port)
        except (OSError, ZeroDivisionError):
            self.refused += 1
            out.transport.abort()
            return
        try:
            await asyncio.gather(_carry(near, into), _carry(far, out))
        finally:
            for writer in (out, into):
                writer.transport.abort()


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Each side's end goes on to the other."""
    with suppress(OSError):
        while data := await source.read(_PIECE):
            sink.write(data)
            await sink.drain()
        sink.write_eof()
