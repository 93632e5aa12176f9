"""In which order unreferenced cached pages are given up. LRU is the first member."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class EvictionOrder(Protocol):
    """Holds the evictable pages: cached, and referenced by nobody.

    A sequence that references a page references all pages before it, and pages are released from
    the tail. An order must never give up a page before the pages that continue it.
    """

    def add(self, page: int) -> None:
        """Makes a page evictable, as the most recently used one."""

    def remove(self, page: int) -> None:
        """Takes a page back into use; it must be evictable."""

    def pop(self) -> int:
        """Removes and returns the page to give up next."""

    def __len__(self) -> int: ...

    def __contains__(self, page: int) -> bool: ...


class LeastRecentlyUsed:
    """Gives up the page that was released longest ago.

    Because sequences release from the tail, the order is also leaf first: LRU over leaves, with
    the cascade to parents, without looking at the tree. O(1) per page.
    """

    def __init__(self) -> None:
        self._pages: OrderedDict[int, None] = OrderedDict()

    def add(self, page: int) -> None:
        """Makes a page evictable, as the most recently used one."""
        self._pages[page] = None

    def remove(self, page: int) -> None:
        """Takes a page back into use; it must be evictable."""
        del self._pages[page]

    def pop(self) -> int:
        """Removes and returns the page to give up next."""
        return self._pages.popitem(last=False)[0]

    def __len__(self) -> int:
        return len(self._pages)

    def __contains__(self, page: int) -> bool:
        return page in self._pages
