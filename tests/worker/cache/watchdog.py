"""Judges every eviction by what the pool's own states say, apart from the order under test."""

from __future__ import annotations

from collections import Counter

from tests.worker.cache.oracle import Oracle
from worker.cache.eviction import IDLE_TURNOVERS
from worker.cache.scope import Account


class Watchdog:
    """Stands between the pool and the index; knows each account's guarantee."""

    def __init__(self, oracle: Oracle, accounts: list[Account], *, fair: bool) -> None:
        self.oracle, self.pool, self.fair = oracle, oracle.pool, fair
        self.accounts = {account.name: account for account in accounts}
        self._drop = self.pool._on_evict
        self.pool.bind(self.evicts)

    def pages_of(self, name: bytes) -> list[int]:
        return [page for page in self._indexed() if self.pool.account_of(page).name == name]

    def resting_of(self, name: bytes) -> list[int]:
        return [page for page in self.pages_of(name) if self.pool._refs[page] == 0]

    def evicts(self, page: int, by_another: bool) -> None:
        assert self.pool.is_indexed(page)
        assert self.pool._refs[page] == 0, "a page in use is given up"
        name = self.pool.account_of(page).name
        rested = self.pool._rested_at
        if self.fair:
            assert all(rested[page] <= rested[other] for other in self.resting_of(name))
            if len(self.resting_of(name)) <= self._cap(name):
                self._is_fair(name)
        else:
            resting = [one for one in self._indexed() if not self.pool._refs[one]]
            assert all(rested[page] <= rested[one] for one in resting)
        self._drop(page, by_another)

    def check(self) -> None:
        """Caps hold, and every page is on the account of its tree."""
        held = Counter(self.pool.account_of(page).name for page in self._indexed())
        assert self.pool.pages_by_account() == dict(held)
        for name in self.accounts if self.fair else ():
            assert len(self.resting_of(name)) <= self._cap(name), f"{name!r} is above its cap"
        for page, (whose, _, _) in self._contents():
            names = {"public": [b""], b"shared": [b"b", b"c"]}.get(whose, [whose])
            assert self.pool.account_of(page).name in names, "a page is on another's account"

    def _contents(self) -> list[tuple[int, tuple[str | bytes, str, tuple[int, ...]]]]:
        """What lies at the beginning of the pages that were computed."""
        found = []
        fresh = getattr(self.oracle.cache, "_fresh", {})
        for page in self._indexed():
            content = self.oracle.memory[page * self.oracle.size]
            if page not in fresh and isinstance(content, tuple):
                found.append((page, content))
        return found

    def _is_fair(self, name: bytes) -> None:
        """An active account within its guarantee loses nothing while another can give something."""
        if self._is_within(name) and self._is_active(name):
            others = [other for other in self.accounts if self.resting_of(other)]
            assert all(self._is_within(other) for other in others), f"{name!r} lost its guarantee"
        active = [other for other in self.accounts if self._is_active(other)]
        if self._is_active(name) and not self._is_within(name):
            for other in active:
                if self.resting_of(other) and not self._is_within(other):
                    assert self._ratio(other) <= self._ratio(name), f"{other!r} holds more"

    def _is_within(self, name: bytes) -> bool:
        return len(self.pages_of(name)) <= self.accounts[name].share * self.pool.num_pages

    def _is_active(self, name: bytes) -> bool:
        last = self.oracle.active_at.get(name)
        return (
            last is not None
            and self.pool.allocated_total - last < IDLE_TURNOVERS * self.pool.num_pages
        )

    def _ratio(self, name: bytes) -> float:
        return len(self.pages_of(name)) / self.accounts[name].weight

    def _cap(self, name: bytes) -> float:
        return self.accounts[name].cap * self.pool.num_pages

    def _indexed(self) -> list[int]:
        return [page for page in range(self.pool.num_pages) if self.pool.is_indexed(page)]
