"""Redis while it answers, this gateway's memory while it does not.

    serving ── a call fails ──▶ degraded: memory at once, no call waits; a probe every probe_s
       ▲                            │
       └──── a probe passes ────────┘

While degraded, each gateway enforces the whole limit by itself, with nothing counted at first. What
is settled goes to both: each knows what it took, and nothing of the other's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from gateway.store.interface import QuotaStore, Settlement, Standing, StoreAway, Take


class SharedStore(QuotaStore, Protocol):
    """A store that may be away; its operations raise StoreAway then."""

    async def probe(self) -> None:
        """It can be used. Raises StoreAway."""
        ...


class Notices(Protocol):
    """Who is told of a change."""

    def store_degraded(self, reason: str) -> None:
        """Memory serves from now on."""
        ...

    def store_restored(self) -> None:
        """The shared store serves again."""
        ...


class Failover:
    """Satisfies QuotaStore and never raises StoreAway. `run` must run beside it."""

    def __init__(self, shared: SharedStore, local: QuotaStore, notices: Notices, probe_s: float):
        self._shared = shared
        self._local = local
        self._notices = notices
        self._probe_s = probe_s
        self._degraded = asyncio.Event()

    @property
    def degraded(self) -> bool:
        """Whether memory serves."""
        return self._degraded.is_set()

    async def run(self) -> None:
        """Probe the shared store at the start and while it is away."""
        while True:
            try:
                await self._shared.probe()
            except StoreAway as away:
                self._degrade(away)
                await asyncio.sleep(self._probe_s)
            else:
                if self.degraded:
                    self._degraded.clear()
                    self._notices.store_restored()
                await self._degraded.wait()

    async def take(self, take: Take) -> Standing:
        """As QuotaStore."""
        if not self.degraded:
            try:
                return await self._shared.take(take)
            except StoreAway as away:
                self._degrade(away)
        return await self._local.take(take)

    async def settle(self, settlements: Sequence[Settlement]) -> None:
        """As QuotaStore. What the shared store misses leaks out there, and its leases expire."""
        await self._local.settle(settlements)
        if not self.degraded:
            try:
                await self._shared.settle(settlements)
            except StoreAway as away:
                self._degrade(away)

    async def renew(self, held: Mapping[str, Sequence[str]]) -> None:
        """As QuotaStore: in both, so that what runs is counted after a change as well."""
        await self._local.renew(held)
        if not self.degraded:
            try:
                await self._shared.renew(held)
            except StoreAway as away:
                self._degrade(away)

    def _degrade(self, away: StoreAway) -> None:
        if not self.degraded:
            self._degraded.set()
            self._notices.store_degraded(str(away))
