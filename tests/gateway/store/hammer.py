"""A gateway's worth of requests: `python hammer.py URL NAME REQUESTS MODE`; prints who passed.

MODE "rate": 100 requests a minute, none settled. "running": 100 at a time, none settled either.
"die": takes its requests, says so, and waits to be killed.
"""

from __future__ import annotations

import asyncio
import sys

from gateway.store.interface import Limits, Take
from gateway.store.lane import Lane
from gateway.store.redis import RedisStore, Retention

LIMITS = {
    "rate": Limits(requests=100),
    "running": Limits(concurrency=100),
    "die": Limits(concurrency=100),
}


async def main(url: str, name: str, num_requests: int, mode: str) -> None:
    lanes = Lane(url, 10.0), Lane(url, 10.0)
    store = RedisStore(*lanes, prefix="test", retention=Retention(1.0, 60.0, 1), epoch="e")
    await store.probe()
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    takes = [Take(f"{name}-{i}", "acme", LIMITS[mode], 0) for i in range(num_requests)]
    standings = await asyncio.gather(*(store.take(take) for take in takes))
    print(sum(standing.denied_by is None for standing in standings), flush=True)
    if mode == "die":
        await asyncio.sleep(60)
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
