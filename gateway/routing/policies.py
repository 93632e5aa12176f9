"""By which rule a worker is chosen: one function per policy, `POLICIES` names them.

Each looks at one situation and returns a decision, or None where nobody among the seats is left.
`dedicated` and `shuffle_shard` narrow the seats and then go by cost.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from xxhash import xxh3_128_digest

from gateway.fleet.workers import Worker
from gateway.routing.cost import Candidate, Scale, cheapest, of_owners
from gateway.routing.roster import Roster, num_sequences
from gateway.routing.route import Decision, Reason, Want
from gateway.tenant_config import PolicyConfig

# Of more workers than this, so many are drawn and weighed.
_MANY = 64


class Loads:
    """How loaded workers are, as of one decision."""

    def __init__(self, roster: Roster, scale: Scale, now: float):
        self.work = roster.work.at(now)
        self._roster = roster
        self._scale = scale
        self._limit: float | None = None

    def crowd(self, worker: Worker) -> float:
        """Sequences that it has beyond its share; the mean is taken only where it matters."""
        count = num_sequences(worker)
        if count <= self._roster.bound.floor:
            return 0.0
        if self._limit is None:
            self._limit = self._roster.bound.limit(self._roster.sequences())
        return max(count - self._limit, 0.0)

    def is_over(self, worker: Worker) -> bool:
        """Whether it has more than its share: sequences now, or work of late."""
        if self.crowd(worker):
            return True
        work = self.work.total(worker.info.name)
        return self._roster.bound.is_overworked(work, self.work.mean)

    def weigh(self, worker: Worker) -> tuple[float, float]:
        """What any prompt costs there beside what is missing of it; then all its work."""
        name = worker.info.name
        excess, crowd = self.work.excess(name), self.crowd(worker)
        load = self._scale.load(worker.queued_tokens, excess, crowd)
        return load, self.work.total(name)


@dataclass(frozen=True, slots=True)
class Situation:
    """What one decision goes by. among: the seats that may be taken.

    share_of: how much it counts to lack what ends at a boundary. may_start: whether a worker may
    have what no cache decides: the young ones get only a part. deepest: the boundaries that
    anybody holds; share: of them.
    """

    want: Want
    policy: PolicyConfig
    roster: Roster
    among: int
    scale: Scale
    loads: Loads
    tokens_per_byte: float
    max_replicas: int
    share_of: Callable[[bytes], float]
    may_start: Callable[[Worker], bool]
    chance: random.Random
    deepest: int = 0
    share: float = 1.0

    @property
    def digests(self) -> tuple[bytes, ...]:
        """The prompt's boundaries."""
        return self.want.chain.digests

    def missing(self, depth: int) -> int:
        """Tokens behind the first `depth` boundaries, as far as bytes tell."""
        return int(self.want.chain.bytes_after(depth) * self.tokens_per_byte)

    def counted(self, depth: int) -> int:
        """The same; of what others hold, only the share that counts."""
        least = self.missing(self.deepest)
        return least + int((self.missing(depth) - least) * self.share)

    def candidate(self, worker: Worker, depth: int) -> Candidate:
        """A worker that holds so much of the prompt."""
        name, work = worker.info.name, self.loads.work
        return Candidate(
            name=name,
            queued_tokens=worker.queued_tokens,
            missing_tokens=self.missing(depth),
            counted_tokens=self.counted(depth),
            crowd=self.loads.crowd(worker),
            work=work.excess(name),
            total_work=work.total(name),
            is_stale=worker.view.is_stale,
        )

    def depth_of(self, worker: Worker, limit: int) -> int:
        """How many of the first `limit` boundaries a worker holds."""
        index, bit = self.roster.index, self.roster.bit(worker.name)
        for depth in range(limit, 0, -1):
            if index.holders(self.digests[depth - 1]) & bit:
                return depth
        return 0

    def within(self, seats: int) -> Situation:
        """The same, with fewer seats."""
        return replace(self, among=self.among & seats)


Policy = Callable[[Situation], Decision | None]


def by_cost(at: Situation) -> Decision | None:
    """The least of queued and missing tokens; where caches decide nothing, one of two owners."""
    if not at.among:
        return None
    groups = at.roster.index.deepest(at.digests, at.among)
    deepest, holders = next(groups)
    if deepest:
        at = replace(at, deepest=deepest, share=at.share_of(at.digests[deepest - 1]))
    decision = None
    if deepest < len(at.digests) or not deepest:
        decision = _of_two_owners(at)
    return decision or _of_holders(at, holders, groups)


def _of_two_owners(at: Situation) -> Decision | None:
    """One of two owners of the first boundary that nobody holds; None: somebody holds much more."""
    deepest, digests = at.deepest, at.digests
    key = digests[deepest] if deepest < len(digests) else at.want.chain.key
    owners = {}
    for worker in islice(filter(at.may_start, at.roster.preference(key, _replicas(at))), 2):
        depth = at.depth_of(worker, deepest)
        owners[worker.name] = (worker, depth)
        if not at.scale.is_miss(at.missing(deepest), at.counted(depth), at.missing(0)):
            return None
    ranked = of_owners([at.candidate(*owner) for owner in owners.values()], at.scale)
    if not ranked:
        return None
    worker, depth = owners[ranked[0].name]
    reason = Reason.ONE_CHOICE if any(one.is_stale for one in ranked) else Reason.MISS
    return Decision(worker, reason, depth, deepest, tuple(ranked[1:]))


