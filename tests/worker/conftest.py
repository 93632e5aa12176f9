"""A worker behind its door, and a link to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.worker.door import Client, Worker
from worker.cache.block_hash import BlockHashCache
from worker.cache.radix import RadixCache

SHARING = {"radix": RadixCache, "block": BlockHashCache}


@pytest.fixture
async def worker(smollm2_folder: Path) -> AsyncIterator[Worker]:
    worker = Worker(smollm2_folder)
    worker.engine.start(lambda: None)
    await worker.server.start()
    yield worker
    await worker.server.stop(grace=0)
    worker.engine.stop()
    tallies = worker.service.tallies
    ended = tallies.done + sum(tallies.failed.values())
    assert tallies.accepted == ended + worker.service.num_live
    worker.cache.check()


@pytest.fixture
async def client(worker: Worker) -> AsyncIterator[Client]:
    client = Client(worker.port)
    await client.greet()
    yield client
    await client.leave()
    await worker.quiet()


@pytest.fixture(params=sorted(SHARING))
async def caching(request: pytest.FixtureRequest, smollm2_folder: Path) -> AsyncIterator[Client]:
    """A link to a worker with that cache."""
    worker = Worker(smollm2_folder, SHARING[request.param])
    worker.engine.start(lambda: None)
    await worker.server.start()
    client = Client(worker.port)
    await client.greet()
    yield client
    await client.leave()
    await worker.server.stop(grace=0)
    worker.engine.stop()
    worker.cache.check()
