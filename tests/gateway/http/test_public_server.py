"""A gateway that is told to leave: what runs ends well, or in words, and is billed either way."""

from __future__ import annotations

import asyncio
import json
import logging

import httpx
import pytest

from gateway.errors import RequestTimeout, ShuttingDown
from gateway.http.deadline import Deadline
from gateway.store.interface import Counts
from proto import worker_pb2 as pb
from tests.gateway.conftest import Live, Serve, StartWorker, events_of
from tests.gateway.fake_worker import Line, Script, endless, silence
from tests.gateway.test_billing import BODY, ESTIMATE, KEY, acme, used

PATH = "/v1/chat/completions"


async def serving(
    start_worker: StartWorker, serve: Serve, script: Script, shutdown_s: float
) -> Live:
    live = await serve(await start_worker(script=script), tenants=(acme(),), shutdown_s=shutdown_s)
    await live.until_linked("w0")
    return live


def ended(caplog: pytest.LogCaptureFixture) -> str:
    [line] = [line for line in caplog.messages if line.startswith("request_ended")]
    return line


async def test_a_stream_that_never_ends_is_failed_in_words_and_billed(
    start_worker: StartWorker, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway")
    live = await serving(start_worker, serve, endless, 0.2)
    body = {**BODY, "stream": True, "max_tokens": 100_000}
    text = ""
    async with live.http.stream("POST", PATH, json=body, headers=KEY) as response:
        leaving: asyncio.Task[None] | None = None
        async for piece in response.aiter_text():
            text += piece
            leaving = leaving or asyncio.ensure_future(live.leave())
    assert leaving is not None
    await leaving
    last = events_of(text)[-1]
    assert json.loads(last)["error"]["code"] == "shutting_down"
    assert "status=503 outcome=shutting_down" in ended(caplog)
    counts = await used(live)
    assert (counts.requests, counts.prompt_tokens) == (1, ESTIMATE)
    assert 0 < counts.completion_tokens == live.metric("completion_tokens_total")
    live.assert_nothing_is_left()


async def test_what_ends_within_its_time_ends_well(
    start_worker: StartWorker, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway")
    begun, told = asyncio.Event(), asyncio.Event()

    async def script(submit: pb.Submit, line: Line) -> None:
        line.text(submit.request_id, "one")
        begun.set()
        await told.wait()
        line.text(submit.request_id, " two", finish_reason=pb.STOP)
        line.done(submit.request_id, completion=2)

    live = await serving(start_worker, serve, script, 30.0)
    request = asyncio.ensure_future(live.http.post(PATH, json=BODY, headers=KEY))
    await begun.wait()
    leaving = asyncio.ensure_future(live.leave())
    await until_refused(live)
    told.set()
    answer = await request
    await leaving
    assert answer.json()["choices"][0]["message"]["content"] == "one two"
    assert "status=200 outcome=finished" in ended(caplog)
    assert await used(live) == Counts(1, 7, 3, 2)


async def test_a_request_without_output_yet_gets_a_503_and_costs_nothing(
    start_worker: StartWorker, serve: Serve
) -> None:
    live = await serving(start_worker, serve, silence, 0.1)
    request = asyncio.ensure_future(live.http.post(PATH, json=BODY, headers=KEY))
    await live.until(lambda: live.gateway.fleet.in_flight == 1)
    await live.leave()
    answer = await request
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "shutting_down"
    assert answer.headers["retry-after"] == "1"
    assert await used(live) == Counts()


async def until_refused(live: Live) -> None:
    """The gateway takes no connections any more."""
    async with asyncio.timeout(20):
        while True:
            try:
                async with httpx.AsyncClient(trust_env=False) as http:
                    await http.get(f"http://127.0.0.1:{live.port}/health")
            except httpx.ConnectError:
                return


async def test_a_deadline_tells_its_own_time_from_the_end_of_all() -> None:
    with pytest.raises(RequestTimeout):
        async with Deadline(0.01).within():
            await asyncio.sleep(60)
    deadline = Deadline(60)
    asyncio.get_running_loop().call_soon(deadline.end_all)
    with pytest.raises(ShuttingDown):
        async with deadline.within():
            await asyncio.sleep(60)
    with pytest.raises(ShuttingDown):
        async with deadline.within():
            raise AssertionError("nothing begins any more")
