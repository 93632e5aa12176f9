"""How long answers may take: each one so long, and none longer than the gateway itself is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.errors import RequestTimeout, ShuttingDown


class Deadline:
    """Ends answers by an error that their clients are told. longest_s: of each."""

    def __init__(self, longest_s: float):
        self._longest_s = longest_s
        self._running: set[asyncio.Timeout] = set()
        self._has_passed = False

    @asynccontextmanager
    async def within(self) -> AsyncIterator[None]:
        """What runs in the context is cancelled in time. Raises RequestTimeout, ShuttingDown."""
        if self._has_passed:
            raise ShuttingDown
        timeout = asyncio.timeout(self._longest_s)
        self._running.add(timeout)
        try:
            async with timeout:
                yield
        except TimeoutError:
            raise (ShuttingDown() if self._has_passed else RequestTimeout()) from None
        finally:
            self._running.discard(timeout)

    def end_all(self) -> None:
        """Time is up for all that run, and for whoever comes."""
        self._has_passed = True
        now = asyncio.get_running_loop().time()
        for timeout in self._running:
            if not timeout.expired():
                timeout.reschedule(now)
