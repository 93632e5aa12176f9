"""A store of this gateway's own: limits hold for it alone, and all is gone with it.

Its entries are bounded: of more tenants than that, the ones not seen for longest are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from gateway.store.interface import (
    Counts,
    Limit,
    Limits,
    Settlement,
    Standing,
    Take,
    UsageRow,
    Window,
)

Key = TypeVar("Key")
Value = TypeVar("Value")

_MINUTE_S = 60.0
# A hair below the limit is the limit: levels are sums of fractions.
_ROUNDING = 1e-6
# When a denied request may find another one gone; nobody knows.
_CONCURRENCY_WAIT_S = 1.0


@dataclass(slots=True)
class _Meter:
    """What was taken and has not leaked out yet, at a time."""

    at: float
    requests: float = 0.0
    tokens: float = 0.0

    def leak(self, now: float, limits: Limits) -> None:
        """Bring it to `now`."""
        minutes = max(0.0, now - self.at) / _MINUTE_S
        self.at = now
        self.requests = max(
            0.0, self.requests - minutes * limits.requests if limits.requests else 0
        )
        self.tokens = max(0.0, self.tokens - minutes * limits.tokens if limits.tokens else 0)


@dataclass(slots=True)
class _Tenant:
    """What is known of one tenant. leases: until when an id counts as running."""

    meter: _Meter
    leases: dict[str, float] = field(default_factory=dict)


class MemoryStore:
    """Satisfies QuotaStore and UsageStore. clock: seconds that only go forward."""

    def __init__(self, lease_s: float, clock: Callable[[], float], max_entries: int = 100_000):
        self._lease_s = lease_s
        self._clock = clock
        self._max_entries = max_entries
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()
        self._records: OrderedDict[str, int] = OrderedDict()
        self._usage: OrderedDict[tuple[str, datetime], Counts] = OrderedDict()
        self._batches: OrderedDict[str, None] = OrderedDict()

    async def take(self, take: Take) -> Standing:
        """As QuotaStore."""
        now, limits = self._clock(), take.limits
        tenant = self._tenant(take.tenant, now)
        meter = tenant.meter
        meter.leak(now, limits)
        denied_by, wait_s = None, 0.0
        if take.id not in self._records:
            denied_by, wait_s = _denial(tenant, take, now)
            if denied_by is None:
                self._remember(self._records, take.id, take.tokens)
                if limits.concurrency is not None:
                    tenant.leases[take.id] = now + self._lease_s
                meter.requests += 1 if limits.requests else 0
                meter.tokens += take.tokens if limits.tokens else 0
        return Standing(
            requests=_window(limits.requests, meter.requests),
            tokens=_window(limits.tokens, meter.tokens),
            denied_by=denied_by,
            retry_after_s=wait_s,
        )

    async def settle(self, settlements: Sequence[Settlement]) -> None:
        """As QuotaStore."""
        now = self._clock()
        for settlement in settlements:
            tenant = self._tenants.get(settlement.tenant)
            taken = self._records.pop(settlement.id, None)
            if tenant is None:
                continue
            tenant.leases.pop(settlement.id, None)
            if taken is not None and settlement.limits.tokens:
                meter = tenant.meter
                meter.leak(now, settlement.limits)
                meter.tokens = max(0.0, meter.tokens + settlement.tokens - taken)

    async def renew(self, held: Mapping[str, Sequence[str]]) -> None:
        """As QuotaStore."""
        now = self._clock()
        for tenant_id, ids in held.items():
            leases = self._tenant(tenant_id, now).leases
            leases.update(dict.fromkeys(ids, now + self._lease_s))

    async def add_usage(self, batch: str, rows: Sequence[UsageRow]) -> None:
        """As UsageStore."""
        if batch in self._batches:
            return
        self._remember(self._batches, batch, None)
        for row in rows:
            key = row.tenant, row.hour
            self._remember(self._usage, key, self._usage.get(key, Counts()) + row.counts)

    async def usage(self, tenant: str, days: Sequence[str]) -> list[UsageRow]:
        """As UsageStore."""
        rows = [
            UsageRow(tenant, hour, counts)
            for (whose, hour), counts in self._usage.items()
            if whose == tenant and hour.strftime("%Y-%m-%d") in days
        ]
        return sorted(rows, key=lambda row: row.hour)

    def _tenant(self, tenant_id: str, now: float) -> _Tenant:
        tenant = self._tenants.get(tenant_id)
        if tenant is None:
            tenant = _Tenant(_Meter(now))
        self._remember(self._tenants, tenant_id, tenant)
        return tenant

    def _remember(self, kept: OrderedDict[Key, Value], key: Key, value: Value) -> None:
        kept[key] = value
        kept.move_to_end(key)
        if len(kept) > self._max_entries:
            kept.popitem(last=False)


def _denial(tenant: _Tenant, take: Take, now: float) -> tuple[Limit | None, float]:
    """Which limit denies, and for how long: of the rates, the one that takes longer."""
    limits, meter = take.limits, tenant.meter
    waits = []
    for limit, per_minute, wanted in (
        (Limit.REQUESTS, limits.requests, meter.requests + 1),
        (Limit.TOKENS, limits.tokens, meter.tokens + take.tokens),
    ):
        if per_minute is not None and wanted > per_minute + _ROUNDING:
            waits.append((limit, (wanted - per_minute) * _MINUTE_S / per_minute))
    if waits:
        return max(waits, key=lambda wait: wait[1])
    if limits.concurrency is not None and len(tenant.leases) >= limits.concurrency:
        tenant.leases = {id_: ends for id_, ends in tenant.leases.items() if ends > now}
        if len(tenant.leases) >= limits.concurrency:
            return Limit.CONCURRENCY, _CONCURRENCY_WAIT_S
    return None, 0.0


def _window(per_minute: int | None, level: float) -> Window | None:
    if per_minute is None:
        return None
    remaining = max(0, int(per_minute - level + _ROUNDING))
    return Window(remaining, level * _MINUTE_S / per_minute)