def _of_holders(at: Situation, holders: int, groups: Iterator[tuple[int, int]]) -> Decision | None:
    """The cheapest of all; those who hold less are looked at only where they could be cheaper."""
    allowed = _replicas(at)
    found: dict[str, tuple[Worker, int]] = {}
    ranked: list[Candidate] = []
    depth = at.deepest
    while True:
        if ranked and at.scale.floor(at.counted(depth)) >= at.scale.cost(ranked[0]):
            break
        worker = _least(at, holders & allowed, depth < at.deepest)
        if worker is not None:
            found[worker.name] = (worker, depth)
            ranked = cheapest((*ranked, at.candidate(worker, depth)), at.scale)
        step = next(groups, None)
        if step is None:
            break
        depth, holders = step
    if not ranked:
        return least_loaded(at)
    worker, depth = found[ranked[0].name]
    reason = Reason.HIT if depth == at.deepest else Reason.DIVERTED
    return Decision(worker, reason, depth, at.deepest, tuple(ranked[1:]))


def _least(at: Situation, seats: int, is_start: bool) -> Worker | None:
    """The least loaded; where it would start anew, one that may."""
    workers: Iterable[Worker] = _some(at, seats)
    if is_start:
        workers = filter(at.may_start, workers)
    return min(workers, key=at.loads.weigh, default=None)


def _some(at: Situation, seats: int) -> list[Worker]:
    """The workers that sit there; of very many, as many as are worth being weighed.

    The least loaded of 64 drawn is among the least loaded 4 % of all but once in fourteen times,
    and gateways that see the same loads don't all draw the same one.
    """
    workers = at.roster.index.owners(seats)
    return workers if len(workers) <= _MANY else at.chance.sample(workers, _MANY)


def _replicas(at: Situation) -> int:
    """The seats that may begin to hold the static prefix: all, or those that do, if enough do."""
    if not at.max_replicas or not at.digests:
        return at.among
    holders = at.roster.index.holders(at.want.chain.static_digest)
    enough = holders.bit_count() >= at.max_replicas
    return (holders & at.among) or at.among if enough else at.among


def consistent(at: Situation) -> Decision | None:
    """The static prefix's owner on the ring; while that is over its share, another one.

    Which one goes by what stands behind the static prefix: conversations that share it spread, and
    the turns of one stay together.
    """
    chain = at.want.chain
    owner = next(at.roster.preference(chain.key, at.among), None)
    if owner is None:
        return None
    if not at.loads.is_over(owner):
        return Decision(owner, Reason.OWNER, at.depth_of(owner, len(at.digests)))
    for worker in at.roster.preference(chain.next_digest or chain.key, at.among):
        if not at.loads.is_over(worker):
            return Decision(worker, Reason.PASSED_OVER, at.depth_of(worker, len(at.digests)))
    return least_loaded(at)


def by_session(at: Situation) -> Decision | None:
    """The session's owner on the ring; a request without a session goes by its static prefix."""
    session = at.want.session
    if session is None:
        return consistent(at)
    named = f"{len(at.want.tenant)}:{at.want.tenant}{session}"
    owner = next(at.roster.preference(xxh3_128_digest(named.encode()), at.among), None)
    if owner is None:
        return None
    return Decision(owner, Reason.OWNER, at.depth_of(owner, len(at.digests)))


def least_loaded(at: Situation) -> Decision | None:
    """The fewest tokens queued, then sequences; ties by work."""

    def load(worker: Worker) -> tuple[float, int, float]:
        total_work = at.loads.work.total(worker.info.name)
        return worker.queued_tokens, num_sequences(worker), total_work

    worker = min(_some(at, at.among), key=load, default=None)
    if worker is None:
        return None
    return Decision(worker, Reason.LEAST_LOADED, at.depth_of(worker, len(at.digests)))


def round_robin(at: Situation) -> Decision | None:
    """One after the other."""
    worker = at.roster.in_turn(at.among)
    if worker is None:
        return None
    return Decision(worker, Reason.IN_TURN, at.depth_of(worker, len(at.digests)))


def dedicated(at: Situation) -> Decision | None:
    """By cost, among the named workers."""
    return by_cost(at.within(at.roster.named(at.policy.workers)))


def shuffle_shard(at: Situation) -> Decision | None:
    """By cost, among the tenant's own few: the first ones of its order on the ring."""
    key = xxh3_128_digest(at.want.tenant.encode())
    shard = at.roster.owners(key, at.roster.index.live, at.policy.shard_size)
    return by_cost(at.within(at.roster.named(worker.name for worker in shard)))


POLICIES: dict[str, Policy] = {
    "cost": by_cost,
    "consistent": consistent,
    "session": by_session,
    "least_loaded": least_loaded,
    "round_robin": round_robin,
    "dedicated": dedicated,
    "shuffle_shard": shuffle_shard,
}
