"""The tenancy's part of the wiring: configuration -> store, tenants, quotas, usage."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from gateway.background import Work, running
from gateway.config import GatewayConfig
from gateway.store.failover import Failover
from gateway.store.interface import QuotaStore, UsageStore
from gateway.store.lane import Lane
from gateway.store.memory import MemoryStore
from gateway.store.redis import RedisStore, Retention
from gateway.telemetry.log import EventLog
from gateway.telemetry.tenancy import TenancyTelemetry
from gateway.tenancy.directory import Directory
from gateway.tenancy.file_source import FileSource
from gateway.tenancy.quota import Quotas
from gateway.tenancy.redis_source import RedisSource
from gateway.tenancy.sources import WritableSource
from gateway.tenancy.tenants import Roster, Tenants
from gateway.tenancy.usage import UsageLedger
from gateway.tenancy.watch import Watch

# What is large, tenants or usage, may take this many times a request's call.
_BULK_PATIENCE = 10
# A reservation outlives its request's longest time, and waiting in the queue before it.
_TAKEN_MARGIN_S = 600.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Clocks and chance. clock: seconds that only go forward; wall_clock: seconds since 1970."""

    registry: CollectorRegistry
    log: EventLog
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    make_id: Callable[[], str] = lambda: secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class Tenancy:
    """What the rest of the gateway uses."""

    tenants: Tenants
    quotas: Quotas
    directory: Directory
    watch: Watch
    ledger: UsageLedger
    redis: RedisStore | None
    works: tuple[Work, ...]
    log: EventLog

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Tenants were looked for once. What works beside requests does; in the end all is written.

        Redis that is away delays this by some calls, and keeps nobody from serving.
        """
        await self.watch.look()
        async with running(self.works, self._close, self.log):
            yield

    async def _close(self) -> None:
        await self.quotas.close()
        await self.ledger.close()
        if self.redis is not None:
            await self.redis.aclose()


def build_tenancy(config: GatewayConfig, around: Surroundings) -> Tenancy:
    """Every object of the tenancy, joined."""
    telemetry = TenancyTelemetry(around.registry, around.log)
    memory = MemoryStore(config.quota.lease_s, around.clock)
    redis = _redis(config, around) if config.redis.url else None
    works: list[Work] = []
    quota_store: QuotaStore = memory
    usage_store: UsageStore = memory
    if redis is not None:
        failover = Failover(redis, memory, telemetry, config.redis.probe_s)
        quota_store, usage_store = failover, redis
        works.append(failover.run)
    sources = _sources(config, redis, telemetry)
    tenants = Tenants(Roster(), around.wall_clock)
    watch = Watch(config.tenants, sources, tenants, telemetry)
    ledger = UsageLedger(usage_store, telemetry, around.wall_clock, around.make_id)
    quotas = Quotas(quota_store, ledger, telemetry, config.quota, around.make_id(), around.clock)
    # The last source is the one that gateways share most widely.
    directory = Directory(watch, sources[-1] if sources else None, usage_store, around.wall_clock)
    works += [watch.run, ledger.run, quotas.run]
    return Tenancy(tenants, quotas, directory, watch, ledger, redis, tuple(works), around.log)


def _redis(config: GatewayConfig, around: Surroundings) -> RedisStore:
    settings = config.redis
    assert settings.url is not None, "there is one"
    retention = Retention(
        lease_s=config.quota.lease_s,
        taken_s=config.request_timeout_s + _TAKEN_MARGIN_S,
        usage_days=settings.usage_days,
    )
    return RedisStore(
        Lane(settings.url, settings.timeout_s),
        Lane(settings.url, settings.timeout_s * _BULK_PATIENCE),
        settings.prefix,
        retention,
        around.make_id(),
    )


def _sources(
    config: GatewayConfig, redis: RedisStore | None, telemetry: TenancyTelemetry
) -> list[WritableSource]:
    """The strongest first."""
    sources: list[WritableSource] = []
    if config.tenants_file is not None:
        may_be_missing = config.admin.port is not None
        sources.append(FileSource(Path(config.tenants_file), may_be_missing))
    if redis is not None and config.redis.tenants:
        sources.append(RedisSource(redis, telemetry))
    return sources
