"""Cache-aware order: least left to compute goes first, aged by arrival, fair between accounts.

    key = tokens left to compute + AGE x tokens computed before its arrival - RANK_TOKENS x rank

Keys do not change with time, so the queue is a heap: `now` would be the same in all of them. Two
bounds follow. A sequence with `left` tokens to compute is passed only by what arrives before
`left / AGE` more tokens are computed (and by RANK_TOKENS / AGE for each rank that the other stands
above it). And an account whose sequences wait is never behind another one of at least its rank by
more than `slack_tokens` of work for each unit of weight.

`left` follows the cache without matching everything again. A waiting sequence stands at a
frontier: where its match ends, and the page of tokens that would continue it.

    the cache grows there      the sequence is stale: it's matched again, a bounded number per step
    pages there are evicted    found when it becomes the head, which is always matched again
    a prefill computes it now  the sequence is parked until that page is there, or won't be

So a queue of any length keeps its order, and siblings of a long cold prompt compute it once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from worker.cache.interface import TOKEN_BYTES, PrefixCache
from worker.cache.scope import Account, Root
from worker.order.interface import Frontier
from worker.sequence import Sequence

# Weight of a token computed before the arrival against a token left to compute.
AGE = 0.05
# What a rank is worth, in tokens left to compute.
RANK_TOKENS = 8192
# Sequences that are matched again per step since the cache grew under them.
REMATCHES = 32
# Lanes of accounts that wait for nothing, kept for their place.
MAX_IDLE_LANES = 256


@dataclass(slots=True, eq=False)
class _Waiter:
    """A waiting sequence as it was matched last.

    ticket: of its entry in a heap that counts, 0 if none does. No two entries have the same, so a
    sequence that comes back is told from what a heap still has of its first time.
    """

    sequence: Sequence
    lane: _Lane
    arrived: int
    left: int = 0
    frontier: Frontier | None = None
    ticket: int = 0
    matched_in: int = -1
    is_parked: bool = False
    is_gone: bool = False

    @property
    def key(self) -> float:
        rank = self.sequence.spec.rank
        return self.left + AGE * self.arrived - RANK_TOKENS * rank


@dataclass(slots=True, eq=False)
class _Lane:
    """An account's waiting sequences, short ones apart. virtual: work done for its weight."""

    account: Account
    virtual: float = 0.0
    num_waiting: int = 0
    short: list[tuple[float, int, int, _Waiter]] = field(default_factory=list)
    long: list[tuple[float, int, int, _Waiter]] = field(default_factory=list)


