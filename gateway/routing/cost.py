"""What a prompt costs on a worker, and which of a few candidates takes it. Pure.

    cost = queued + work_weight x work + reuse_weight x (missing + crowd_tokens x crowd)

    queued    prompt tokens that the worker has still to compute for others
    work      tokens that it was lately assigned beyond the mean of the fleet
    missing   tokens of this prompt that it does not hold; those that many prompts begin with
              count less (`demand`)
    crowd     sequences that it has beyond its share (ring.LoadBound): they share every step

The reuse weight keeps a prompt where its beginning is cached although others are idle. With a
weight of 1, conversations move, are computed twice, drive one another out of the caches and miss
again. A worker with a crowd is not shut out: it only has to be worth more.

Where nobody holds much more than the others, the caches decide nothing. Then the ring names two
owners of the first boundary that nobody holds and the cheaper one takes it: all gateways name the
same two without talking.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A worker as a decision sees it. work: beyond the mean, at least 0; total_work: all of it.

    counted_tokens: of the missing ones, those that count (see `demand`).
    """

    name: str
    queued_tokens: int = 0
    missing_tokens: int = 0
    counted_tokens: int = 0
    crowd: float = 0.0
    work: float = 0.0
    total_work: float = 0.0
    is_stale: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """How it is weighed, in queued tokens. miss_share: of a prompt; less more is no advantage."""

    reuse_weight: float = 20.0
    crowd_tokens: float = 2048.0
    work_weight: float = 0.5
    miss_share: float = 0.1

    def cost(self, candidate: Candidate) -> float:
        """Of the prompt there."""
        load = self.load(candidate.queued_tokens, candidate.work, candidate.crowd)
        return load + self.floor(candidate.counted_tokens)

    def load(self, queued_tokens: int, work: float, crowd: float) -> float:
        """What any prompt costs on a worker, whatever is missing of it."""
        busy = queued_tokens + self.work_weight * work
        return busy + self.reuse_weight * self.crowd_tokens * crowd

    def floor(self, counted_tokens: int) -> float:
        """The least cost of any worker to which so many tokens are missing."""
        return self.reuse_weight * counted_tokens

    def is_miss(self, best_tokens: int, owner_tokens: int, prompt_tokens: int) -> bool:
        """Whether the best holder lacks so little less than a ring's owner that it's no matter."""
        return owner_tokens - best_tokens <= self.miss_share * prompt_tokens


def cheapest(candidates: Iterable[Candidate], scale: Scale) -> list[Candidate]:
    """The candidates, the least cost first; ties by all their work, never by name or place."""
    return sorted(candidates, key=lambda one: (scale.cost(one), one.total_work))


def of_owners(owners: list[Candidate], scale: Scale) -> list[Candidate]:
    """A ring's first owners of a boundary, the one that takes it first.

    The cheaper one; but the first one without a crowd, if what we know of either cache is old:
    then only the ring tells where the last such prompt went.
    """
    if any(owner.is_stale for owner in owners):
        return sorted(owners, key=lambda owner: owner.crowd > 0)
    return cheapest(owners, scale)
