"""A worker behind its door, and a link to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.worker.door import Client, Worker


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
