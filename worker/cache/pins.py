"""Leases on cached prefixes: their pages can't be given up before a deadline."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from worker.cache.pages import PagePool


@dataclass(frozen=True, slots=True)
class _Pin:
    """One lease. pages: from the beginning of the prefix, a reference on each."""

    pages: tuple[int, ...]
    until: float


class Pins:
    """Holds references on prefixes, each by a key of the caller's, until a time of the clock.

    A prefix's pages are those of a match, from its beginning, pinned before anything else happens
    to the cache. max_fraction: of the pool, how many different pages may be pinned together.
    Pinned pages are used, not cached: who needs the room calls `release_next` until it has it.
    """

    def __init__(self, pool: PagePool, max_fraction: float, clock: Callable[[], float]) -> None:
        if not 0 <= max_fraction < 1:
            raise ValueError(f"max_fraction is {max_fraction:g}; it must be from 0 to below 1")
        self.max_pages = int(max_fraction * pool.num_pages)
        self._pool = pool
        self._clock = clock
        self._pins: dict[bytes, _Pin] = {}
        self._times_pinned: Counter[int] = Counter()
        # By deadline; an entry counts if the pin under its key still ends then.
        self._deadlines: list[tuple[float, bytes]] = []

    @property
    def num_pages(self) -> int:
        """Different pages that are pinned."""
        return len(self._times_pinned)

    def __len__(self) -> int:
        return len(self._pins)

    def pin(self, key: bytes, pages: list[int], until: float) -> bool:
        """Pins a prefix; False, and nothing changes: too many pages, or the time has passed.

        What was pinned under the key before is given back, and in either case what has ended.
        """
        self._pool.share(pages)  # what has ended may be all that holds them
        self.expire()
        if not pages or until <= self._clock() or self._num_pages_with(key, pages) > self.max_pages:
            self._pool.release(reversed(pages))
            return False
        self._times_pinned.update(pages)
        self.unpin(key)
        self._pins[key] = _Pin(tuple(pages), until)
        heapq.heappush(self._deadlines, (until, key))
        if len(self._deadlines) > 2 * len(self._pins) + 64:
            self._deadlines = [(pin.until, name) for name, pin in self._pins.items()]
            heapq.heapify(self._deadlines)
        return True

    def unpin(self, key: bytes) -> None:
        """Gives a prefix back, from its tail; an unknown key is one that has ended already."""
        pin = self._pins.pop(key, None)
        if pin is None:
            return
        for page in pin.pages:
            self._times_pinned[page] -= 1
            if not self._times_pinned[page]:
                del self._times_pinned[page]
        self._pool.release(reversed(pin.pages))

    def expire(self) -> int:
        """Gives back what has reached its deadline; returns the number of prefixes."""
        now, before = self._clock(), len(self._pins)
        while (entry := self._next()) is not None and entry[0] <= now:
            self.unpin(entry[1])
        return before - len(self._pins)

    def left_s(self) -> float | None:
        """Until the next deadline; None: nothing is pinned."""
        entry = self._next()
        return None if entry is None else max(entry[0] - self._clock(), 0.0)

    def release_next(self) -> bool:
        """Gives back the prefix that would end soonest; False: none is pinned."""
        entry = self._next()
        if entry is None:
            return False
        self.unpin(entry[1])
        return True

    def clear(self) -> None:
        """Gives everything back."""
        while self.release_next():
            pass

    def _num_pages_with(self, key: bytes, pages: list[int]) -> int:
        """Different pages that would be pinned with these in place of what the key holds."""
        held = self._pins.get(key)
        leaving = {page for page in held.pages if self._times_pinned[page] == 1} if held else set()
        coming = {page for page in pages if page not in self._times_pinned or page in leaving}
        return self.num_pages - len(leaving) + len(coming)

    def _next(self) -> tuple[float, bytes] | None:
        while self._deadlines:
            until, key = self._deadlines[0]
            pin = self._pins.get(key)
            if pin is not None and pin.until == until:
                return self._deadlines[0]
            heapq.heappop(self._deadlines)
        return None
