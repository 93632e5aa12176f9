from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest
from prometheus_client import CollectorRegistry

from gateway.config import WorkerConfig
from gateway.fleet.link import WorkerLink
from gateway.fleet.links import Links
from gateway.fleet.session import LinkContext
from gateway.fleet.workers import Fleet
from gateway.telemetry.log import EventLog
from gateway.telemetry.metrics import Telemetry
from tests.gateway.conftest import FAST_LINK, StartWorker


class Following:
    def __init__(self) -> None:
        self.fleet = Fleet()
        log = EventLog(logging.getLogger("gateway"))
        self.now = 0.0
        self.telemetry = Telemetry(CollectorRegistry(), lambda: self.now + time.monotonic())
        context = LinkContext("g0", FAST_LINK, self.fleet, self.telemetry, log, random.Random(1))
        self.links = Links(partial(WorkerLink, context=context), log)

    def series(self) -> set[str]:
        """The workers that the metrics name."""
        return {
            sample.labels["worker"]
            for family in self.telemetry.families().collect()
            for sample in family.samples
            if "worker" in sample.labels
        }

    def names(self) -> list[str]:
        return [worker.name for worker in self.fleet.workers()]

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 - any state, not only ours
                await asyncio.sleep(0.005)


@pytest.fixture
async def following() -> AsyncIterator[Following]:
    following = Following()
    yield following
    await following.links.close()
    assert len(following.links) == 0


async def test_links_are_made_as_workers_are_found(
    following: Following, start_worker: StartWorker
) -> None:
    first, second = await start_worker(name="a"), await start_worker(name="b")
    following.links.follow([WorkerConfig(first.address)])
    await following.until(lambda: following.names() == ["a"])
    following.links.follow([WorkerConfig(first.address), WorkerConfig(second.address)])
    await following.until(lambda: following.names() == ["a", "b"])
    assert len(first.hellos) == 1


async def test_a_link_that_stands_outlives_an_answer_that_lacks_it(
    following: Following, start_worker: StartWorker
) -> None:
    worker = await start_worker(name="a")
    following.links.follow([WorkerConfig(worker.address)])
    await following.until(lambda: following.names() == ["a"])
    following.links.follow([])
    await asyncio.sleep(0.1)
    assert following.names() == ["a"]
    following.links.follow([WorkerConfig(worker.address)])
    await worker.stop()
    await following.until(lambda: not following.names())
    await worker.start()
    await following.until(lambda: following.names() == ["a"])


async def test_a_worker_that_is_gone_and_not_found_is_knocked_at_no_more(
    following: Following, start_worker: StartWorker
) -> None:
    worker = await start_worker(name="a")
    following.links.follow([WorkerConfig(worker.address)])
    await following.until(lambda: following.names() == ["a"])
    following.links.follow([])
    await worker.stop()
    await following.until(lambda: len(following.links) == 0)
    assert following.fleet.settled


async def test_an_address_that_never_answered_is_given_up(following: Following) -> None:
    following.links.follow([WorkerConfig("127.0.0.1:9")])
    await asyncio.sleep(0.05)
    following.links.follow([])
    await following.until(lambda: len(following.links) == 0)


async def test_metrics_forget_who_was_given_up_for_good(
    following: Following, start_worker: StartWorker
) -> None:
    first, second = await start_worker(name="a"), await start_worker(name="b")
    both = [WorkerConfig(first.address), WorkerConfig(second.address)]
    following.links.follow(both)
    await following.until(lambda: following.names() == ["a", "b"])
    await first.stop()
    await following.until(lambda: first.address in following.series())
    following.links.follow(both[1:])
    await following.until(lambda: len(following.links) == 1)
    assert {"a", "b", first.address} <= following.series()
    following.now += 3600
    assert following.series() == {"b"}


async def test_a_worker_that_takes_over_an_address_is_linked_under_its_name(
    following: Following, start_worker: StartWorker
) -> None:
    worker = await start_worker(name="worker-5")
    following.links.follow([WorkerConfig(worker.address, "worker-3")])
    await following.until(lambda: len(worker.hellos) > 1)
    assert following.names() == []
    following.links.follow([WorkerConfig(worker.address, "worker-5")])
    await following.until(lambda: following.names() == ["worker-5"])
    assert len(following.links) == 1
    following.now += 3600
    assert following.series() == {"worker-5"}


async def test_a_link_that_stands_outlives_a_word_that_another_one_is_there(
    following: Following, start_worker: StartWorker
) -> None:
    worker = await start_worker(name="a")
    following.links.follow([WorkerConfig(worker.address, "a")])
    await following.until(lambda: following.names() == ["a"])
    following.links.follow([WorkerConfig(worker.address, "b")])
    await worker.stop()
    worker.name = "b"
    await worker.start()
    await following.until(lambda: following.names() == ["b"])


async def test_of_two_that_are_told_at_one_address_the_later_counts(
    following: Following, start_worker: StartWorker
) -> None:
    worker = await start_worker(name="new")
    both = [WorkerConfig(worker.address, "old"), WorkerConfig(worker.address, "new")]
    following.links.follow(both)
    await following.until(lambda: following.names() == ["new"])
