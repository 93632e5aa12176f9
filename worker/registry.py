"""Writes the worker into the fleet's registry in Redis, for as long as it lives (beside a request).

A sorted set `PREFIX:workers` holds `NAME=HOST:PORT` by the end of its lease in microseconds of
Redis's own clock. A worker that dies is gone when its lease ends; one that leaves takes itself out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from redis.asyncio import Redis
from redis.exceptions import RedisError

log = logging.getLogger("pando.worker.registry")

# Leases are renewed so often within one.
RENEWALS = 3
TIMEOUT_S = 2.0
RENEW = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
return redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is written, and for how long at a time."""

    prefix: str
    name: str
    address: str
    lease_s: float = 15.0

    @property
    def key(self) -> str:
        """Where it is written."""
        return f"{self.prefix}:workers"

    @property
    def member(self) -> str:
        """What gateways read."""
        return f"{self.name}={self.address}"


@asynccontextmanager
async def registered(url: str, entry: Entry) -> AsyncIterator[None]:
    """The worker is in the registry; Redis that is away only delays that."""
    client = Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S)
    task = asyncio.create_task(_renew(client, entry))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        with suppress(RedisError, OSError):
            await client.zrem(entry.key, entry.member)
        await client.aclose()


async def _renew(client: Redis, entry: Entry) -> None:
    """Renews the lease for ever."""
    failing = False
    while True:
        try:
            lease_us = int(entry.lease_s * 1e6)
            await client.eval(RENEW, 1, entry.key, entry.member, str(lease_us))
        except (RedisError, OSError) as error:
            if not failing:
                log.warning("registry away", extra={"error": str(error)})
            failing = True
        else:
            if failing:
                log.info("registry back")
            failing = False
        await asyncio.sleep(entry.lease_s / RENEWALS)
