"""A worker whose engine hangs: left, and not trusted again until it works."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs

from gateway.errors import WorkerLost
from gateway.request import Event
from proto import worker_pb2 as pb
from tests.gateway.conftest import FAST_LINK, StartWorker
from tests.gateway.fake_worker import FakeWorker, silence
from tests.gateway.fleet.conftest import ASK, Links, ended, error, stored


async def test_a_worker_whose_engine_hangs_is_left(links: Links, start_worker: StartWorker) -> None:
    settings = structs.replace(FAST_LINK, wedge_s=0.3)
    fake = await start_worker(script=silence, heartbeat_s=0.05)
    links.add(fake, settings)
    door = (await links.linked()).door
    events: list[Event] = []
    fake.load = pb.Load(running_sequences=1, steps_total=7)
    with door.submit(ASK, events.append):
        await ended(events, links)
    assert isinstance(error(events[-1]), WorkerLost)
    assert links.breaks("wedged") == 1


async def hung(links: Links, start_worker: StartWorker) -> FakeWorker:
    """A worker that was left since its engine hangs, at step 7, and still does."""
    fake = await start_worker(script=silence, heartbeat_s=0.05)
    links.add(fake, structs.replace(FAST_LINK, wedge_s=0.3))
    await links.linked()
    fake.load = pb.Load(running_sequences=1, steps_total=7)
    await links.until(lambda: links.breaks("wedged") == 1)
    return fake


async def test_a_worker_that_hung_is_not_trusted_until_it_computes(
    links: Links, start_worker: StartWorker
) -> None:
    fake = await hung(links, start_worker)
    fake.snapshot = [stored("a")]
    lines = len(fake.lines)
    while links.breaks("still_wedged") < 2:
        assert not links.fleet.ready
        await asyncio.sleep(0.005)
    await links.until(lambda: len(fake.lines) > lines + 2)
    fake.lines[-1].step(cache_events=[stored("b")])
    await asyncio.sleep(0.05)
    fake.load = pb.Load(running_sequences=1, steps_total=8)
    worker = await links.linked()
    await links.until(lambda: dict(worker.view.stored) == {b"a": 64, b"b": 64})
    await asyncio.sleep(0.1)
    assert links.fleet.workers() == (worker,)
    assert fake.resyncs == links.breaks("sequence_gap") == 0


@pytest.mark.parametrize("change", ["idle", "new"])
async def test_a_worker_that_hung_is_trusted_when_it_waits_for_work_or_is_another_process(
    links: Links, start_worker: StartWorker, change: str
) -> None:
    fake = await hung(links, start_worker)
    if change == "idle":
        fake.load = pb.Load(steps_total=7)
    else:
        fake.incarnation = "second"
    await links.linked()


async def test_a_worker_that_computes_or_has_nothing_to_do_is_not_left(
    links: Links, start_worker: StartWorker
) -> None:
    settings = structs.replace(FAST_LINK, wedge_s=0.3)
    idle = await start_worker(name="idle", heartbeat_s=0.05)
    busy = await start_worker(name="busy", heartbeat_s=0.05)
    links.add(idle, settings)
    links.add(busy, settings)
    for number in range(20):
        busy.load = pb.Load(running_sequences=1, steps_total=number)
        await asyncio.sleep(0.05)
    assert len(links.fleet.workers()) == 2
    assert links.breaks("wedged") == 0
