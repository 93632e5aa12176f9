"""One limit for all gateways, as processes of their own on one Redis."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.store.interface import Limit, Limits, Take
from tests.gateway.store.conftest import connected
from tests.gateway.store.redis_server import RedisServer

ROOT = Path(__file__).resolve().parents[3]
HAMMER = Path(__file__).with_name("hammer.py")

Process = subprocess.Popen[str]


@contextmanager
def gateways(server: RedisServer, count: int, requests: int, mode: str) -> Iterator[list[Process]]:
    """So many processes, all of them connected."""
    processes = [
        subprocess.Popen(
            [sys.executable, str(HAMMER), server.url, f"gw{number}", str(requests), mode],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    try:
        for process in processes:
            assert line_of(process) == "ready"
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def line_of(process: Process) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go(process: Process) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


@pytest.mark.parametrize("mode", ["rate", "running"])
def test_a_thousand_requests_at_once_pass_a_limit_of_a_hundred_by_none(
    redis_server: RedisServer, mode: str
) -> None:
    with gateways(redis_server, count=4, requests=250, mode=mode) as processes:
        began = time.monotonic()
        for process in processes:
            go(process)
        passed = sum(int(line_of(process)) for process in processes)
    leaked = (time.monotonic() - began) * 100 / 60 if mode == "rate" else 0
    assert 100 <= passed <= 101 + leaked


async def test_what_a_gateway_held_that_died_is_free_within_its_lease(
    redis_server: RedisServer,
) -> None:
    limits = Limits(concurrency=100)
    with gateways(redis_server, count=1, requests=100, mode="die") as (process,):
        go(process)
        assert line_of(process) == "100"
        async with connected(redis_server) as store:
            full = await store.take(Take("b", "acme", limits, 0))
            assert full.denied_by is Limit.CONCURRENCY
            process.kill()
            died = time.monotonic()
            for number in range(100):
                place = Take(f"b{number}", "acme", limits, 0)
                while (await store.take(place)).denied_by is not None:
                    assert time.monotonic() < died + 20, "the leases of the dead never end"
                    await asyncio.sleep(0.02)
