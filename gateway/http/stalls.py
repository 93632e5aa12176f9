"""Cuts clients that take nothing: what is made for them would pile up for as long as it is made.

A reply notes when it began to wait for its client; one look a second finds those that wait for
longer than they may and ends their connections. The request then ends as by any hang-up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class Blockable(Protocol):
    """A reply on its way."""

    @property
    def blocked_since(self) -> float | None:
        """Since when it waits for the client to take something; None: it doesn't."""
        ...

    def abort(self) -> None:
        """End the connection at once, whatever lies unsent."""
        ...


class Stalls:
    """Knows the replies that are on their way."""

    def __init__(self, limit_s: float, clock: Callable[[], float]):
        self._limit_s = limit_s
        self._clock = clock
        self._replies: set[Blockable] = set()
        self.cut_total = 0

    def enter(self, reply: Blockable) -> None:
        """It may stall from now on."""
        self._replies.add(reply)

    def leave(self, reply: Blockable) -> None:
        """It is over."""
        self._replies.discard(reply)

    async def watch(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(min(1.0, self._limit_s / 4))
            self.cut()

    def cut(self) -> None:
        """End the connections of those that stall for too long."""
        latest = self._clock() - self._limit_s
        for reply in list(self._replies):
            since = reply.blocked_since
            if since is not None and since <= latest:
                self.cut_total += 1
                reply.abort()
