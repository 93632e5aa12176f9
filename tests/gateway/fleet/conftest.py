"""Running links over one fleet, and what their requests are told."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable

import pytest
from prometheus_client import CollectorRegistry

from gateway.config import LinkConfig, WorkerConfig
from gateway.errors import GatewayError
from gateway.fleet.link import WorkerLink
from gateway.fleet.session import LinkContext
from gateway.fleet.workers import Fleet, Worker
from gateway.request import Ask, Decoding, Event, Failed, Output, Sampling, Stopping, TextPrompt
from gateway.telemetry.log import EventLog
from gateway.telemetry.metrics import Telemetry
from proto import worker_pb2 as pb
from tests.gateway.conftest import FAST_LINK
from tests.gateway.fake_worker import FakeWorker

ASK = Ask("trace", "acme", b"space", TextPrompt("Hi"), Decoding(Sampling(), Stopping()))


class Links:
    """Running links over one fleet."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.telemetry = Telemetry(CollectorRegistry())
        self.tasks: list[asyncio.Task[None]] = []

    def add(
        self, worker: FakeWorker, settings: LinkConfig = FAST_LINK, name: str | None = None
    ) -> None:
        log = EventLog(logging.getLogger("gateway"))
        context = LinkContext("g0", settings, self.fleet, self.telemetry, log, random.Random(1))
        link = WorkerLink(WorkerConfig(worker.address, name), context)
        self.tasks.append(asyncio.create_task(link.run()))

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 - any state, not only ours
                await asyncio.sleep(0.005)

    async def linked(self, name: str = "w0") -> Worker:
        await self.until(lambda: [w.name for w in self.fleet.workers()] == [name])
        return self.fleet.workers()[0]

    def breaks(self, reason: str) -> float:
        return sum(
            sample.value
            for family in self.telemetry.link_breaks.collect()
            for sample in family.samples
            if sample.name.endswith("_total") and sample.labels["reason"] == reason
        )


@pytest.fixture
async def links() -> AsyncIterator[Links]:
    links = Links()
    yield links
    for task in links.tasks:
        task.cancel()
    await asyncio.gather(*links.tasks, return_exceptions=True)


def output(event: Event) -> Output:
    assert isinstance(event, Output)
    return event


def error(event: Event) -> GatewayError:
    assert isinstance(event, Failed)
    return event.error


async def ended(events: list[Event], links: Links) -> list[Event]:
    await links.until(lambda: events and not isinstance(events[-1], Output))
    return events


def stored(name: str, num_tokens: int = 64) -> pb.CacheEvent:
    return pb.CacheEvent(kind=pb.CacheEvent.STORED, digest=name.encode(), num_tokens=num_tokens)
