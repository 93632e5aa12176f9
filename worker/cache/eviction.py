"""In which order cached pages are given up. Members: `FairOrder` and `LeastRecentlyUsed`.

Whose page goes next, under `fair`:

    1. of an account that has been idle for IDLE_TURNOVERS of the pool, the longest idle first:
       no match, commit or release of its own while so many times its pages were handed out
    2. of the account that holds most for its weight, among those above their guarantee
    3. everybody is within the guarantee: the page released longest ago

Within an account it is always the page released longest ago. With one account, `fair` is `lru`.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from worker.cache.scope import Account

Eviction = Literal["fair", "lru"]

# So many turnovers of the pool pass before an account is idle: one that a flood holds up comes back
# later than it would like to, and must find what it had.
IDLE_TURNOVERS = 8


class EvictionOrder(Protocol):
    """Knows the pages in the index by account, and which are evictable: referenced by nobody.

    A sequence that references a page references all pages before it, and pages are released from
    the tail. An order must never give up a page before the pages that continue it, which are on
    the same account.
    """

    def charge(self, pages: list[int], account: Account) -> None:
        """Counts pages that enter the index for an account."""

    def discharge(self, page: int) -> None:
        """Forgets a page that has left the index; it must not be evictable any more."""

    def account_of(self, page: int) -> Account:
        """The account for which a page in the index is counted."""

    def touch(self, account: Account) -> None:
        """Notes that an account is active, and its weight, share and cap from now on."""

    def allocated(self, count: int) -> None:
        """Notes that so many pages were handed out: the clock by which accounts are idle."""

    def add(self, page: int) -> None:
        """Makes a page of the index evictable, as the most recently used one."""

    def remove(self, page: int) -> None:
        """Takes a page back into use; it must be evictable."""

    def pop(self) -> int:
        """Makes the page to give up next unevictable and returns it."""

    def pop_above_cap(self) -> int | None:
        """Does the same for a page of an account above its cap; None if there is no such."""

    def pages_by_account(self) -> dict[bytes, int]:
        """Pages in the index for each account's name, evictable or in use; for metrics."""

    def __len__(self) -> int: ...

    def __contains__(self, page: int) -> bool: ...


class LeastRecentlyUsed:
    """Gives up the page that was released longest ago, whosever it is.

    Because sequences release from the tail, the order is also leaf first: LRU over leaves, with
    the cascade to parents, without looking at the tree. O(1) per page.
    """

    def __init__(self) -> None:
        self._pages: OrderedDict[int, None] = OrderedDict()
        self._account: dict[int, Account] = {}

    def charge(self, pages: list[int], account: Account) -> None:
        """Counts pages that enter the index for an account."""
        self._account.update(dict.fromkeys(pages, account))

    def discharge(self, page: int) -> None:
        """Forgets a page that has left the index."""
        del self._account[page]

    def account_of(self, page: int) -> Account:
        """The account for which a page in the index is counted."""
        return self._account[page]

    def touch(self, account: Account) -> None:
        """Makes no difference."""

    def allocated(self, count: int) -> None:
        """Makes no difference."""

    def add(self, page: int) -> None:
        """Makes a page evictable, as the most recently used one."""
        self._pages[page] = None

    def remove(self, page: int) -> None:
        """Takes a page back into use; it must be evictable."""
        del self._pages[page]

    def pop(self) -> int:
        """Makes the page released longest ago unevictable and returns it."""
        return self._pages.popitem(last=False)[0]

    def pop_above_cap(self) -> int | None:
        """Returns None: there are no caps."""
        return None

    def pages_by_account(self) -> dict[bytes, int]:
        """Pages in the index for each account's name."""
        return dict(Counter(account.name for account in self._account.values()))

    def __len__(self) -> int:
        return len(self._pages)

    def __contains__(self, page: int) -> bool:
        return page in self._pages


@dataclass(slots=True, eq=False)
class _Ledger:
    """One account's pages. resting: the evictable ones, the oldest first.

    active_at: pages that had been handed out then. ticket: of its entry in the heap that counts,
    and offered: the ratio in it, which is never below the true one.
    """

    account: Account
    guarantee: int = 0
    cap: int = 0
    num_pages: int = 0
    resting: OrderedDict[int, None] = field(default_factory=OrderedDict)
    active_at: int = 0
    ticket: int | None = None
    offered: float = 0.0

    @property
    def ratio(self) -> float:
        """What it holds for its weight."""
        return self.num_pages / self.account.weight

    @property
    def is_in_excess(self) -> bool:
        """Whether it can give up a page and keep its guarantee."""
        return bool(self.resting) and self.num_pages > self.guarantee


