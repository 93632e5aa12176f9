"""The workers of one model as routing sees them: their seats in the index, the ring, their age.

Follows the fleet: whoever joined gets a seat before the next decision, whoever left loses it. The
ring follows later, from a thread; until then it lacks the newcomer and is right for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

from xxhash import xxh3_64_intdigest

from gateway.config import RoutingConfig
from gateway.fleet.workers import Worker
from gateway.routing.index import Index, Seat
from gateway.routing.ring import LoadBound, Ring
from gateway.routing.work import Account, Work

# Entries of workers that left, taken out of the index with each decision.
_SWEEP = 64


class Roster:
    """Who serves a model. Only its router writes it."""

    def __init__(self, settings: RoutingConfig):
        self.index: Index[Worker] = Index()
        self.ring: Ring | None = None
        self.work = Work(settings.work_half_life_s)
        self.bound = LoadBound(settings.load_floor, settings.load_factor)
        self._seats: dict[str, Seat[Worker]] = {}
        self._accounts: dict[Worker, Account] = {}
        self._last_turn = ""

    def __len__(self) -> int:
        """How many workers serve."""
        return len(self._seats)

    @property
    def names(self) -> frozenset[str]:
        """Of those who serve."""
        return frozenset(self._seats)

    def follow(self, workers: Iterable[Worker]) -> None:
        """Exactly these serve now."""
        serving = {worker.name: worker for worker in workers}
        for name, seat in list(self._seats.items()):
            if serving.get(name) is not seat.owner:
                seat.leave(seat.owner.view)
                del self._seats[name]
        for name, worker in serving.items():
            if name not in self._seats:
                self._seats[name] = self.index.join(worker, worker.view)
        self._accounts = {
            seat.owner: self._accounts.get(seat.owner) or Account() for seat in self._seats.values()
        }
        self.work.follow(self.names)

    def sweep(self) -> None:
        """Take a few entries of workers that left out of the index."""
        self.index.sweep(_SWEEP)

    def review(self, now: float) -> None:
        """Forget what was guessed too long ago; count what other gateways had computed."""
        for worker, account in self._accounts.items():
            worker.view.expire(now)
            load = worker.load
            computed = load.prompt_tokens_total - load.cached_tokens_total
            grown = account.grown(computed, worker.assigned_total)
            if grown:
                self.work.add(worker.name, grown, now)

    def seats(self, may: Callable[[Worker], bool]) -> int:
        """The seats of those that may take a request, as bits."""
        found = 0
        for seat in self._seats.values():
            if may(seat.owner):
                found |= seat.bit
        return found

    def named(self, names: Iterable[str]) -> int:
        """The seats of workers by their names; unknown names have none."""
        found = 0
        for name in names:
            if (seat := self._seats.get(name)) is not None:
                found |= seat.bit
        return found

    def bit(self, name: str) -> int:
        """A worker's seat; 0: it does not serve."""
        seat = self._seats.get(name)
        return seat.bit if seat else 0

    def preference(self, key: bytes, among: int) -> Iterator[Worker]:
        """Those among these seats in the key's own order, which every gateway knows.

        Newcomers whom the ring lacks come last.
        """
        ring = self.ring
        known: Iterable[str] = ring.preference(key) if ring else ()
        strangers = (
            name for name in self._scattered(key) if ring is None or name not in ring.names
        )
        for name in chain(known, strangers):
            seat = self._seats.get(name)
            if seat is not None and seat.bit & among:
                yield seat.owner

    def owners(self, key: bytes, among: int, limit: int) -> list[Worker]:
        """The first few of the preference."""
        return list(islice(self.preference(key, among), limit))

    def in_turn(self, among: int) -> Worker | None:
        """The next one in the order of their names, behind who had the last turn."""
        after = [name for name in self._seats if name > self._last_turn]
        for name in (*sorted(after), *sorted(self._seats)):
            seat = self._seats[name]
            if seat.bit & among:
                return seat.owner
        return None

    def had_turn(self, worker: Worker) -> None:
        """The worker was taken because its turn had come."""
        self._last_turn = worker.name

    def sequences(self) -> list[int]:
        """How many each worker has, in any order."""
        return [num_sequences(seat.owner) for seat in self._seats.values()]

    def _scattered(self, key: bytes) -> list[str]:
        """The names in an order of the key's own, while there is no ring."""
        return sorted(self._seats, key=lambda name: xxh3_64_intdigest(key + name.encode()))


def num_sequences(worker: Worker) -> int:
    """Choices that a worker has: ours as we count them, all gateways' as it last told."""
    load = worker.load
    return max(worker.num_sequences, load.running_sequences + load.waiting_sequences)
