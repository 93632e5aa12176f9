"""A lone worker that is away for a moment: what waits, runs or comes then is not lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx

from gateway.config import QueueConfig
from proto import worker_pb2 as pb
from tests.gateway.conftest import Live, Serve, StartWorker
from tests.gateway.fake_worker import FakeWorker, Line, failing, silence, words
from tests.gateway.storyteller import story

BODY: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "Hi"}],
    "max_tokens": 30,
}


async def lone(
    start_worker: StartWorker, serve: Serve, script: Any, **queue: float
) -> tuple[Live, FakeWorker]:
    worker = await start_worker(script=script)
    live = await serve(worker, queue=QueueConfig(**queue))  # type: ignore[arg-type]
    await live.until_linked("w0")
    return live, worker


async def ask(live: Live, **changes: object) -> httpx.Response:
    return await live.http.post("/v1/chat/completions", json={**BODY, **changes})


async def blip(live: Live, worker: FakeWorker) -> None:
    """Every stream breaks; the same process is there again at once."""
    await worker.stop()
    await worker.start()
    await live.until(lambda: bool(live.gateway.fleet.workers()))


async def test_a_blip_of_the_link_is_one_failure_however_many_streams_it_had(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, worker = await lone(start_worker, serve, story(0.01))
    tasks = [asyncio.create_task(ask(live, seed=number)) for number in range(8)]
    await live.until(lambda: len(worker.submits) == 8)
    await blip(live, worker)
    answers = await asyncio.gather(*tasks)
    assert {answer.status_code for answer in answers} == {200}
    assert live.gateway.fleet.workers()[0].breaker.state == "closed"
    live.assert_nothing_is_left()


async def test_what_waits_when_the_last_worker_goes_waits_for_the_next(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, worker = await lone(start_worker, serve, silence, credit_ahead=0)
    linked = live.gateway.fleet.workers()[0]
    linked.info = replace(linked.info, max_running_sequences=1)
    tasks = [asyncio.create_task(ask(live)) for _ in range(6)]
    await live.until(lambda: live.metric("waiting_requests") == 5)
    worker.script = words
    await blip(live, worker)
    assert {answer.status_code for answer in await asyncio.gather(*tasks)} == {200}


async def test_what_comes_while_the_last_worker_is_away_waits_a_while(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, worker = await lone(start_worker, serve, words)
    await worker.stop()
    await live.until(lambda: not live.gateway.fleet.workers())
    task = asyncio.create_task(ask(live))
    await live.until(lambda: live.metric("waiting_requests") == 1)
    await worker.start()
    assert (await task).status_code == 200


async def test_what_waits_when_the_last_worker_begins_to_leave_waits_for_the_next(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, worker = await lone(start_worker, serve, silence, credit_ahead=0)
    linked = live.gateway.fleet.workers()[0]
    linked.info = replace(linked.info, max_running_sequences=1)
    tasks = [asyncio.create_task(ask(live)) for _ in range(2)]
    await live.until(lambda: live.metric("waiting_requests") == 1)
    worker.load = pb.Load(running_sequences=1, draining=True)
    await live.until(lambda: not live.gateway.fleet.serving("tiny"))
    tasks.append(asyncio.create_task(ask(live)))
    await live.until(lambda: live.metric("waiting_requests") == 2)
    worker.load, worker.script = pb.Load(), words
    await blip(live, worker)
    assert {answer.status_code for answer in await asyncio.gather(*tasks)} == {200}


async def test_and_not_for_ever(start_worker: StartWorker, serve: Serve) -> None:
    live, worker = await lone(start_worker, serve, words, no_worker_s=0.3)
    await worker.stop()
    await live.until(lambda: not live.gateway.fleet.workers())
    answer = await ask(live)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_worker")
    assert answer.headers["retry-after"]
    live.assert_nothing_is_left()


async def test_a_hand_back_before_the_first_output_waits_for_the_next_worker(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, worker = await lone(start_worker, serve, silence)
    tasks = [asyncio.create_task(ask(live)) for _ in range(3)]
    await live.until(lambda: len(worker.submits) == 3)
    worker.script = words
    worker.hand_back()
    await asyncio.sleep(0.05)
    await blip(live, worker)
    assert {answer.status_code for answer in await asyncio.gather(*tasks)} == {200}


async def test_a_worker_that_is_full_for_a_moment_is_asked_again(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, worker = await lone(start_worker, serve, failing(pb.OVERLOADED))
    task = asyncio.create_task(ask(live))
    await live.until(lambda: len(worker.submits) == 1)
    worker.script = words
    assert (await task).status_code == 200
    live.assert_nothing_is_left()


async def test_a_lost_last_word_ends_the_request_as_done(
    start_worker: StartWorker, serve: Serve
) -> None:
    async def all_but_done(submit: pb.Submit, line: Line) -> None:
        for choice in range(submit.n):
            finish = pb.Output(
                request_id=submit.request_id,
                choice=choice,
                text="all",
                token_ids=b"\1\0\0\0",
                finish_reason=pb.STOP,
            )
            line.step(outputs=[finish])
        await asyncio.Event().wait()

    live, worker = await lone(start_worker, serve, all_but_done)
    task = asyncio.create_task(ask(live, n=2))
    await live.until(lambda: live.metric("ttft_seconds_count") == 1)
    await worker.stop()
    answer = await task
    assert answer.status_code == 200
    assert [choice["message"]["content"] for choice in answer.json()["choices"]] == ["all"] * 2
    assert answer.json()["usage"]["completion_tokens"] == 2
    assert live.metric("retries_total") == 0
    live.assert_nothing_is_left()


async def test_a_stream_that_nobody_can_take_up_holds_up_nobody(
    start_worker: StartWorker, serve: Serve
) -> None:
    workers = [await start_worker(name=f"w{i}", script=story(0.02)) for i in range(2)]
    live = await serve(*workers)
    await live.until_linked("w0", "w1")
    stream = asyncio.create_task(ask(live, max_tokens=500))
    await live.until(lambda: live.metric("ttft_seconds_count") == 1)
    teller, other = sorted(workers, key=lambda worker: -len(worker.submits))
    linked = next(w for w in live.gateway.fleet.workers() if w.name == other.name)
    linked.info = replace(linked.info, resumes=False)
    other.script = words
    await teller.stop()
    await live.until(lambda: live.metric("waiting_requests") == 1)
    assert (await ask(live)).status_code == 200
    stream.cancel()
    await live.until(lambda: live.metric("waiting_requests") == 0)
    live.assert_nothing_is_left()
