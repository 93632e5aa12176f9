"""Stores to be tested: memory, and Redis on a live server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.store.lane import Lane
from gateway.store.redis import RedisStore, Retention
from tests.gateway.store.redis_server import RedisServer

RETENTION = Retention(lease_s=15.0, taken_s=60.0, usage_days=2)


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One server for all tests that don't end it; each begins with nothing in it."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_server(shared_redis: RedisServer) -> RedisServer:
    """The shared server, emptied."""
    shared_redis.command("FLUSHALL")
    return shared_redis


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that the test may stop, start and pause."""
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()


@asynccontextmanager
async def connected(
    server: RedisServer, retention: Retention = RETENTION, timeout_s: float = 5.0
) -> AsyncIterator[RedisStore]:
    """A store on the server, closed behind."""
    lanes = Lane(server.url, timeout_s), Lane(server.url, timeout_s)
    store = RedisStore(*lanes, prefix="test", retention=retention, epoch="e")
    try:
        yield store
    finally:
        await store.aclose()


@pytest.fixture
async def redis_store(redis_server: RedisServer) -> AsyncIterator[RedisStore]:
    """A store on the shared server."""
    async with connected(redis_server) as store:
        yield store
