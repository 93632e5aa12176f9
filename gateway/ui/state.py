"""All that the page shows. Read at most once a second, however many look.

What takes milliseconds, the tenants' sums and the trees of prefixes, is counted in a thread, every
five seconds and only while somebody looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from gateway.doctor.recent import Recent
from gateway.errors import NotFound
from gateway.fleet.workers import Fleet
from gateway.telemetry.metrics import Telemetry
from gateway.ui.fleet import Crew, WorkerRow
from gateway.ui.history import Curves, History
from gateway.ui.misses import Misses, misses
from gateway.ui.prefixes import PrefixTree, prefix_trees
from gateway.ui.requests import RequestRow, request_rows, request_view
from gateway.ui.tenants import TenantTable, tenant_table

FRESH_S = 1.0
COUNTED_S = 5.0


class Page(Struct, frozen=True):
    """What is shown. up_s: since the gateway began."""

    gateway: str
    up_s: float
    workers: list[WorkerRow]
    curves: Curves
    prefixes: list[PrefixTree]
    tenants: TenantTable
    misses: Misses
    requests: list[RequestRow]


@dataclass(frozen=True, slots=True)
class Sources:
    """What the state is read from. name: the gateway's. waiting: requests by tenant and model."""

    name: str
    fleet: Fleet
    crew: Crew
    history: History
    telemetry: Telemetry
    recent: Recent | None
    waiting: Callable[[], Mapping[tuple[str, str], int]]


@dataclass(frozen=True, slots=True)
class _Kept:
    """The page as JSON, and when it was read."""

    at: float
    body: bytes


@dataclass(frozen=True, slots=True)
class _Counted:
    """What a thread counted, and when it was asked to."""

    at: float
    tenants: TenantTable
    trees: list[PrefixTree]


class State:
    """Answers the page's questions. Lives on the gateway's loop."""

    def __init__(self, sources: Sources):
        self._from = sources
        self._began = sources.telemetry.clock()
        self._kept: _Kept | None = None
        self._counted: _Counted | None = None
        self._reading = asyncio.Lock()

    async def page(self) -> bytes:
        """All that is shown, as JSON; at most a second old."""
        async with self._reading:
            now = self._from.telemetry.clock()
            if self._kept is None or now - self._kept.at >= FRESH_S:
                counted = await self._count(now)
                self._kept = _Kept(now, msgspec.json.encode(self._read(counted, now)))
            return self._kept.body

    def request(self, request_id: str) -> bytes:
        """One request's life, as JSON. Raises NotFound."""
        telemetry = self._from.telemetry
        life = telemetry.lives.find(request_id)
        if life is None:
            raise NotFound("This request is not among the last ones that ended here.")
        return msgspec.json.encode(request_view(life, telemetry.clock()))

    async def _count(self, now: float) -> _Counted:
        """What takes a thread, at most so old."""
        if self._counted is None or now - self._counted.at >= COUNTED_S:
            source, telemetry = self._from, self._from.telemetry
            lives, waiting = list(telemetry.lives), dict(source.waiting())
            serving = {model: source.fleet.serving(model) for model in source.fleet.models()}

            def count() -> _Counted:
                trees = prefix_trees(lives, lambda model: serving.get(model, {}))
                return _Counted(now, tenant_table(telemetry, waiting), trees)

            self._counted = await asyncio.to_thread(count)
        return self._counted

    def _read(self, counted: _Counted, now: float) -> Page:
        source = self._from
        lives = source.telemetry.lives
        return Page(
            gateway=source.name,
            up_s=now - self._began,
            workers=source.crew.rows(),
            curves=source.history.curves(),
            prefixes=counted.trees,
            tenants=counted.tenants,
            misses=misses(source.recent, source.telemetry, now),
            requests=request_rows(lives, now),
        )
