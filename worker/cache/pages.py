"""The page pool: ids, reference counts, free list. Knows no tokens and no tensors.

    free       unreferenced and in no index
    cached     unreferenced, but in the index: matchable until it is given up
    used       referenced by at least one sequence, indexed or not

free + cached + used == num_pages after every operation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from worker.cache.eviction import ORDERS, Eviction
from worker.cache.record import EvictionRecord
from worker.cache.scope import PUBLIC, Account, CacheScope

OnEvict = Callable[[int, bool], None]


class PagePool:
    """Hands out page ids and takes them back.

    on_evict is called with a cached page that is about to be reused, and whether another account
    than the page's needs the room; the index must drop it.
    max_cached_pages bounds what may lie in the cache unreferenced. eviction: in which order that is
    given up. When keep_freed is on, ids of
    pages that became free are collected for `take_freed` (tests poison them).
    """

    def __init__(
        self,
        num_pages: int,
        page_size: int,
        *,
        max_cached_pages: int | None = None,
        eviction: Eviction = "fair",
        keep_freed: bool = False,
    ) -> None:
        if num_pages < 1 or page_size < 1:
            raise ValueError(f"a pool needs pages: num_pages={num_pages}, page_size={page_size}")
        self.num_pages = num_pages
        self.page_size = page_size
        self.evicted_total = 0
        self.allocated_total = 0
        self.record = EvictionRecord()
        self._max_cached = num_pages if max_cached_pages is None else max_cached_pages
        self._evictable = ORDERS[eviction](num_pages)
        self._free = deque(range(num_pages))
        self._refs = [0] * num_pages
        self._indexed = bytearray(num_pages)
        # By page, as counts of allocated_total: when it entered the index, when it came to rest.
        self._indexed_at = [0] * num_pages
        self._rested_at = [0] * num_pages
        self._on_evict: OnEvict = lambda _page, _by_another: None
        self._freed: list[int] | None = [] if keep_freed else None

    def bind(self, on_evict: OnEvict) -> None:
        """Names the index that drops a page when it is evicted."""
        self._on_evict = on_evict

    @property
    def num_free(self) -> int:
        """Pages in no index and referenced by nobody."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Unreferenced pages that can still be matched."""
        return len(self._evictable)

    @property
    def num_used(self) -> int:
        """Pages referenced by sequences."""
        return self.num_pages - len(self._free) - len(self._evictable)

    @property
    def num_available(self) -> int:
        """Pages that `allocate` can hand out now."""
        return len(self._free) + len(self._evictable)

    def allocate(self, count: int, account: Account = PUBLIC) -> list[int] | None:
        """Returns count pages with one reference each, or None (and changes nothing).

        Free pages first, then cached ones in the order of eviction, under account's pressure.
        """
        if count > self.num_available:
            return None
        while len(self._free) < count:
            self._evict(self._evictable.pop(), account.name)
        pages = [self._free.popleft() for _ in range(count)]
        for page in pages:
            self._refs[page] = 1
        self.allocated_total += count
        self._evictable.allocated(count)
        return pages

    def share(self, pages: Iterable[int]) -> None:
        """Adds a reference to each page; cached ones come back into use."""
        for page in pages:
            if self._refs[page] == 0:
                self._evictable.remove(page)
            self._refs[page] += 1

    def release(self, pages: Iterable[int]) -> None:
        """Drops a reference from each page, in the given order.

        Pass a sequence's pages from the tail to the head: what is released first is evicted first.
        """
        rested = None
        for page in pages:
            refs = self._refs[page] - 1
            assert refs >= 0, f"page {page} released more often than taken"
            self._refs[page] = refs
            if refs == 0:
                self._rest(page)
                rested = page if self._indexed[page] else rested
        if rested is not None:
            self._keep_limits(self.account_of(rested).name)

    def index(self, pages: list[int], account: Account) -> None:
        """Notes that referenced pages can be matched from now on; they are counted for account."""
        indexed, indexed_at, now = self._indexed, self._indexed_at, self.allocated_total
        for page in pages:
            indexed[page] = 1
            indexed_at[page] = now
        self._evictable.charge(pages, account)

    def unindex(self, page: int) -> None:
        """Notes that a page can no longer be matched; an unreferenced one becomes free."""
        self._indexed[page] = 0
        if self._refs[page] == 0:
            self._evictable.remove(page)
            self._to_free(page)
        self._evictable.discharge(page)

    def is_indexed(self, page: int) -> bool:
        """Whether a page can be matched."""
        return bool(self._indexed[page])

    def account_of(self, page: int) -> Account:
        """The account for which a page that can be matched is counted."""
        return self._evictable.account_of(page)

    def touch(self, scope: CacheScope) -> None:
        """Notes that the accounts of a scope are active."""
        self._evictable.touch(scope.account)
        if scope.public_tokens:
            self._evictable.touch(PUBLIC)

    def pages_by_account(self) -> dict[bytes, int]:
        """Pages that can be matched, for each account's name; for metrics."""
        return self._evictable.pages_by_account()

    def take_freed(self) -> list[int]:
        """Returns the pages that became free since the last call and are free still."""
        if self._freed is None:
            return []
        freed, self._freed = self._freed, []
        free = set(self._free)
        return sorted({page for page in freed if page in free})

    def check(self) -> None:
        """Asserts that every page is in exactly one state."""
        free = set(self._free)
        assert len(free) == len(self._free), "a page is free twice"
        for page in range(self.num_pages):
            refs, cached = self._refs[page], page in self._evictable
            if page in free:
                assert (refs, cached, self._indexed[page]) == (0, False, 0), f"free page {page}"
            elif refs == 0:
                assert (cached, self._indexed[page]) == (True, 1), f"page {page} is lost"
            else:
                assert not cached, f"used page {page} is evictable"
        assert sum(self.pages_by_account().values()) == sum(self._indexed)
        assert self.num_free + self.num_cached + self.num_used == self.num_pages

    def _rest(self, page: int) -> None:
        if self._indexed[page]:
            self._rested_at[page] = self.allocated_total
            self._evictable.add(page)
        else:
            self._to_free(page)

    def _to_free(self, page: int) -> None:
        self._free.append(page)
        if self._freed is not None:
            self._freed.append(page)

    def _keep_limits(self, pressing: bytes) -> None:
        """Gives up what lies above an account's cap, then what lies above the pool's."""
        while (page := self._evictable.pop_above_cap()) is not None:
            self._evict(page, self.account_of(page).name)
        while len(self._evictable) > self._max_cached:
            self._evict(self._evictable.pop(), pressing)

    def _evict(self, page: int, pressing: bytes) -> None:
        whose = self.account_of(page).name
        self._on_evict(page, whose != pressing)
        self.record.note(whose, pressing)
        self.record.lifetime.note(self.allocated_total - self._indexed_at[page])
        self.record.idle.note(self.allocated_total - self._rested_at[page])
        self._evictable.discharge(page)
        self._indexed[page] = 0
        self.evicted_total += 1
        self._to_free(page)