class CacheAware:
    """See the module. short_tokens: up to which a sequence may pass, in its share of a step."""

    name = "cache_aware"
    tracks = True

    def __init__(self, cache: PrefixCache, short_tokens: int, slack_tokens: int) -> None:
        self._cache = cache
        self._short_tokens = short_tokens
        self._slack = slack_tokens
        self._plan = self._tickets = 0
        self._waiters: dict[int, _Waiter] = {}
        self._lanes: dict[bytes, _Lane] = {}
        self._at: dict[Frontier, dict[_Waiter, None]] = {}
        self._stale: dict[_Waiter, None] = {}
        self._flights: dict[Frontier, int] = {}
        self._frontier_of: dict[int, Frontier] = {}
        self._parked: dict[int, list[_Waiter]] = {}
        cache.on_grown = self._grown

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Sequence]:
        return (waiter.sequence for waiter in self._waiters.values())

    def add(self, sequence: Sequence, now: int) -> None:
        """Takes in a sequence, as if it had arrived when it first did."""
        if sequence.arrived is None:
            sequence.arrived = now
        lane = self._lane(sequence)
        if not lane.num_waiting:
            lane.virtual = max(lane.virtual, self._least_virtual())
        lane.num_waiting += 1
        waiter = _Waiter(sequence, lane, sequence.arrived)
        self._waiters[sequence.spec.id] = waiter
        self._match(waiter)
        self._push(waiter)

    def remove(self, sequence: Sequence) -> None:
        """Forgets a waiting sequence."""
        waiter = self._waiters.pop(sequence.spec.id)
        waiter.is_gone = True
        waiter.ticket = 0
        waiter.lane.num_waiting -= 1
        self._stand_at(waiter, None)
        self._stale.pop(waiter, None)

    def begin(self, now: int) -> None:  # noqa: ARG002
        """Matches some of those again under whom the cache grew."""
        self._plan += 1
        for waiter in list(islice(self._stale, REMATCHES)):
            del self._stale[waiter]
            self._match(waiter)
            # Whose prefill it waits for now, if for any, is seen when its turn comes.
            waiter.is_parked = False
            self._push(waiter)

    def head(self) -> Sequence | None:
        """Returns who is next, matched just now and waiting for no prefill."""
        return self._next(short_only=False)

    def short_head(self) -> Sequence | None:
        """Returns who is next among the short ones."""
        return self._next(short_only=True)

    def goes_before(self, one: Sequence, other: Sequence) -> bool:
        """Whether its key is no higher; the accounts' turns apart."""
        return self._waiters[one.spec.id].key <= self._waiters[other.spec.id].key

    def charge(self, sequence: Sequence, num_tokens: int) -> None:
        """Counts the work for the sequence's account."""
        lane = self._lane(sequence)
        lane.virtual += num_tokens / lane.account.weight

    def computes(self, sequence: Sequence, frontier: Frontier | None) -> None:
        """Sequences at that frontier wait for it; those that waited for the last one go on."""
        owner = sequence.spec.id
        last = self._frontier_of.pop(owner, None)
        if last is not None and self._flights.get(last) == owner:
            del self._flights[last]
        if frontier is not None:
            self._frontier_of[owner] = frontier
            self._flights.setdefault(frontier, owner)
            return
        for waiter in self._parked.pop(owner, ()):
            if waiter.is_parked and not waiter.is_gone:
                waiter.is_parked = False
                self._push(waiter)

    # ------------------------------------------------------------------ inside

    def _next(self, *, short_only: bool) -> Sequence | None:
        while True:
            waiter = self._best(short_only=short_only)
            if waiter is None:
                return None
            owner = None if waiter.frontier is None else self._flights.get(waiter.frontier)
            if owner is not None:
                # The prefill holds the page it stands behind, so the match is still true.
                waiter.is_parked = True
                waiter.ticket = 0
                self._parked.setdefault(owner, []).append(waiter)
            elif waiter.matched_in == self._plan:
                return waiter.sequence
            else:
                self._match(waiter)
                self._push(waiter)

    def _best(self, *, short_only: bool) -> _Waiter | None:
        """The least key among the heads of the lanes whose turn it is."""
        heads = []
        for lane in self._lanes.values():
            if lane.num_waiting:
                heads += [self._peek(lane.short)] if short_only else self._heads(lane)
        present = [head for head in heads if head is not None]
        if len(self._lanes) > 1:
            present = self._in_turn(present)
        return min(present, key=_key, default=None)

    def _heads(self, lane: _Lane) -> list[_Waiter | None]:
        return [self._peek(lane.short), self._peek(lane.long)]

    def _in_turn(self, heads: list[_Waiter]) -> list[_Waiter]:
        """Those whose account is not ahead of one of at least its rank by more than the slack."""
        least = float("inf")
        bounds: dict[int, float] = {}
        for head in sorted(heads, key=lambda one: -one.sequence.spec.rank):
            least = min(least, head.lane.virtual)
            bounds[head.sequence.spec.rank] = least + self._slack
        return [head for head in heads if head.lane.virtual <= bounds[head.sequence.spec.rank]]

    def _peek(self, heap: list[tuple[float, int, int, _Waiter]]) -> _Waiter | None:
        """The heap's head that counts; entries that don't leave it."""
        while heap:
            waiter = heap[0][3]
            if heap[0][2] == waiter.ticket:
                return waiter
            heapq.heappop(heap)
        return None

    def _push(self, waiter: _Waiter) -> None:
        self._tickets += 1
        waiter.ticket = self._tickets
        lane = waiter.lane
        heap = lane.short if waiter.left <= self._short_tokens else lane.long
        heapq.heappush(heap, (waiter.key, waiter.sequence.spec.id, waiter.ticket, waiter))
        if len(heap) > 4 * lane.num_waiting + 64:
            heap[:] = [entry for entry in heap if entry[2] == entry[3].ticket]
            heapq.heapify(heap)

    def _match(self, waiter: _Waiter) -> None:
        """Brings what is left and the frontier up to date."""
        sequence = waiter.sequence
        tokens = bytes(sequence.tokens[:-TOKEN_BYTES])
        num_pages, at = self._cache.match_pages(sequence.spec.scope, tokens)
        page_size = self._cache.pool.page_size
        waiter.left = sequence.num_tokens - num_pages * page_size
        waiter.matched_in = self._plan
        following = tokens[num_pages * page_size * TOKEN_BYTES :][: page_size * TOKEN_BYTES]
        whole = len(following) == page_size * TOKEN_BYTES
        self._stand_at(waiter, (at, following) if whole else None)

    def _stand_at(self, waiter: _Waiter, frontier: Frontier | None) -> None:
        if waiter.frontier is not None:
            others = self._at[waiter.frontier]
            del others[waiter]
            if not others:
                del self._at[waiter.frontier]
        waiter.frontier = frontier
        if frontier is not None:
            self._at.setdefault(frontier, {})[waiter] = None

    def _grown(self, before: int | Root, tokens: bytes) -> None:
        """A page came into the cache: who stood in front of it has less left."""
        for waiter in self._at.get((before, tokens), ()):
            self._stale[waiter] = None
            waiter.matched_in = -1

    def _lane(self, sequence: Sequence) -> _Lane:
        account = sequence.spec.scope.account
        lane = self._lanes.get(account.name)
        if lane is None:
            if len(self._lanes) > MAX_IDLE_LANES:
                self._forget_idle()
            lane = self._lanes[account.name] = _Lane(account, self._least_virtual())
        lane.account = account
        return lane

    def _least_virtual(self) -> float:
        """The place of the account that is furthest behind among those that wait, or of all."""
        waiting = [lane.virtual for lane in self._lanes.values() if lane.num_waiting]
        return min(waiting or [lane.virtual for lane in self._lanes.values()], default=0.0)

    def _forget_idle(self) -> None:
        """Forgets half of the idle accounts: those whose place is worth least."""
        idle = [name for name, lane in self._lanes.items() if not lane.num_waiting]
        idle.sort(key=lambda name: self._lanes[name].virtual)
        for name in idle[: len(idle) // 2]:
            del self._lanes[name]


def _key(waiter: _Waiter) -> tuple[float, int]:
    return waiter.key, waiter.sequence.spec.id
