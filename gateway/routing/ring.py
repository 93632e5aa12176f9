"""Consistent hashing over stable worker names, with bounded load. Pure: no clock, no I/O.

A worker's place on the ring comes from its name alone, so few keys move when one comes or goes
(about 1/n). Building sorts vnodes x workers points: do it off the request path.

Bounded load: a worker with more in flight than max(floor, factor x mean) is passed over for the
next in the key's own order. The floor matters: at a low mean the bare factor throws the affinity
away (hit rate 0.305 with a floor of 16, 0.151 without, on a trace of conversations).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from uhashring import HashRing
from xxhash import xxh3_64_intdigest


@dataclass(frozen=True, slots=True)
class LoadBound:
    """How much more than its share a worker may have in flight."""

    floor: int = 16
    factor: float = 1.25

    def limit(self, in_flight: Collection[int]) -> float:
        """The most that a worker may have in flight to be taken."""
        mean = sum(in_flight) / len(in_flight) if in_flight else 0.0
        return max(float(self.floor), self.factor * mean)


@dataclass(frozen=True, slots=True)
class Choice:
    """A worker, and how many of the key's own order were passed over for their load."""

    name: str
    passed_over: int


class Ring:
    """The order in which each key prefers the workers. Never changes once built."""

    def __init__(self, names: Collection[str], vnodes: int = 160):
        self.names = frozenset(names)
        self._ring = HashRing(sorted(self.names), vnodes=vnodes, hash_fn=_point)

    def preference(self, key: bytes) -> Iterator[str]:
        """Every name once, the key's own worker first."""
        if not self.names:
            return
        for node in self._ring.range(key):
            yield node["nodename"]


def _point(value: str | bytes) -> int:
    """Where a worker's virtual node (text) or a key (bytes) stands on the ring."""
    return xxh3_64_intdigest(value.encode() if isinstance(value, str) else value)


def choose(
    preference: Iterable[str], in_flight: Mapping[str, int], bound: LoadBound
) -> Choice | None:
    """The first of the preference whose load is within bounds; None if there is none to choose.

    in_flight holds exactly the workers that may be taken.
    """
    limit = bound.limit(in_flight.values())
    passed_over = 0
    for name in preference:
        load = in_flight.get(name)
        if load is None:
            continue
        if load <= limit:
            return Choice(name, passed_over)
        passed_over += 1
    return None
