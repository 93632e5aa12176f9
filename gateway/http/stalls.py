"""Cuts clients that take nothing: what is made for them would lie here for as long as they like.

    write ──▶ unsent ──▶ the client        four looks in a row at which something lies unsent and
                                           nothing has left: the connection ends

Whatever was written counts, also behind the end of an answer or of the connection, where nobody
else waits for it. A request that is under way ends as by any hang-up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

_LOOKS = 4


class Outflow:
    """A transport that ends when what was written to it does not leave for limit_s."""

    def __init__(
        self, transport: asyncio.Transport, limit_s: float, on_stall: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._every_s = limit_s / _LOOKS
        self._on_stall = on_stall
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._written = 0
        self._sent = 0
        self._num_still = 0

    def __getattr__(self, name: str) -> Any:
        """All else is the transport's own."""
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """As Transport.write."""
        self._written += len(data)
        self._transport.write(data)
        if self._timer is None and self._transport.get_write_buffer_size():
            self._watch()

    def stop(self) -> None:
        """The connection is over."""
        if self._timer is not None:
            self._timer.cancel()

    def _watch(self) -> None:
        self._sent = self._written - self._transport.get_write_buffer_size()
        self._num_still = 0
        self._timer = self._loop.call_later(self._every_s, self._look)

    def _look(self) -> None:
        """Looks are counted, not seconds: a loop that was held up makes nobody a staller."""
        self._timer = None
        unsent = self._transport.get_write_buffer_size()
        if not unsent:
            return
        if self._written - unsent > self._sent:
            self._watch()
            return
        self._num_still += 1
        if self._num_still >= _LOOKS:
            self._on_stall()
            self._transport.abort()
        else:
            self._timer = self._loop.call_later(self._every_s, self._look)
