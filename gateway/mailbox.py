"""Where links leave a request's events until its handler takes them.

Many may put, one takes. Putting never blocks and never fails, so a slow client holds up nobody:
what piled up is taken in one piece.
"""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Mailbox(Generic[Item]):
    """A list with one waiter; it lives in one event loop."""

    def __init__(self) -> None:
        self._pending: list[Item] = []
        self._waiter: asyncio.Future[None] | None = None

    def put(self, item: Item) -> None:
        """Leave an item."""
        self._pending.append(item)
        waiter = self._waiter
        if waiter is not None:
            _wake(waiter)

    async def take(self, idle_s: float) -> list[Item]:
        """All that lies here, in order; empty if nothing came for idle_s seconds."""
        if not self._pending:
            await self._wait(idle_s)
        pending, self._pending = self._pending, []
        return pending

    async def _wait(self, idle_s: float) -> None:
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()

        timer = loop.call_later(idle_s, _wake, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
