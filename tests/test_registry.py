"""What workers write into Redis is what gateways find there; the two share no code, only this."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.config import WorkerConfig
from gateway.fleet.discovery import Registry
from gateway.telemetry.log import EventLog
from tests.gateway.store.conftest import connected
from tests.gateway.store.redis_server import RedisServer
from worker.registry import Entry, registered

PREFIX = "test"
LOG = EventLog(logging.getLogger("gateway"))


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()


class Found:
    """What the registry told last."""

    def __init__(self) -> None:
        self.workers: dict[str, str | None] = {}
        self.tellings = 0

    def __call__(self, workers: Sequence[WorkerConfig]) -> None:
        self.workers = {worker.address: worker.name for worker in workers}
        self.tellings += 1

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 - any state, not only ours
                await asyncio.sleep(0.01)


@asynccontextmanager
async def watching(server: RedisServer) -> AsyncIterator[Found]:
    found = Found()
    async with connected(server, timeout_s=0.5) as store:
        task = asyncio.create_task(Registry(store, 0.02, LOG).watch(found))
        try:
            yield found
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def entry(number: int, lease_s: float = 15.0) -> Entry:
    return Entry(PREFIX, f"w{number}", f"10.0.0.{number}:7001", lease_s)


async def test_a_worker_is_found_from_its_start_to_its_end(redis: RedisServer) -> None:
    async with watching(redis) as found:
        async with registered(redis.url, entry(1)):
            await found.until(lambda: found.workers == {"10.0.0.1:7001": "w1"})
            async with registered(redis.url, entry(2)):
                await found.until(lambda: len(found.workers) == 2)
            await found.until(lambda: len(found.workers) == 1)
        await found.until(lambda: not found.workers)


async def test_one_that_dies_is_gone_with_its_lease(redis: RedisServer) -> None:
    async with watching(redis) as found:
        async with registered(redis.url, entry(1, lease_s=0.3)):
            await found.until(lambda: bool(found.workers))
            before = found.tellings
            await found.until(lambda: found.tellings > before + 30)
            assert found.workers, "a lease is renewed"
        redis.command("ZADD", f"{PREFIX}:workers", "1", "dead=10.0.0.9:7001")
        await asyncio.sleep(0.1)
        assert "10.0.0.9:7001" not in found.workers


async def test_while_redis_is_away_the_last_answer_holds_and_comes_back(
    redis: RedisServer,
) -> None:
    async with watching(redis) as found, registered(redis.url, entry(1, lease_s=0.6)):
        await found.until(lambda: bool(found.workers))
        redis.stop()
        await asyncio.sleep(0.3)
        assert found.workers == {"10.0.0.1:7001": "w1"}
        redis.start()
        await found.until(lambda: not found.workers or found.tellings > 0)
        await found.until(lambda: found.workers == {"10.0.0.1:7001": "w1"})


async def test_an_entry_that_makes_no_sense_hides_nobody(redis: RedisServer) -> None:
    async with watching(redis) as found, registered(redis.url, entry(1)):
        for member in ("nonsense", "a b=1.2.3.4:1", "=:", "w=[::1]:99"):
            redis.command("ZADD", f"{PREFIX}:workers", "9e15", member)
        await found.until(lambda: found.workers.get("[::1]:99") == "w")
        await found.until(lambda: found.workers.get("10.0.0.1:7001") == "w1")


async def test_an_entry_that_is_no_text_hides_nobody(redis: RedisServer) -> None:
    script = "return redis.call('ZADD', KEYS[1], '9e15', string.char(255, 254))"
    redis.command("EVAL", script, "1", f"{PREFIX}:workers")
    async with watching(redis) as found, registered(redis.url, entry(1)):
        await found.until(lambda: found.workers == {"10.0.0.1:7001": "w1"})


async def test_a_worker_starts_and_leaves_without_redis(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    async with registered(server.url, entry(1)):
        await asyncio.sleep(0.05)
