"""The store that gateways share. Every call is one round trip; its scripts see Redis's own clock.

    PREFIX:quota:TENANT         hash     what was taken and has not leaked out, and when
    PREFIX:running:TENANT       sorted   ids of requests, by the end of their lease
    PREFIX:taken:ID             string   tokens that a live request has taken
    PREFIX:usage:TENANT:DAY     hash     HOUR.requests, HOUR.prompt, HOUR.cached, HOUR.completion
    PREFIX:batch:ID             string   usage that was added already
    PREFIX:workers              sorted   NAME=HOST:PORT, by the end of its lease; workers write it
    PREFIX:tenants              hash     records, JSON by id
    PREFIX:tenants:version      string   EPOCH:COUNT; another one with every change, and another
                                         epoch wherever Redis began with nothing

Redis 5 or newer, one primary: a script's keys need not lie in one slot of a cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gateway.store.interface import (
    Counts,
    Limit,
    Settlement,
    Standing,
    Take,
    TenantTable,
    UsageRow,
    Window,
)
from gateway.store.lane import Command, Lane, Reply, Script

_DENIALS = {1: Limit.REQUESTS, 2: Limit.TOKENS, 3: Limit.CONCURRENCY}
_FIELDS = ("requests", "prompt", "cached", "completion")
_BATCH_MARK_S = 3600
# Ids or rows of one call: Lua unpacks no more than some thousands, and others want their turn.
_PIECE = 500


@dataclass(frozen=True, slots=True)
class Retention:
    """How long things are kept. taken_s: at least as long as a request may take."""

    lease_s: float
    taken_s: float
    usage_days: int


class RedisStore:
    """Satisfies QuotaStore, UsageStore, TenantStore, WorkerStore; every method may raise StoreAway.

    bulk: a lane of its own for what is large, so that no request waits behind it. epoch: a random
    word; versions begin with it and the time where this store writes the first tenant.
    """

    def __init__(self, lane: Lane, bulk: Lane, prefix: str, retention: Retention, epoch: str):
        self._lane = lane
        self._bulk = bulk
        self._prefix = prefix
        self._retention = retention
        self._epoch = epoch
        self._lease_us = int(retention.lease_s * 1e6)
        self._take = Script("take")
        self._settle = Script("settle")
        self._renew = Script("renew")
        self._usage = Script("usage")
        self._read_tenants = Script("read_tenants")
        self._write_tenant = Script("write_tenant")
        self._workers = Script("workers")

    async def probe(self) -> None:
        """Redis answers and takes writes. Raises StoreAway."""
        await self._lane.ask(Command(("SET", f"{self._prefix}:probe", "1", "PX", 10_000)))

    async def aclose(self) -> None:
        """The connections are closed."""
        await self._lane.aclose()
        await self._bulk.aclose()

    async def take(self, take: Take) -> Standing:
        """As QuotaStore."""
        limits = take.limits
        arguments = (
            take.id,
            take.tokens,
            limits.requests or 0,
            limits.tokens or 0,
            limits.concurrency or 0,
            self._lease_us,
            int(self._retention.taken_s) + 1,
        )
        reply = await self._lane.ask(self._take.command(self._keys(take), arguments))
        denied, wait_ms, requests, requests_reset, tokens, tokens_reset = map(int, reply.split())
        return Standing(
            requests=_window(limits.requests, requests, requests_reset),
            tokens=_window(limits.tokens, tokens, tokens_reset),
            denied_by=_DENIALS.get(denied),
            retry_after_s=wait_ms / 1000,
        )

    async def settle(self, settlements: Sequence[Settlement]) -> None:
        """As QuotaStore."""
        await self._all(self._lane, [self._settling(settlement) for settlement in settlements])

    async def renew(self, held: Mapping[str, Sequence[str]]) -> None:
        """As QuotaStore."""
        commands = [
            self._renew.command((self._running(tenant),), (self._lease_us, *piece))
            for tenant, ids in held.items()
            for piece in _pieces(ids)
        ]
        await self._all(self._lane, commands)

    async def add_usage(self, batch: str, rows: Sequence[UsageRow]) -> None:
        """As UsageStore."""
        commands = [
            self._adding(f"{batch}:{number}", piece) for number, piece in enumerate(_pieces(rows))
        ]
        await self._all(self._bulk, commands)

    async def usage(self, tenant: str, days: Sequence[str]) -> list[UsageRow]:
        """As UsageStore."""
        commands = [Command(("HGETALL", self._day(tenant, day))) for day in sorted(days)]
        replies = await self._all(self._bulk, commands)
        return [
            row
            for day, reply in zip(sorted(days), replies, strict=True)
            for row in _rows(tenant, day, reply)
        ]

    async def tenants(self, known: str | None) -> TenantTable | None:
        """As TenantStore; an empty version where none was ever written, or all was lost."""
        command = self._read_tenants.command(self._tenants_keys(), (known or "",))
        reply = await self._bulk.ask(command)
        if reply is None:
            return None
        version, *rest = reply
        records = zip(rest[::2], rest[1::2], strict=True)
        return TenantTable(
            version.decode(), {key.decode(errors="replace"): record for key, record in records}
        )

    async def write_tenant(self, tenant: str, before: bytes | None, after: bytes | None) -> bool:
        """As TenantStore."""
        arguments = (tenant, before or b"", after or b"", self._epoch)
        reply = await self._bulk.ask(self._write_tenant.command(self._tenants_keys(), arguments))
        return bool(reply)

    async def workers(self) -> list[str]:
        """As WorkerStore."""
        reply = await self._bulk.ask(self._workers.command((f"{self._prefix}:workers",), ()))
        return [member.decode(errors="replace") for member in reply]

    async def _all(self, lane: Lane, commands: Sequence[Command]) -> list[Reply]:
        """The replies to all; asked in one piece. Raises the first StoreAway."""
        return await asyncio.gather(*(lane.ask(command) for command in commands))

    def _settling(self, settlement: Settlement) -> Command:
        limits = settlement.limits
        arguments = (
            settlement.id,
            settlement.tokens,
            limits.requests or 0,
            limits.tokens or 0,
        )
        return self._settle.command(self._keys(settlement), arguments)

    def _adding(self, batch: str, rows: Sequence[UsageRow]) -> Command:
        keys = [f"{self._prefix}:batch:{batch}"]
        arguments: list[str | int] = [_BATCH_MARK_S, self._retention.usage_days * 86_400]
        for row in rows:
            counts = row.counts
            keys.append(self._day(row.tenant, row.hour.strftime("%Y-%m-%d")))
            arguments += [
                f"{row.hour.hour:02d}",
                counts.requests,
                counts.prompt_tokens,
                counts.cached_tokens,
                counts.completion_tokens,
            ]
        return self._usage.command(keys, arguments)

    def _keys(self, about: Take | Settlement) -> tuple[str, str, str]:
        meter = f"{self._prefix}:quota:{about.tenant}"
        return meter, self._running(about.tenant), f"{self._prefix}:taken:{about.id}"

    def _running(self, tenant: str) -> str:
        return f"{self._prefix}:running:{tenant}"

    def _day(self, tenant: str, day: str) -> str:
        return f"{self._prefix}:usage:{tenant}:{day}"

    def _tenants_keys(self) -> tuple[str, str]:
        return f"{self._prefix}:tenants", f"{self._prefix}:tenants:version"


def _window(per_minute: int | None, remaining: int, reset_ms: int) -> Window | None:
    return None if per_minute is None else Window(remaining, reset_ms / 1000)


def _pieces(items: Sequence[Reply]) -> list[Sequence[Reply]]:
    return [items[start : start + _PIECE] for start in range(0, len(items), _PIECE)]


def _rows(tenant: str, day: str, reply: Reply) -> list[UsageRow]:
    """The hours of one day's hash."""
    hours: dict[str, dict[str, int]] = {}
    for key, value in zip(reply[::2], reply[1::2], strict=True):
        hour, _, name = key.decode().partition(".")
        hours.setdefault(hour, {})[name] = int(value)
    midnight = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
    return [
        UsageRow(
            tenant,
            midnight + timedelta(hours=int(hour)),
            Counts(*(counts.get(name, 0) for name in _FIELDS)),
        )
        for hour, counts in sorted(hours.items())
    ]
