"""What a gateway knows of the cache is what the cache holds, whenever it came and asked again."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proto import worker_pb2 as pb
from tests.worker.door import CacheView, Client, Worker
from tests.worker.loaded import tokenizer_of
from worker.cache.boundaries import BoundaryEvent, BoundaryTags
from worker.engine import Load
from worker.intake import Intake
from worker.link import Outgoing, WorkerState
from worker.live import ServiceLimits
from worker.service import Service


class BusyCache(threading.Thread):
    """Stores and evicts at random, and reports now and then, as an engine does after each step."""

    def __init__(self, seed: int, report: Callable[[list[BoundaryEvent]], None]) -> None:
        super().__init__()
        self.tags = BoundaryTags()
        self._chance = random.Random(seed)
        self._report = report

    def run(self) -> None:
        for _ in range(400):
            for _ in range(self._chance.randrange(8)):
                self._change()
            time.sleep(0)
            self._report(self.tags.take_events())

    def _change(self) -> None:
        page = self._chance.randrange(20)
        what = self._chance.random()
        if what < 0.65:
            self.tags.store(page, bytes([self._chance.randrange(50)]), page)
        elif what < 0.99:
            self.tags.evict(page)
        else:
            self.tags.clear()


@pytest.fixture(scope="module")
def service(smollm2_folder: Path) -> Service:
    tokenizer = tokenizer_of(smollm2_folder)
    intake = Intake(tokenizer, None, 100, random.Random(0))
    return Service(intake, tokenizer, ServiceLimits(8, 24))


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns a thousand times as often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("seed", range(5))
async def test_events_and_snapshots_leave_no_gap_and_repeat_nothing_while_the_cache_is_busy(
    service: Service, seed: int
) -> None:
    loop, chance = asyncio.get_running_loop(), random.Random(seed)
    links: list[Outgoing] = []
    views: list[CacheView] = []
    readers: list[asyncio.Task[None]] = []

    def flush(events: list[BoundaryEvent]) -> None:
        for link in links:
            link.flush(events)

    def report(events: list[BoundaryEvent]) -> None:
        loop.call_soon_threadsafe(flush, events)

    async def read(link: Outgoing, view: CacheView) -> None:
        async for message in link.steps(heartbeat_s=0.001):
            view.take(message.step)
            if chance.random() < 0.2:
                link.resync()
            if chance.random() < 0.3:
                await asyncio.sleep(0.002)

    cache = BusyCache(seed, report)
    state = WorkerState(Load, cache.tags.snapshot, lambda _: b"")
    cache.start()
    while cache.is_alive():
        if len(links) < 20:
            stored, sequence = state.snapshot()
            links.append(Outgoing("test", service, state, sequence))
            views.append(CacheView())
            hello = [pb.CacheEvent(digest=one.digest, num_tokens=one.num_tokens) for one in stored]
            views[-1].restart(hello, sequence)
            readers.append(asyncio.create_task(read(links[-1], views[-1])))
        await asyncio.sleep(0.002)
    cache.join()
    await asyncio.sleep(0.01)
    for link in links:
        link.close()
    await asyncio.gather(*readers)
    stored, sequence = state.snapshot()
    assert sequence > 400
    for view in views:
        assert view.sequence == sequence
        assert view.stored == {one.digest: one.num_tokens for one in stored}
    assert sum(view.snapshots for view in views) > 20


def chat(text: str) -> pb.ChatPrompt:
    messages = [{"role": "system", "content": text}, {"role": "user", "content": "Hi."}]
    return pb.ChatPrompt(messages=json.dumps(messages).encode())


async def test_a_gateway_that_asks_gets_all_that_the_cache_holds_with_the_next_step(
    client: Client,
) -> None:
    for number in (1, 2):
        boundary = pb.Boundary(digest=bytes([number]) * 16, num_messages=1)
        await client.submit(number, chat=chat(f"{number} is a tree. " * 5), boundaries=[boundary])
    await client.until(1, 2)
    known = dict(client.view.stored)
    assert len(known) == 2
    client.view.stored.clear()
    await client.resync()
    while not client.view.snapshots:
        await client.take()
    assert client.view.stored == known
    await client.take()
    assert client.view.snapshots == 1
    assert not client.last.HasField("snapshot")


async def test_an_empty_cache_is_a_snapshot_too(client: Client) -> None:
    await client.resync()
    while not client.view.snapshots:
        await client.take()
    assert not client.view.stored


async def test_links_that_open_and_ask_while_requests_run_all_know_what_is_stored(
    worker: Worker, client: Client
) -> None:
    others = []
    for number in range(1, 41):
        boundary = pb.Boundary(digest=bytes([number]) * 16, num_messages=1)
        await client.submit(number, chat=chat(f"{number} is a tree. " * 5), boundaries=[boundary])
        if number % 10 == 0:
            others.append(Client(worker.port))
            await others[-1].greet()
            await others[-1].resync()
            await client.resync()
        if number % 8 == 0:
            await client.until(number)
    await client.until(*range(1, 41))
    stored, sequence = worker.engine.snapshot()
    assert sequence > 40
    for one in (client, *others):
        while one.view.sequence < sequence or not one.view.snapshots:
            await one.take()
        assert one.view.stored == {event.digest: event.num_tokens for event in stored}
    for one in others:
        await one.leave()
