"""Live pieces: fake workers on real sockets, and the gateway served by uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypedDict, Unpack

import httpx
import pytest
import uvicorn
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from gateway.assembly import Gateway, build
from gateway.config import (
    BreakerConfig,
    DoctorConfig,
    ForeignConfig,
    GatewayConfig,
    LimitConfig,
    LinkConfig,
    QueueConfig,
    RetryConfig,
    RoutingConfig,
    WorkerConfig,
)
from gateway.http.public_server import PublicServer
from gateway.request import Ask, Deliver
from gateway.telemetry.log import EventLog
from gateway.tenant_config import PolicyConfig, QuotaConfig, RedisConfig, TenantConfig
from proto import worker_pb2 as pb
from tests.gateway.fake_worker import FakeWorker, Script

FAST_LINK = LinkConfig(hello_timeout_s=0.3, silence_s=1.5, backoff_min_s=0.02, backoff_max_s=0.1)


# So that a test knows where the next request goes.
BY_RING = RoutingConfig(policy=PolicyConfig("consistent"))


class Chat(TypedDict):
    """The body of a plain chat, as the official client takes it."""

    model: str
    messages: list[ChatCompletionMessageParam]


class WorkerSettings(TypedDict, total=False):
    """What a test may set of a fake worker."""

    name: str
    model: str
    task: str
    incarnation: str
    script: Script
    protocol: int
    greets: bool
    heartbeat_s: float
    cache_events: list[pb.CacheEvent]
    load: pb.Load
    port: int


class GatewaySettings(TypedDict, total=False):
    """What a test may set of a gateway."""

    aliases: dict[str, str]
    tenants: tuple[TenantConfig, ...]
    limits: LimitConfig
    link: LinkConfig
    routing: RoutingConfig
    queue: QueueConfig
    foreign: tuple[ForeignConfig, ...]
    retries: RetryConfig
    breaker: BreakerConfig
    doctor: DoctorConfig
    redis: RedisConfig
    quota: QuotaConfig
    keep_alive_s: float
    request_timeout_s: float
    shutdown_s: float


class StartWorker(Protocol):
    """Starts a fake worker."""

    async def __call__(self, **settings: Unpack[WorkerSettings]) -> FakeWorker: ...


class NoDoor:
    """The door of a worker that is never asked."""

    def submit(self, ask: Ask, deliver: Deliver) -> AbstractContextManager[None]:
        raise AssertionError("nobody asks this worker")


class QuietServer(uvicorn.Server):
    """Leaves the signals of the test process alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class QuietPublicServer(QuietServer, PublicServer):
    """The gateway's own, in the test process."""


@dataclass(frozen=True)
class Live:
    """A gateway that serves, and clients for it. leave: it is told to, as by a signal."""

    gateway: Gateway
    port: int
    leave: Callable[[], Awaitable[None]]
    http: httpx.AsyncClient
    openai: AsyncOpenAI

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry the labels."""
        total = 0.0
        for family in self.gateway.telemetry.families().collect():
            for sample in family.samples:
                if (
                    sample.name == f"pando_gateway_{name}"
                    and labels.items() <= sample.labels.items()
                ):
                    total += sample.value
        return total

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds; the suite's timeout is the only clock."""
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 - any state, not only ours
                await asyncio.sleep(0.005)

    async def until_linked(self, *names: str) -> None:
        """Wait for exactly these workers, and for rings that know them."""
        wanted = set(names)
        await self.until(lambda: {w.name for w in self.gateway.fleet.workers()} == wanted)
        await self.gateway.router.rebuild()

    def assert_nothing_is_left(self) -> None:
        """Every accepted request ended once, and every lease is back."""
        assert self.gateway.fleet.in_flight == 0
        assert self.metric("requests_in_flight") == 0
        assert self.metric("accepted_requests_total") == self.metric("ended_requests_total")


class Serve(Protocol):
    """Serves a gateway for the given workers."""

    async def __call__(self, *workers: FakeWorker, **settings: Unpack[GatewaySettings]) -> Live: ...


@pytest.fixture
async def start_worker() -> AsyncIterator[StartWorker]:
    """Start a fake worker; it stops with the test."""
    workers: list[FakeWorker] = []

    async def start(**settings: Unpack[WorkerSettings]) -> FakeWorker:
        workers.append(await FakeWorker(**settings).start())
        return workers[-1]

    yield start
    for worker in workers:
        await worker.stop()


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serve a gateway for the given workers; it stops with the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(*workers: FakeWorker, **settings: Unpack[GatewaySettings]) -> Live:
            targets = tuple(WorkerConfig(address=worker.address) for worker in workers)
            chosen: GatewaySettings = {
                "link": FAST_LINK,
                "routing": BY_RING,
                "shutdown_s": 1.0,
                **settings,
            }
            config = GatewayConfig(port=0, workers=targets, **chosen)
            return await stack.enter_async_context(served(config))

        yield start


@pytest.fixture
def serve_linked(serve: Serve) -> Serve:
    """The same, once the gateway knows all of the workers."""

    async def start(*workers: FakeWorker, **settings: Unpack[GatewaySettings]) -> Live:
        live = await serve(*workers, **settings)
        await live.until_linked(*(worker.name for worker in workers))
        return live

    return start


@contextlib.asynccontextmanager
async def served(config: GatewayConfig, admin: socket.socket | None = None) -> AsyncIterator[Live]:
    """A gateway that serves on any port, and its admin API on a listener."""
    gateway = build(config, EventLog(logging.getLogger("gateway")), admin)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = QuietPublicServer(gateway.app, config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    base = f"http://127.0.0.1:{port}"
    async with (
        httpx.AsyncClient(base_url=base, timeout=30, trust_env=False) as http,
        AsyncOpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0) as openai,
    ):

        async def leave() -> None:
            server.should_exit = True
            await task

        live = Live(gateway, port, leave, http, openai)
        await live.until(lambda: server.started)
        try:
            yield live
        finally:
            # A gateway that leaves keeps idle connections for a second.
            await http.aclose()
            await openai.close()
            await leave()


def events_of(text: str) -> list[str]:
    """The data of each event of a stream."""
    return re.findall(r"^data: (.*)$", text, re.MULTILINE)
