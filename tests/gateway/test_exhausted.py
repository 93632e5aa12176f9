"""A worker without memory: it gets less for a while, and is taken for neither idle nor broken."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from proto import worker_pb2 as pb
from tests.gateway.conftest import Live, Serve, StartWorker
from tests.gateway.fake_worker import FakeWorker, Line, Script, silence, words


async def no_memory(submit: pb.Submit, line: Line) -> None:
    """Refuse it at once, for want of memory."""
    failed = pb.Failed(request_id=submit.request_id, code=pb.OVERLOADED, exhausted=True)
    line.step(failed=[failed])


async def ask(live: Live, number: int) -> httpx.Response:
    body: dict[str, Any] = {
        "model": "tiny",
        "messages": [{"role": "user", "content": f"question {number}"}],
        "max_tokens": 30,
    }
    return await live.http.post("/v1/chat/completions", json=body)


async def two(start_worker: StartWorker, serve: Serve, script: Script) -> tuple[Live, FakeWorker]:
    """A gateway with a worker of the script and one that answers."""
    bad, good = await start_worker(name="w0", script=script), await start_worker(name="w1")
    live = await serve(bad, good)
    await live.until_linked("w0", "w1")
    return live, bad


async def test_a_worker_without_memory_draws_no_more_requests_and_is_tried_again(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, bad = await two(start_worker, serve, no_memory)
    answers = [await ask(live, number) for number in range(100, 120)]
    assert {answer.status_code for answer in answers} == {200}
    # More only where the machine took seconds for these: then it may be tried again.
    assert 1 <= len(bad.submits) <= 4
    assert live.metric("retries_total") == len(bad.submits)
    assert live.metric("worker_held", worker="w0") == 1
    assert live.gateway.fleet.workers()[0].breaker.state == "closed"
    before, bad.script = len(bad.submits), words
    number = 0
    async with asyncio.timeout(20):
        while live.metric("worker_held", worker="w0"):
            await asyncio.sleep(0.1)
            number += 1
            await ask(live, number)
    assert len(bad.submits) == before + 1
    live.assert_nothing_is_left()


async def test_where_nobody_else_is_a_held_worker_is_asked_at_once(
    start_worker: StartWorker, serve: Serve
) -> None:
    worker = await start_worker(script=no_memory)
    live = await serve(worker)
    await live.until_linked("w0")
    refused = asyncio.create_task(ask(live, 0))
    await live.until(lambda: len(worker.submits) == 1)
    await live.until(lambda: live.metric("waiting_requests") == 1)
    worker.script = silence
    other = asyncio.create_task(ask(live, 1))
    await live.until(lambda: len(worker.submits) == 2)
    assert live.metric("waiting_requests") == 1, "what it refused waits, so that memory comes"
    other.cancel()
    worker.script = words
    assert (await refused).status_code == 200
    live.assert_nothing_is_left()
