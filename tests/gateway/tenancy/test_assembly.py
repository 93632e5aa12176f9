"""The whole tenancy, as the gateway builds it."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from gateway.config import GatewayConfig
from gateway.errors import RateLimited, TenantsUnknown, Unauthenticated
from gateway.request import Ask, Decoding, Sampling, Stopping, TextPrompt, Usage
from gateway.telemetry.log import EventLog
from gateway.tenancy.assembly import Surroundings, Tenancy, build_tenancy
from gateway.tenant_config import AdminConfig, QuotaConfig, RedisConfig, TenantConfig, TenantQuota
from tests.gateway.store.redis_server import RedisServer

ASK = Ask("", "", b"", TextPrompt("hello"), Decoding(Sampling(), Stopping(max_tokens=9)))


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


ACME = TenantConfig("acme", (digest("a"),), quota=TenantQuota(requests_per_minute=2))
GLOBEX = TenantConfig("globex", (digest("g"),))


def settings(server: RedisServer | None, **others: object) -> GatewayConfig:
    url = server.url if server else None
    redis = RedisConfig(url=url, timeout_s=0.5, probe_s=0.05)
    return GatewayConfig(redis=redis, quota=QuotaConfig(lease_s=1.0), **others)  # type: ignore[arg-type]


@asynccontextmanager
async def serving(
    config: GatewayConfig, registry: CollectorRegistry | None = None
) -> AsyncIterator[Tenancy]:
    log = EventLog(logging.getLogger("gateway"))
    around = Surroundings(registry or CollectorRegistry(), log)
    tenancy = build_tenancy(config, around)
    async with tenancy.serving():
        yield tenancy


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - any state, not only ours
            await asyncio.sleep(0.01)


def knows(tenancy: Tenancy, key: str) -> bool:
    try:
        tenancy.tenants.of(f"Bearer {key}")
    except (Unauthenticated, TenantsUnknown):
        return False
    return True


async def test_without_settings_everybody_may_and_nothing_is_limited() -> None:
    async with serving(GatewayConfig()) as tenancy:
        tenant = tenancy.tenants.of(None)
        for _ in range(3):
            with await tenancy.quotas.reserve(tenant, [ASK]) as reservation:
                reservation.settle(Usage(5, 0, 1))


async def test_one_limit_holds_without_redis(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    path.write_text(f"tenants: [{{id: acme, keys: [{digest('a')}], quota: {{concurrency: 1}}}}]")
    async with serving(GatewayConfig(tenants_file=str(path))) as tenancy:
        tenant = tenancy.tenants.of("Bearer a")
        with await tenancy.quotas.reserve(tenant, [ASK]), pytest.raises(RateLimited):
            await tenancy.quotas.reserve(tenant, [ASK])
        await tenancy.quotas.close()
        await tenancy.quotas.reserve(tenant, [ASK])


async def test_two_gateways_share_tenants_limits_and_usage(redis_server: RedisServer) -> None:
    config = settings(redis_server)
    async with serving(config) as one, serving(config) as two:
        assert not knows(one, "a")
        await one.directory.put(ACME, keep_keys=False)
        assert knows(one, "a")
        await until(lambda: knows(two, "a"))
        tenant = two.tenants.of("Bearer a")
        for gateway in (one, two):
            with await gateway.quotas.reserve(tenant, [ASK]) as reservation:
                reservation.settle(Usage(5, 2, 1))
        with pytest.raises(RateLimited):
            await two.quotas.reserve(tenant, [ASK])
        await one.directory.delete("acme")
        await until(lambda: not knows(two, "a"))
        assert tenant.id == "acme"  # whoever holds it keeps it
    async with serving(config) as three:
        await three.directory.put(ACME, keep_keys=False)
        today = time.strftime("%Y-%m-%d", time.gmtime())
        rows = await three.directory.usage("acme", [today])
        assert sum(row.counts.requests for row in rows) == 2
        assert sum(row.counts.cached_tokens for row in rows) == 4


async def test_redis_that_is_gone_from_the_start_keeps_no_file_tenant_out(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    own_redis.stop()
    path = tmp_path / "tenants.yaml"
    path.write_text(f"tenants: [{{id: globex, keys: [{digest('g')}]}}]")
    async with serving(settings(own_redis, tenants_file=str(path), tenants=(ACME,))) as tenancy:
        tenant = tenancy.tenants.of("Bearer a")
        assert tenancy.tenants.of("Bearer g").id == "globex"
        with pytest.raises(TenantsUnknown):
            tenancy.tenants.of("Bearer somebody in Redis")
        for _ in range(2):
            await tenancy.quotas.reserve(tenant, [ASK])
        with pytest.raises(RateLimited):
            await tenancy.quotas.reserve(tenant, [ASK])
        own_redis.start()
        await until(lambda: tenancy.tenants.roster.complete)
        with pytest.raises(Unauthenticated):
            tenancy.tenants.of("Bearer somebody in Redis")


async def test_tenants_of_redis_stay_while_it_is_away(own_redis: RedisServer) -> None:
    registry = CollectorRegistry()

    def stale() -> float | None:
        return registry.get_sample_value("pando_gateway_tenants_stale", {"source": "redis"})

    async with serving(settings(own_redis), registry) as tenancy:
        await tenancy.directory.put(ACME, keep_keys=False)
        own_redis.stop()
        await until(lambda: stale() == 1)
        assert knows(tenancy, "a")
        own_redis.start()
        await asyncio.sleep(1.2)
        assert knows(tenancy, "a")


async def test_limits_come_back_with_redis_and_live_requests_are_counted_again(
    own_redis: RedisServer,
) -> None:
    tenant = TenantConfig("acme", (digest("a"),), quota=TenantQuota(concurrency=1))
    config = settings(own_redis, tenants=(tenant,))
    registry = CollectorRegistry()

    def degraded() -> float | None:
        return registry.get_sample_value("pando_gateway_store_degraded")

    async with serving(config) as one, serving(config, registry) as two:
        acme = one.tenants.of("Bearer a")
        with await one.quotas.reserve(acme, [ASK]):
            with pytest.raises(RateLimited):
                await two.quotas.reserve(acme, [ASK])
            own_redis.stop()
            with await two.quotas.reserve(acme, [ASK]):
                pass  # each gateway by itself
            assert degraded() == 1
            own_redis.start()
            await until(lambda: degraded() == 0)
            await two.quotas.close()
            await until(lambda: own_redis.command("ZCARD", "pando:running:acme") == ":1")
            with pytest.raises(RateLimited):
                await two.quotas.reserve(acme, [ASK])
        await one.quotas.close()
        with await two.quotas.reserve(acme, [ASK]):
            pass


async def test_what_is_settled_last_is_written_before_the_end(own_redis: RedisServer) -> None:
    tenant = TenantConfig("acme", (digest("a"),), quota=TenantQuota(tokens_per_minute=10**6))
    async with serving(settings(own_redis, tenants=(tenant,))) as tenancy:
        acme = tenancy.tenants.of("Bearer a")
        first, second = [await tenancy.quotas.reserve(acme, [ASK]) for _ in range(2)]
        assert own_redis.command("DBSIZE") == ":4"  # the probe's, what counts, two reservations
        own_redis.pause()
        first.settle(Usage(700, 0, 77))
        await asyncio.sleep(0.02)
        second.settle(Usage(1, 0, 1))  # waits behind the first
        asyncio.get_running_loop().call_later(0.1, own_redis.go_on)
    day, hour = time.strftime("%Y-%m-%d %H", time.gmtime()).split()
    words = ("HGET", f"pando:usage:acme:{day}", f"{hour}.completion")
    assert own_redis.reply(*words) == "78"
    assert own_redis.reply("KEYS", "pando:taken:*") == ""


def test_a_tenants_file_may_be_missing_only_where_it_can_be_written(tmp_path: Path) -> None:
    missing, nowhere = str(tmp_path / "t.yaml"), str(tmp_path / "none" / "t.yaml")
    admin = AdminConfig(port=0, keys=(digest("k"),))
    for config, expected in (
        (GatewayConfig(tenants_file=missing), TenantsUnknown),
        (GatewayConfig(tenants_file=missing, admin=admin), Unauthenticated),
        (GatewayConfig(tenants_file=nowhere, admin=admin), TenantsUnknown),
    ):

        async def check(config: GatewayConfig = config, expected: type = expected) -> None:
            async with serving(config) as tenancy:
                with pytest.raises(expected):
                    tenancy.tenants.of("Bearer a")

        asyncio.run(check())