class FairOrder:
    """See the module. O(log accounts) per page at worst; never walks a tree or all accounts.

    The heap of ratios is lazy: a rise is entered at once, a fall when the entry comes up.
    """

    def __init__(self, num_pages: int) -> None:
        self._num_pages = num_pages
        self._idle_after = IDLE_TURNOVERS * num_pages
        self._clock = 0
        self._tickets = 0
        self._ledgers: dict[bytes, _Ledger] = {}
        self._ledger_of: dict[int, _Ledger] = {}
        self._pages: OrderedDict[int, None] = OrderedDict()
        self._heap: list[tuple[float, int, _Ledger]] = []
        # Those with evictable pages, the longest idle first.
        self._by_activity: OrderedDict[_Ledger, None] = OrderedDict()
        # Those that may be above their cap.
        self._capped: dict[_Ledger, None] = {}

    def charge(self, pages: list[int], account: Account) -> None:
        """Counts pages that enter the index for an account, which is active."""
        ledger = self._ledgers.get(account.name)
        if ledger is None:
            ledger = self._ledgers[account.name] = _Ledger(account)
            self._bound(ledger)
        self._ledger_of.update(dict.fromkeys(pages, ledger))
        ledger.num_pages += len(pages)
        self._note(ledger)
        self._offer(ledger)

    def discharge(self, page: int) -> None:
        """Forgets a page that has left the index, and an account without pages."""
        ledger = self._ledger_of.pop(page)
        ledger.num_pages -= 1
        if not ledger.num_pages:
            del self._ledgers[ledger.account.name]
            ledger.ticket = None

    def account_of(self, page: int) -> Account:
        """The account for which a page in the index is counted."""
        return self._ledger_of[page].account

    def touch(self, account: Account) -> None:
        """Notes that an account is active, and its weight, share and cap from now on."""
        ledger = self._ledgers.get(account.name)
        if ledger is None:
            return
        if ledger.account != account:
            ledger.account = account
            self._bound(ledger)
            self._offer(ledger)
        self._note(ledger)

    def allocated(self, count: int) -> None:
        """Notes that so many pages were handed out."""
        self._clock += count

    def add(self, page: int) -> None:
        """Makes a page evictable, as the most recently used one; its account is active."""
        ledger = self._ledger_of[page]
        first = not ledger.resting
        if first:
            self._by_activity[ledger] = None
        ledger.resting[page] = self._pages[page] = None
        self._note(ledger)
        # Its ratio may have risen while it had nothing to give up.
        if first or ledger.ticket is None:
            self._offer(ledger)
        if len(ledger.resting) > ledger.cap:
            self._capped[ledger] = None

    def remove(self, page: int) -> None:
        """Takes a page back into use; it must be evictable."""
        ledger = self._ledger_of[page]
        del ledger.resting[page], self._pages[page]
        if not ledger.resting:
            del self._by_activity[ledger]

    def pop(self) -> int:
        """Makes the page to give up next unevictable and returns it."""
        ledger = self._longest_idle() or self._most_in_excess()
        page = next(iter(self._pages if ledger is None else ledger.resting))
        self.remove(page)
        return page

    def pop_above_cap(self) -> int | None:
        """Does the same for the oldest page of an account above its cap."""
        while self._capped:
            ledger = next(iter(self._capped))
            if len(ledger.resting) > ledger.cap:
                page = next(iter(ledger.resting))
                self.remove(page)
                return page
            del self._capped[ledger]
        return None

    def pages_by_account(self) -> dict[bytes, int]:
        """Pages in the index for each account's name."""
        return {name: ledger.num_pages for name, ledger in self._ledgers.items()}

    def __len__(self) -> int:
        return len(self._pages)

    def __contains__(self, page: int) -> bool:
        return page in self._pages

    # ------------------------------------------------------------------ inside

    def _bound(self, ledger: _Ledger) -> None:
        """Turns fractions of the pool into pages; a fraction of a page does not count."""
        ledger.guarantee = int(ledger.account.share * self._num_pages + 1e-6)
        ledger.cap = int(ledger.account.cap * self._num_pages + 1e-6)
        if len(ledger.resting) > ledger.cap:
            self._capped[ledger] = None

    def _note(self, ledger: _Ledger) -> None:
        ledger.active_at = self._clock
        if ledger.resting:
            self._by_activity.move_to_end(ledger)

    def _longest_idle(self) -> _Ledger | None:
        ledger = next(iter(self._by_activity))
        return ledger if self._clock - ledger.active_at >= self._idle_after else None

    def _most_in_excess(self) -> _Ledger | None:
        """The account with the highest ratio; corrects the entries that come up and are stale."""
        while self._heap:
            _, ticket, ledger = self._heap[0]
            if ticket != ledger.ticket:
                heapq.heappop(self._heap)
            elif not ledger.is_in_excess:
                heapq.heappop(self._heap)
                ledger.ticket = None
            elif ledger.ratio == ledger.offered:
                return ledger
            else:
                heapq.heapreplace(self._heap, self._entry(ledger))
        return None

    def _offer(self, ledger: _Ledger) -> None:
        """Enters an account's ratio if it can give up a page and no entry is as high."""
        if not ledger.is_in_excess:
            return
        if ledger.ticket is None or ledger.ratio > ledger.offered:
            heapq.heappush(self._heap, self._entry(ledger))
            if len(self._heap) > 4 * len(self._ledgers) + 64:
                self._heap = [entry for entry in self._heap if entry[1] == entry[2].ticket]
                heapq.heapify(self._heap)

    def _entry(self, ledger: _Ledger) -> tuple[float, int, _Ledger]:
        self._tickets += 1
        ledger.ticket, ledger.offered = self._tickets, ledger.ratio
        return (-ledger.offered, self._tickets, ledger)


ORDERS: dict[Eviction, Callable[[int], EvictionOrder]] = {
    "fair": FairOrder,
    "lru": lambda _num_pages: LeastRecentlyUsed(),
}
