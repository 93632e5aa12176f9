"""A stream whose worker is lost goes on elsewhere, and its client never knows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from gateway.config import QueueConfig, RetryConfig
from proto import worker_pb2 as pb
from tests.gateway.conftest import Live, Serve, StartWorker, events_of
from tests.gateway.fake_worker import FakeWorker, Line
from tests.gateway.storyteller import story

BODY = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "Tell me"}],
    "max_tokens": 30,
    "n": 3,
    "seed": 11,
    "logprobs": True,
    "stream_options": {"include_usage": True},
    "stream": True,
}


@dataclass
class Told:
    """A streamed answer, put together by choice."""

    text: dict[int, str] = field(default_factory=dict)
    logprobs: dict[int, list[float]] = field(default_factory=dict)
    finish: dict[int, str] = field(default_factory=dict)
    roles: int = 0
    usage: dict[str, Any] | None = None
    error: str | None = None

    @classmethod
    def of(cls, text: str) -> Told:
        told = cls()
        events = events_of(text)
        for event in events:
            if event == "[DONE]":
                continue
            chunk = json.loads(event)
            if "error" in chunk:
                told.error = chunk["error"]["code"]
                continue
            told.usage = chunk.get("usage") or told.usage
            for choice in chunk["choices"]:
                told.take(choice)
        assert (events[-1] == "[DONE]") == (told.error is None)
        return told

    def take(self, choice: dict[str, Any]) -> None:
        index = choice["index"]
        delta = choice["delta"]
        self.roles += "role" in delta
        self.text[index] = self.text.get(index, "") + delta.get("content", "")
        if choice["logprobs"]:
            values = [entry["logprob"] for entry in choice["logprobs"]["content"]]
            self.logprobs.setdefault(index, []).extend(values)
        if choice["finish_reason"]:
            assert index not in self.finish, "a choice ends once"
            self.finish[index] = choice["finish_reason"]


async def stream(live: Live, during: Callable[[str], object], **changes: object) -> Told:
    """Streams; `during` is called with all that came so far after every piece."""
    text = ""
    body = {**BODY, **changes}
    async with live.http.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200
        async for piece in response.aiter_text():
            text += piece
            result = during(text)
            if asyncio.iscoroutine(result):
                await result
    return Told.of(text)


async def fleet(
    start_worker: StartWorker, serve: Serve, size: int = 3, **settings: Any
) -> tuple[Live, list[FakeWorker]]:
    workers = [await start_worker(name=f"w{i}", script=story(0.008)) for i in range(size)]
    live = await serve(*workers, **settings)
    await live.until_linked(*(worker.name for worker in workers))
    return live, workers


def nothing(_: str) -> None:
    pass


class Breaker:
    """Spoils whoever tells the story, each time so many more events have come."""

    def __init__(self, workers: list[FakeWorker], spoil: Callable[[FakeWorker], Any], *at: int):
        self._workers = workers
        self._spoil = spoil
        self._at = list(at)
        self.spoiled: list[FakeWorker] = []

    async def __call__(self, text: str) -> None:
        if self._at and text.count("data: ") >= self._at[0]:
            self._at.pop(0)
            worker = max(self._workers, key=lambda one: len(one.submits) and one.last_submit_at)
            self.spoiled.append(worker)
            await self._spoil(worker)


async def hand_back(worker: FakeWorker) -> None:
    worker.hand_back()


async def kill(worker: FakeWorker) -> None:
    await worker.stop()


@pytest.mark.parametrize("spoil", [kill, hand_back])
async def test_what_a_client_gets_is_what_it_would_have_got(
    start_worker: StartWorker, serve: Serve, spoil: Callable[[FakeWorker], Any]
) -> None:
    live, workers = await fleet(start_worker, serve)
    whole = await stream(live, nothing)
    assert whole.finish == dict.fromkeys(range(3), "length")
    breaker = Breaker(workers, spoil, 15, 45)
    again = await stream(live, breaker)
    assert len(breaker.spoiled) == 2
    assert again == whole
    assert live.metric("continuations_total") == 2
    live.assert_nothing_is_left()


async def test_the_cut_may_fall_anywhere(start_worker: StartWorker, serve: Serve) -> None:
    live, workers = await fleet(start_worker, serve)
    whole = await stream(live, nothing)
    chance = random.Random(3)
    for _ in range(12):
        breaker = Breaker(workers, hand_back, chance.randrange(1, 90))
        assert await stream(live, breaker) == whole
    live.assert_nothing_is_left()


async def test_an_answer_in_one_piece_goes_on_too(start_worker: StartWorker, serve: Serve) -> None:
    live, workers = await fleet(start_worker, serve, 2)
    body = {key: value for key, value in BODY.items() if not key.startswith("stream")}
    whole = (await live.http.post("/v1/chat/completions", json=body)).json()
    request = asyncio.create_task(live.http.post("/v1/chat/completions", json=body))
    await live.until(lambda: sum(len(worker.submits) for worker in workers) == 2)
    await asyncio.sleep(0.05)
    teller = max(workers, key=lambda worker: worker.last_submit_at)
    await teller.stop()
    again = (await request).json()
    assert again["choices"] == whole["choices"]
    assert again["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert live.metric("continuations_total") == 1
    live.assert_nothing_is_left()


async def test_without_a_seed_the_gateway_draws_one_that_stays(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, workers = await fleet(start_worker, serve)
    told = await stream(live, Breaker(workers, hand_back, 30), seed=None)
    assert told.error is None
    seeds = [submit.sampling.seed for worker in workers for submit in worker.submits]
    assert len(seeds) == 2
    assert seeds[0] == seeds[1]
    await stream(live, nothing, seed=None)
    assert len({submit.sampling.seed for worker in workers for submit in worker.submits}) == 2


async def test_a_lone_worker_that_comes_back_takes_its_streams_up(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, [worker] = await fleet(start_worker, serve, 1)
    whole = await stream(live, nothing)

    async def restart(_: FakeWorker) -> None:
        await worker.stop()
        worker.incarnation = "second"
        await worker.start()

    assert await stream(live, Breaker([worker], restart, 30)) == whole
    live.assert_nothing_is_left()


async def test_when_nobody_comes_the_stream_ends_with_an_error(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, [worker] = await fleet(start_worker, serve, 1, queue=QueueConfig(max_wait_s=0.3))
    told = await stream(live, Breaker([worker], kill, 30))
    assert told.error == "worker_lost"
    live.assert_nothing_is_left()


async def test_a_spent_budget_ends_the_stream(start_worker: StartWorker, serve: Serve) -> None:
    retries = RetryConfig(burst=1, per_request=0, per_s=0)
    live, workers = await fleet(start_worker, serve, 3, retries=retries)
    told = await stream(live, Breaker(workers, kill, 20, 60))
    assert told.error == "worker_lost"
    assert live.metric("continuations_total") == 1
    live.assert_nothing_is_left()


async def test_hand_backs_cost_neither_attempts_nor_budget(
    start_worker: StartWorker, serve: Serve
) -> None:
    retries = RetryConfig(burst=1, per_request=0, per_s=0)
    live, workers = await fleet(start_worker, serve, 6, retries=retries)
    whole = await stream(live, nothing)
    assert await stream(live, Breaker(workers, hand_back, 10, 25, 40, 55, 70)) == whole


async def test_a_step_that_cannot_be_computed_is_not_tried_elsewhere(
    start_worker: StartWorker, serve: Serve
) -> None:
    async def poison(submit: pb.Submit, line: Line) -> None:
        line.text(submit.request_id, "a")
        line.fail(submit.request_id, pb.INTERNAL)

    live, workers = await fleet(start_worker, serve)
    for worker in workers:
        worker.script = poison
    told = await stream(live, nothing, n=1)
    assert told.error == "internal_error"
    assert sum(len(worker.submits) for worker in workers) == 1


async def test_every_stream_of_a_lost_worker_goes_on(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, workers = await fleet(start_worker, serve, 3)

    async def one(number: int) -> tuple[Told, Told]:
        messages = [{"role": "system", "content": f"prefix {number}"}]
        whole = await stream(live, nothing, messages=messages, seed=number)
        begun.release()
        await ready.wait()
        return whole, await stream(live, nothing, messages=messages, seed=number)

    begun, ready = asyncio.Semaphore(0), asyncio.Event()
    tasks = [asyncio.create_task(one(number)) for number in range(24)]
    for _ in tasks:
        await begun.acquire()
    ready.set()
    await asyncio.sleep(0.08)
    victim = max(workers, key=lambda worker: worker.last_submit_at)
    await victim.stop()
    for task in tasks:
        whole, again = await task
        assert again == whole
    assert live.metric("continuations_total") > 0
    live.assert_nothing_is_left()


async def test_a_hang_up_while_a_stream_waits_to_go_on_leaves_nothing(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, [worker] = await fleet(start_worker, serve, 1)
    text = ""
    impatient = live.http.stream("POST", "/v1/chat/completions", json=BODY, timeout=0.4)
    with contextlib.suppress(httpx.ReadTimeout):
        async with impatient as response:
            async for piece in response.aiter_text():
                text += piece
                if text.count("data: ") > 10 and worker.port:
                    await worker.stop()
                    worker.port = 0
        pytest.fail("nobody was there to end the stream")
    await live.until(lambda: live.metric("requests_total", status="499") == 1)
    live.assert_nothing_is_left()
    assert live.metric("waiting_requests") == 0
