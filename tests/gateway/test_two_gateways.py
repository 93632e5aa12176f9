"""Two gateways, one Redis: one limit for both, and nobody refused because Redis is gone."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx

from gateway.tenancy.keys import digest_of
from gateway.tenant_config import QuotaConfig, RedisConfig, TenantConfig, TenantQuota
from tests.gateway.conftest import Live, Serve, StartWorker
from tests.gateway.store.conftest import own_redis, redis_server, shared_redis
from tests.gateway.store.redis_server import RedisServer

__all__ = ["own_redis", "redis_server", "shared_redis"]

KEY = {"authorization": "Bearer pnd-test"}
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}


async def two_gateways(
    server: RedisServer, start_worker: StartWorker, serve: Serve, **quota: int
) -> tuple[Live, Live]:
    worker = await start_worker(name="w0")
    tenant = TenantConfig("acme", (digest_of("pnd-test"),), quota=TenantQuota(**quota))
    redis = RedisConfig(url=server.url, timeout_s=5.0, probe_s=0.02)
    settings = {"tenants": (tenant,), "redis": redis, "quota": QuotaConfig(lease_s=1.0)}
    one, two = [await serve(worker, **settings) for _ in range(2)]  # type: ignore[arg-type]
    await one.until_linked("w0")
    await two.until_linked("w0")
    return one, two


async def ask(live: Live) -> httpx.Response:
    return await live.http.post("/v1/chat/completions", json=BODY, headers=KEY)


async def test_two_gateways_admit_one_limits_worth(
    redis_server: RedisServer, start_worker: StartWorker, serve: Serve
) -> None:
    lives = await two_gateways(redis_server, start_worker, serve, requests_per_minute=20)
    answers = await asyncio.gather(*(ask(live) for live in lives for _ in range(30)))
    statuses = Counter(answer.status_code for answer in answers)
    assert set(statuses) == {200, 429}
    assert 20 <= statuses[200] <= 22  # one comes back every three seconds
    for answer in answers:
        assert answer.headers["x-ratelimit-limit-requests"] == "20"
        if answer.status_code == 429:
            assert 1 <= int(answer.headers["retry-after"]) <= 3
            assert answer.json()["error"]["code"] == "rate_limit_exceeded"
    for live in lives:
        live.assert_nothing_is_left()


async def test_redis_that_goes_is_felt_by_no_request(
    own_redis: RedisServer, start_worker: StartWorker, serve: Serve
) -> None:
    one, two = await two_gateways(own_redis, start_worker, serve, concurrency=50)
    statuses: Counter[int] = Counter()

    async def keep_asking(live: Live, until: asyncio.Event) -> None:
        while not until.is_set():
            statuses[(await ask(live)).status_code] += 1

    enough = asyncio.Event()
    clients = [asyncio.create_task(keep_asking(live, enough)) for live in (one, two) * 3]
    for _ in range(2):
        await asyncio.sleep(0.1)
        own_redis.stop()
        await asyncio.sleep(0.1)
        own_redis.start()
    await one.until(lambda: one.metric("store_degraded") + two.metric("store_degraded") == 0)
    enough.set()
    await asyncio.gather(*clients)
    assert set(statuses) == {200}
    await one.gateway.tenancy.quotas.close()
    await two.gateway.tenancy.quotas.close()
    await one.until(lambda: own_redis.command("ZCARD", "pando:running:acme") == ":0")
