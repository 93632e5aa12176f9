"""Which worker, and why: a static prefix's key against the rings and the fleet's load.

One ring per model. Rings follow the fleet in the background; meanwhile the old one serves, which
is right for the workers that left (they are skipped) and lacks only the newcomer. Without a ring
the least loaded worker is taken, and ties fall by the key, never by the name.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Set
from dataclasses import dataclass

from xxhash import xxh3_64_intdigest

from gateway.errors import NoWorker
from gateway.fleet.workers import Fleet, Worker
from gateway.routing.prefix import PrefixKey
from gateway.routing.ring import LoadBound, Ring, choose


class RouteReason(enum.Enum):
    """Why this worker."""

    PREFERRED = "preferred"
    BOUNDED_LOAD = "bounded_load"
    RETRY = "retry"
    LEAST_LOADED = "least_loaded"


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes."""

    worker: Worker
    reason: RouteReason


class Router:
    """Chooses by consistent hashing with bounded load."""

    def __init__(self, fleet: Fleet, bound: LoadBound, vnodes: int):
        self._fleet = fleet
        self._bound = bound
        self._vnodes = vnodes
        self._rings: dict[str, Ring] = {}

    def route(self, model: str, key: PrefixKey, avoid: Set[str] = frozenset()) -> Route:
        """The worker for a key; never one of `avoid`, which failed it. Raises NoWorker."""
        serving = self._fleet.serving(model)
        for name in avoid:
            serving.pop(name, None)
        if not serving:
            raise NoWorker(f"no worker for {model!r}, {len(avoid)} tried")
        in_flight = {name: worker.in_flight for name, worker in serving.items()}
        ring = self._rings.get(model)
        choice = choose(ring.preference(key), in_flight, self._bound) if ring else None
        if choice is None:
            name = min(in_flight, key=lambda name: (in_flight[name], _tie(key, name)))
            return Route(serving[name], RouteReason.LEAST_LOADED)
        worker = serving[choice.name]
        if avoid:
            return Route(worker, RouteReason.RETRY)
        if choice.passed_over:
            return Route(worker, RouteReason.BOUNDED_LOAD)
        return Route(worker, RouteReason.PREFERRED)

    async def follow_fleet(self) -> None:
        """Keep the rings up to date, for ever; each is built in a thread and swapped in whole."""
        while True:
            await self._fleet.changed.wait()
            self._fleet.changed.clear()
            await self.rebuild()

    async def rebuild(self) -> None:
        """Bring the rings of the models that changed up to the fleet."""
        names: dict[str, set[str]] = {}
        for worker in self._fleet.workers():
            names.setdefault(worker.info.model, set()).add(worker.name)
        for model in self._rings.keys() - names.keys():
            del self._rings[model]
        for model, members in names.items():
            ring = self._rings.get(model)
            if ring is None or ring.names != members:
                self._rings[model] = await asyncio.to_thread(Ring, members, self._vnodes)


def _tie(key: PrefixKey, name: str) -> int:
    """An order of the workers of its own for every key."""
    return xxh3_64_intdigest(key + name.encode())
