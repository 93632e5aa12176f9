"""Usage is added up, written in batches, and never twice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from gateway.request import Usage
from gateway.store.interface import Counts, StoreAway, UsageRow, UsageStore
from gateway.store.memory import MemoryStore
from gateway.tenancy.usage import UsageLedger
from tests.gateway.store.conftest import connected
from tests.gateway.store.redis_server import RedisServer
from tests.gateway.tenancy.conftest import Seen

NOON = 1_769_860_800.0  # 2026-01-31T12:00:00Z
DAYS = ["2026-01-31", "2026-02-01"]


class Flaky:
    """Says some times that it could not: every other time it could."""

    def __init__(self, store: UsageStore, failures: int):
        self.store = store
        self.failures = failures

    async def add_usage(self, batch: str, rows: Sequence[UsageRow]) -> None:
        failing, self.failures = self.failures, max(0, self.failures - 1)
        if failing % 2 == 0:
            await self.store.add_usage(batch, rows)
        if failing:
            raise StoreAway("it or its reply was lost")

    async def usage(self, tenant: str, days: Sequence[str]) -> list[UsageRow]:
        return await self.store.usage(tenant, days)


def ledger_on(store: UsageStore, seen: Seen, now: list[float]) -> UsageLedger:
    names = (f"batch{number}" for number in count())
    return UsageLedger(store, seen.telemetry, lambda: now[0], lambda: next(names))


async def check_two_hours(store: UsageStore, seen: Seen) -> None:
    now = [NOON]
    ledger = ledger_on(Flaky(store, failures=3), seen, now)
    ledger.count("acme", Usage(100, 80, 10))
    ledger.count("acme", Usage(10, 0, 1))
    ledger.count("globex", Usage(5, 0, 5))
    for _ in range(3):
        with pytest.raises(StoreAway):
            await ledger.flush()
        ledger.count("acme", Usage(1, 0, 0))
    await ledger.flush()
    now[0] += 12 * 3600
    ledger.count("acme", Usage(7, 0, 0))
    await ledger.flush()
    rows = await store.usage("acme", DAYS)
    assert [row.counts for row in rows] == [Counts(5, 113, 80, 11), Counts(1, 7, 0, 0)]
    assert [row.hour.isoformat() for row in rows] == [
        "2026-01-31T12:00:00+00:00",
        "2026-02-01T00:00:00+00:00",
    ]
    assert [row.counts.prompt_tokens for row in await store.usage("globex", DAYS)] == [5]
    assert await store.usage("nobody", DAYS) == []


async def test_usage_is_kept_by_hour_and_counted_once(seen: Seen) -> None:
    await check_two_hours(MemoryStore(15.0, lambda: 0.0), seen)


async def test_usage_in_redis_is_kept_by_hour_and_counted_once(
    redis_server: RedisServer, seen: Seen
) -> None:
    async with connected(redis_server) as store:
        await check_two_hours(store, seen)
        assert redis_server.command("TTL", "test:usage:acme:2026-01-31") in (":172799", ":172800")
        ledger = ledger_on(store, seen, [NOON])
        for number in range(1200):
            ledger.count(f"tenant{number}", Usage(1, 0, 1))
        await ledger.flush()
        assert len(await store.usage("tenant1199", DAYS)) == 1


async def test_what_is_never_written_is_told_at_the_end(
    seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = ledger_on(Flaky(MemoryStore(15.0, lambda: 0.0), failures=9), seen, [NOON])
    ledger.count("acme", Usage(100, 0, 10))
    await ledger.close()
    assert "usage_lost rows=1 tokens=110" in caplog.text
