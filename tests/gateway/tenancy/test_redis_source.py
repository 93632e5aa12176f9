"""Tenants in Redis: what one gateway writes another reads, and no restart of it loses anybody."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from gateway.store.redis import RedisStore
from gateway.tenancy.redis_source import RedisSource
from gateway.tenancy.sources import SourceBroken
from gateway.tenant_config import TenantConfig
from tests.gateway.store.conftest import connected
from tests.gateway.store.redis_server import RedisServer
from tests.gateway.tenancy.conftest import Seen
from tests.gateway.tenancy.test_sources import ACME, GLOBEX, by_id


def source_on(store: RedisStore, seen: Seen) -> RedisSource:
    return RedisSource(store, seen.telemetry)


async def test_what_one_gateway_writes_another_reads(redis_server: RedisServer, seen: Seen) -> None:
    async with connected(redis_server) as store, connected(redis_server) as other:
        writer, reader = source_on(store, seen), source_on(other, seen)
        assert await reader.read() == {}
        assert await reader.read() is None
        assert await writer.write("acme", None, ACME)
        assert await reader.read() == by_id(ACME)
        assert await reader.read() is None
        assert await writer.write("globex", None, GLOBEX)
        assert await writer.write("acme", ACME, None)
        assert await reader.read() == by_id(GLOBEX)
        assert await writer.write("globex", GLOBEX, None)
        assert await reader.read() == {}
        assert await reader.get("globex") is None


async def test_of_two_writers_one_wins(redis_server: RedisServer, seen: Seen) -> None:
    async with connected(redis_server) as store, connected(redis_server) as other:
        one, two = source_on(store, seen), source_on(other, seen)
        assert await one.write("acme", None, ACME)
        changes = [msgspec.structs.replace(ACME, weight=w) for w in (2.0, 3.0)]
        won = await asyncio.gather(
            one.write("acme", ACME, changes[0]), two.write("acme", ACME, changes[1])
        )
        assert sorted(won) == [False, True]
        assert await one.get("acme") == changes[won.index(True)]


async def test_a_record_that_nobody_understands_leaves_its_tenant_as_it_was(
    redis_server: RedisServer, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(redis_server) as store:
        source = source_on(store, seen)
        await source.write("acme", None, ACME)
        await source.read()
        redis_server.command("HSET", "test:tenants", "acme", "{")
        redis_server.command("HSET", "test:tenants", "odd", '{"id":"even"}')
        assert await source.write("globex", None, GLOBEX)
        assert await source.read() == by_id(ACME, GLOBEX)
        assert "tenant=acme" in caplog.text
        assert "another tenant's, 'even'" in caplog.text
        with pytest.raises(SourceBroken, match="can't be understood"):
            await source.get("acme")


async def test_redis_that_comes_back_empty_loses_nobody(own_redis: RedisServer, seen: Seen) -> None:
    async with connected(own_redis, timeout_s=1.0) as store:
        source = source_on(store, seen)
        await source.write("acme", None, ACME)
        assert await source.read() == by_id(ACME)
        own_redis.stop()
        with pytest.raises(SourceBroken, match="ConnectionError"):
            await source.read()
        own_redis.start()
        assert await source.get("acme") == ACME
        assert await source.read() == by_id(ACME)
        assert await source.write("globex", None, GLOBEX)
        assert await source.read() == by_id(ACME, GLOBEX)


async def test_a_change_at_a_gateway_that_knew_nobody_loses_nobody(
    redis_server: RedisServer, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    third, fourth = TenantConfig("third"), TenantConfig("fourth")
    async with connected(redis_server) as store, connected(redis_server) as other:
        old, fresh = source_on(store, seen), source_on(other, seen)
        for tenant in (ACME, GLOBEX):
            await old.write(tenant.id, None, tenant)
        assert await old.read() == by_id(ACME, GLOBEX)
        redis_server.command("FLUSHALL")
        assert await fresh.read() == {}
        for tenant in (third, fourth):  # as many changes as the old gateway has seen
            await fresh.write(tenant.id, None, tenant)
        everybody = by_id(ACME, GLOBEX, third, fourth)
        assert await old.read() == everybody
        assert await fresh.read() == everybody
        assert "tenants_put_back source=redis tenants=2" in caplog.text
        assert await old.read() is None


async def test_what_others_changed_in_a_new_redis_is_not_undone(
    redis_server: RedisServer, seen: Seen
) -> None:
    changed = msgspec.structs.replace(ACME, weight=3.0)
    async with connected(redis_server) as store, connected(redis_server) as other:
        old, fresh = source_on(store, seen), source_on(other, seen)
        await old.write("acme", None, ACME)
        await old.read()
        redis_server.command("FLUSHALL")
        await fresh.write("acme", None, changed)
        assert await old.read() == by_id(changed)


async def test_a_tenant_that_is_deleted_where_redis_lost_it_stays_deleted(
    redis_server: RedisServer, seen: Seen
) -> None:
    async with connected(redis_server) as store:
        source = source_on(store, seen)
        for tenant in (ACME, GLOBEX):
            await source.write(tenant.id, None, tenant)
        await source.read()
        redis_server.command("FLUSHALL")
        assert await source.write("acme", ACME, None)
        assert await source.read() == by_id(GLOBEX)
        assert await source.get("acme") is None
        assert await source.write("globex", GLOBEX, None)
        assert await source.read() == {}


async def test_an_id_that_is_no_text_hides_nobody(redis_server: RedisServer, seen: Seen) -> None:
    async with connected(redis_server) as store:
        source = source_on(store, seen)
        script = "return redis.call('HSET', KEYS[1], string.char(255, 254), '{}')"
        redis_server.command("EVAL", script, "1", "test:tenants")
        assert await source.write("acme", None, ACME)
        assert await source.read() == by_id(ACME)
