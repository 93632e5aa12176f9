"""Real gateways, real links, workers with finite caches: the views are the caches' own truth."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc.aio
import pytest

from gateway.config import RoutingConfig
from loadtest.fake.engine import Pace
from loadtest.fake.worker import FakeWorker, Identity
from proto import worker_pb2_grpc
from tests.gateway.conftest import Live, Serve

MODEL = "fake-model"
NAMES = ("w0", "w1", "w2")
DEFAULTS = RoutingConfig(tokens_per_byte=1.0, warm_up_s=0.0)


@dataclass
class Cached:
    """A worker that keeps what it was asked, up to its capacity, and where it listens."""

    worker: FakeWorker
    address: str

    def held(self) -> dict[bytes, int]:
        return dict(self.worker._cache.snapshot())


@pytest.fixture
async def workers() -> AsyncIterator[list[Cached]]:
    started, servers, engines = [], [], []
    for name in NAMES:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        worker = FakeWorker(Identity(name, MODEL, cache_tokens=4000), Pace(1e9, 0.0))
        worker_pb2_grpc.add_WorkerServicer_to_server(worker, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        engines.append(asyncio.create_task(worker.engine.run()))
        servers.append(server)
        started.append(Cached(worker, f"127.0.0.1:{port}"))
    yield started
    for engine in engines:
        engine.cancel()
    for server in servers:
        await server.stop(None)


def message(tokens: int, name: str) -> dict[str, str]:
    """A message that the workers count as so many tokens, and that has about so many bytes."""
    return {"role": "user", "content": f"{tokens}:{name}".ljust(tokens - 28, ".")}


async def ask(live: Live, messages: list[dict[str, str]]) -> tuple[str, int]:
    """Which worker answered, and how much of the prompt it had."""
    body = {"model": MODEL, "messages": messages, "max_tokens": 2}
    answer = await live.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    details = answer.json()["usage"]["prompt_tokens_details"]
    return answer.headers["x-pando-worker"], details["cached_tokens"]


def seen(live: Live, name: str) -> dict[bytes, int]:
    return next(dict(w.view.stored) for w in live.gateway.fleet.workers() if w.name == name)


async def served(serve: Serve, workers: list[Cached]) -> Live:
    live = await serve(*workers, routing=DEFAULTS)  # type: ignore[arg-type]
    await live.until_linked(*NAMES)
    return live


async def test_a_conversation_stays_and_finds_all_of_its_last_turn(
    serve: Serve, workers: list[Cached]
) -> None:
    live = await served(serve, workers)
    messages = [message(300, "system")]
    names = set()
    for turn in range(5):
        messages.append(message(200, f"turn {turn}"))
        name, cached = await ask(live, messages)
        names.add(name)
        assert cached == (300 + 200 * turn if turn else 0)
    assert len(names) == 1


async def test_views_equal_caches_after_evictions_and_with_two_gateways(
    serve: Serve, workers: list[Cached]
) -> None:
    lives = [await served(serve, workers), await served(serve, workers)]
    rng = random.Random(3)

    async def converse(number: int) -> None:
        messages = [message(300, f"system {number % 3}")]
        for turn in range(4):
            messages.append(message(200, f"{number}/{turn}"))
            await ask(rng.choice(lives), messages)

    await asyncio.gather(*(converse(number) for number in range(40)))
    for live in lives:
        for name, cached in zip(NAMES, workers, strict=True):
            await live.until(lambda: seen(live, name) == cached.held())  # noqa: B023
            assert 0 < len(seen(live, name)) <= 4000 // 200
        assert all(worker.view.num_guesses == 0 for worker in live.gateway.fleet.workers())
        assert live.metric("cache_events_total", kind="evicted") > 0
        assert live.metric("cache_gaps_total") == 0
        live.assert_nothing_is_left()


async def test_what_was_predicted_is_what_was_cached(serve: Serve, workers: list[Cached]) -> None:
    live = await served(serve, workers)
    for turn in range(1, 6):
        await ask(live, [message(200, f"turn {one}") for one in range(turn)])
    assert live.metric("predicted_tokens_total") == 200 + 400 + 600 + 800
    assert live.metric("prediction_error_tokens_total") == 0


async def test_decisions_and_views_are_in_the_metrics(serve: Serve, workers: list[Cached]) -> None:
    live = await served(serve, workers)
    await ask(live, [message(500, "a")])
    await ask(live, [message(500, "a"), message(200, "b")])
    assert live.metric("routing_decisions_total", reason="miss", policy="cost") == 1
    assert live.metric("routing_decisions_total", reason="hit", policy="cost") == 1
    assert live.metric("worker_view_boundaries") == 2
