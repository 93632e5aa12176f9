"""Redis that goes away in every way that it can, and comes back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from gateway.store.failover import Failover
from gateway.store.interface import Limit, Limits, Settlement, StoreAway, Take
from gateway.store.lane import Lane
from gateway.store.memory import MemoryStore
from gateway.store.redis import RedisStore
from tests.gateway.store.conftest import RETENTION, connected
from tests.gateway.store.redis_server import RedisServer

LIMITS = Limits(requests=10, concurrency=5)


class Told:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def store_degraded(self, reason: str) -> None:
        self.lines.append(f"degraded: {reason}")

    def store_restored(self) -> None:
        self.lines.append("restored")


@asynccontextmanager
async def failing_over(
    server: RedisServer, timeout_s: float = 0.2
) -> AsyncIterator[tuple[Failover, Told]]:
    told = Told()
    async with connected(server, timeout_s=timeout_s) as redis:
        memory = MemoryStore(15.0, asyncio.get_running_loop().time)
        failover = Failover(redis, memory, told, probe_s=0.02)
        task = asyncio.create_task(failover.run())
        try:
            yield failover, told
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - any state, not only ours
            await asyncio.sleep(0.005)


async def take(store: Failover | RedisStore, id_: str) -> tuple[Limit | None, int]:
    standing = await store.take(Take(id_, "acme", LIMITS, 0))
    assert standing.requests is not None
    return standing.denied_by, standing.requests.remaining


async def test_memory_serves_while_redis_is_gone_and_redis_again_when_it_is_back(
    own_redis: RedisServer,
) -> None:
    async with failing_over(own_redis) as (store, told):
        assert await take(store, "a") == (None, 9)
        own_redis.stop()
        assert await take(store, "b") == (None, 9)
        assert await take(store, "c") == (None, 8)
        assert store.degraded
        own_redis.start()
        await until(lambda: not store.degraded)
        assert await take(store, "d") == (None, 9)
    assert len(told.lines) == 2
    assert told.lines[0].startswith("degraded: ConnectionError")
    assert told.lines[1] == "restored"


async def test_a_restart_between_two_calls_is_not_even_noticed(own_redis: RedisServer) -> None:
    async with failing_over(own_redis, timeout_s=5.0) as (store, told):
        assert await take(store, "a") == (None, 9)
        own_redis.stop()
        own_redis.start()
        assert await take(store, "b") == (None, 9)  # without the scripts that it knew before
        own_redis.command("CLIENT", "KILL", "TYPE", "normal")
        assert await take(store, "c") == (None, 8)
    assert told.lines == []


async def test_many_calls_at_once_survive_lost_scripts(own_redis: RedisServer) -> None:
    async with connected(own_redis) as store:
        assert await take(store, "a") == (None, 9)
        own_redis.command("SCRIPT", "FLUSH")
        results = await asyncio.gather(*(take(store, f"id{number}") for number in range(20)))
    assert sum(denied is None for denied, _ in results) == 4


async def test_redis_that_says_nothing_costs_one_timeout_in_all(own_redis: RedisServer) -> None:
    async with failing_over(own_redis, timeout_s=0.1) as (store, told):
        await take(store, "a")
        own_redis.pause()
        loop = asyncio.get_running_loop()
        began = loop.time()
        first = asyncio.create_task(take(store, "id0"))
        await asyncio.sleep(0.02)  # it is on its way; the others wait behind it
        rest = [asyncio.create_task(take(store, f"id{number}")) for number in range(1, 20)]
        async with asyncio.timeout(20):
            results = await asyncio.gather(first, *rest)
        assert sum(denied is None for denied, _ in results) == 5
        for number in range(100):
            await take(store, f"more{number}")
        assert loop.time() - began < 2
        own_redis.go_on()
        await until(lambda: not store.degraded)
    assert told.lines == ["degraded: no answer within 0.1 s", "restored"]


async def test_a_gateway_that_stalls_does_not_take_redis_for_away(own_redis: RedisServer) -> None:
    async with failing_over(own_redis, timeout_s=0.1) as (store, told):
        await take(store, "a")
        own_redis.pause()
        taking = asyncio.create_task(take(store, "b"))
        await asyncio.sleep(0.02)  # it is sent
        threading.Timer(0.02, own_redis.go_on).start()
        time.sleep(0.3)  # noqa: ASYNC251 - the loop is held up, and the reply comes meanwhile
        assert await taking == (None, 8)
    assert told.lines == []


@pytest.mark.parametrize(
    ("harm", "mend"),
    [
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
    ],
    ids=["read only", "out of memory"],
)
async def test_redis_that_takes_no_writes_is_away(
    own_redis: RedisServer, harm: tuple[str, ...], mend: tuple[str, ...]
) -> None:
    limits = Limits(requests=10)
    async with failing_over(own_redis) as (store, told):
        await store.take(Take("a", "acme", limits, 0))
        own_redis.command(*harm)
        standing = await store.take(Take("b", "acme", limits, 0))
        assert standing.denied_by is None
        await asyncio.sleep(0.1)
        assert store.degraded
        own_redis.command(*mend)
        await until(lambda: not store.degraded)
    assert len(told.lines) == 2


@pytest.mark.parametrize("words", ["-LOADING Redis is loading the dataset in memory", "-ERR no"])
async def test_redis_that_only_complains_is_away(words: str) -> None:
    connections: list[asyncio.Task[None] | None] = []

    async def complain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.current_task())
        while await reader.read(4096):
            writer.write(words.encode() + b"\r\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(complain, "127.0.0.1", 0)
    url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    lanes = Lane(url, 1.0), Lane(url, 1.0)
    store = RedisStore(*lanes, prefix="test", retention=RETENTION, epoch="e")
    with pytest.raises(StoreAway, match=words.split(maxsplit=1)[1]):
        await store.probe()
    await store.aclose()
    server.close()
    await asyncio.gather(*(task for task in connections if task is not None))


async def test_a_password_is_part_of_the_url(own_redis: RedisServer) -> None:
    own_redis.stop()
    own_redis.start("--requirepass", "secret")
    url = own_redis.url.replace("//", "//:secret@")
    for right, words in ((url, ""), (own_redis.url, "AuthenticationError|NOAUTH|Authentication")):
        lanes = Lane(right, 5.0), Lane(right, 5.0)
        store = RedisStore(*lanes, prefix="test", retention=RETENTION, epoch="e")
        if words:
            with pytest.raises(StoreAway, match=words):
                await store.probe()
        else:
            assert await take(store, "a") == (None, 9)
        await store.aclose()


async def test_redis_that_is_gone_from_the_start_keeps_nobody(own_redis: RedisServer) -> None:
    own_redis.stop()
    async with failing_over(own_redis) as (store, _):
        assert await take(store, "a") == (None, 9)
        await store.renew({"acme": ["a"]})
        await store.settle([Settlement("a", "acme", LIMITS, 0)])
        own_redis.start()
        await until(lambda: not store.degraded)
        assert await take(store, "b") == (None, 9)


async def test_what_runs_is_counted_after_a_change_as_well(own_redis: RedisServer) -> None:
    async with failing_over(own_redis) as (store, _):
        for number in range(5):
            await take(store, f"id{number}")
        await store.renew({"acme": [f"id{number}" for number in range(5)]})
        own_redis.stop()
        assert (await take(store, "more"))[0] is Limit.CONCURRENCY
        await store.settle([Settlement("id0", "acme", LIMITS, 0)])
        assert (await take(store, "more"))[0] is None
        own_redis.start()
        await until(lambda: not store.degraded)
        await store.renew({"acme": ["id1", "id2", "id3", "id4", "more"]})
        assert (await take(store, "one more"))[0] is Limit.CONCURRENCY
        await store.settle([Settlement("more", "acme", LIMITS, 0)])
        assert (await take(store, "one more"))[0] is None


async def test_usage_and_tenants_say_that_redis_is_away(own_redis: RedisServer) -> None:
    own_redis.stop()
    async with connected(own_redis, timeout_s=0.2) as store:
        for call in (
            store.probe(),
            store.usage("acme", ["2026-01-31"]),
            store.tenants(None),
            store.write_tenant("acme", None, b"{}"),
        ):
            with pytest.raises(StoreAway, match="ConnectionError"):
                await call


async def test_whoever_gives_up_waiting_disturbs_nobody(redis_server: RedisServer) -> None:
    async with connected(redis_server) as store:
        given_up = asyncio.create_task(take(store, "a"))
        others = [asyncio.create_task(take(store, f"id{number}")) for number in range(3)]
        await asyncio.sleep(0)
        given_up.cancel()
        results = await asyncio.gather(*others)
        assert all(denied is None for denied, _ in results)
        with pytest.raises(asyncio.CancelledError):
            await given_up
