"""One request's story: retries before the first output, hang-ups, and an end for everything."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Coroutine
from functools import partial
from typing import Protocol, Unpack

import openai
import pytest
from openai import AsyncStream
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

from gateway.config import LimitConfig, LinkConfig
from proto import worker_pb2 as pb
from tests.gateway.conftest import Chat, GatewaySettings, Live, Serve, StartWorker, events_of
from tests.gateway.fake_worker import (
    FakeWorker,
    Line,
    Script,
    endless,
    failing,
    silence,
    words,
)

CHAT: Chat = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}

Chunks = AsyncStream[ChatCompletionChunk]


class RawAnswer(Protocol):
    """A streamed answer as the official client has it before it is parsed."""

    def parse(self) -> Chunks | Coroutine[None, None, Chunks]: ...


def chat(number: int) -> Chat:
    """Chats whose static prefixes differ."""
    return {"model": "tiny", "messages": [{"role": "system", "content": f"prefix {number}"}]}


async def two(
    start_worker: StartWorker, serve: Serve, script: Script, **settings: Unpack[GatewaySettings]
) -> tuple[Live, FakeWorker, FakeWorker]:
    """A gateway with one worker of the script, which has the key of CHAT, and one that answers."""
    workers = [await start_worker(name=name) for name in ("w0", "w1")]
    live = await serve(*workers, **settings)
    await live.until_linked("w0", "w1")
    await live.openai.chat.completions.create(**CHAT)
    workers.sort(key=lambda worker: -len(worker.submits))
    workers[0].script = script
    return live, workers[0], workers[1]


@pytest.mark.parametrize("code", [pb.OVERLOADED, pb.DRAINING])
async def test_a_worker_that_is_full_or_leaving_passes_the_request_on(
    start_worker: StartWorker, serve: Serve, code: pb.FailureCode
) -> None:
    live, bad, good = await two(start_worker, serve, failing(code))
    answer = await live.openai.chat.completions.with_raw_response.create(**CHAT)
    assert answer.headers["x-pando-worker"] == good.name
    assert len(bad.submits) == 2
    assert live.metric("retries_total") == 1
    assert live.metric("routing_decisions_total", worker=good.name) == 1
    assert live.metric("worker_held", worker=bad.name) == 0
    live.assert_nothing_is_left()


async def test_a_refused_request_is_not_tried_elsewhere(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, _, good = await two(start_worker, serve, failing(pb.INVALID_REQUEST, "no"))
    with pytest.raises(openai.BadRequestError):
        await live.openai.chat.completions.create(**CHAT)
    assert good.submits == []


async def test_when_every_worker_is_full_the_client_is_told_once(
    start_worker: StartWorker, serve: Serve
) -> None:
    workers = [await start_worker(name=f"w{i}", script=failing(pb.OVERLOADED)) for i in range(5)]
    live = await serve(*workers)
    await live.until_linked(*(worker.name for worker in workers))
    response = await live.http.post("/v1/chat/completions", json=CHAT)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "overloaded")
    assert sum(len(worker.submits) for worker in workers) == 3
    live.assert_nothing_is_left()


async def test_a_worker_lost_before_the_first_output_passes_the_request_on(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, bad, good = await two(start_worker, serve, silence)
    request = asyncio.ensure_future(
        live.openai.chat.completions.with_raw_response.create(**CHAT, stream=True)
    )
    await live.until(lambda: len(bad.submits) == 2)
    await bad.stop()
    answer = await request
    assert answer.headers["x-pando-worker"] == good.name
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in await parsed(answer)])
    live.assert_nothing_is_left()


async def parsed(answer: RawAnswer) -> Chunks:
    result = answer.parse()
    return await result if asyncio.iscoroutine(result) else result


async def test_an_error_after_the_first_byte_is_one_event_without_done(
    start_worker: StartWorker, serve: Serve
) -> None:
    async def script(submit: pb.Submit, line: Line) -> None:
        line.text(submit.request_id, "half")
        line.fail(submit.request_id, pb.INTERNAL, "secret text")

    live = await serve(await start_worker(script=script))
    await live.until_linked("w0")
    response = await live.http.post("/v1/chat/completions", json={**CHAT, "stream": True})
    events = events_of(response.text)
    assert response.status_code == 200
    assert json.loads(events[1])["choices"][0]["delta"]["content"] == "half"
    assert json.loads(events[-1])["error"]["code"] == "internal_error"
    assert "secret" not in response.text
    assert "[DONE]" not in events
    live.assert_nothing_is_left()


async def test_one_failed_prompt_of_several_ends_the_request_and_cancels_the_rest(
    start_worker: StartWorker, serve: Serve
) -> None:
    async def script(submit: pb.Submit, line: Line) -> None:
        await (failing(pb.INTERNAL) if submit.text == "bad" else endless)(submit, line)

    worker = await start_worker(script=script)
    live = await serve(worker)
    await live.until_linked("w0")
    with pytest.raises(openai.InternalServerError):
        await live.openai.completions.create(model="tiny", prompt=["a", "b", "bad", "c"])
    await live.until(lambda: len(worker.cancels) == 3)
    live.assert_nothing_is_left()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_hang_up_before_the_first_output_cancels_at_the_worker(
    start_worker: StartWorker, serve: Serve, stream: bool
) -> None:
    worker = await start_worker(script=silence)
    live = await serve(worker)
    await live.until_linked("w0")
    request = asyncio.create_task(
        live.http.post("/v1/chat/completions", json={**CHAT, "stream": stream})
    )
    await live.until(lambda: len(worker.submits) == 1)
    assert live.gateway.fleet.in_flight == 1
    request.cancel()
    await live.until(lambda: worker.cancels == [worker.submits[0].request_id])
    await live.until(lambda: live.gateway.fleet.in_flight == 0)
    assert live.metric("requests_total", status="499") == 1
    live.assert_nothing_is_left()


async def test_a_hang_up_while_the_body_comes_leaves_nothing(
    start_worker: StartWorker, serve: Serve
) -> None:
    worker = await start_worker()
    live = await serve(worker)
    await live.until_linked("w0")
    _, writer = await asyncio.open_connection("127.0.0.1", live.port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{")
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.close()
    await live.until(lambda: live.metric("requests_total", status="499") == 1)
    assert worker.submits == []


async def hang_up_at_random(live: Live, number: int, chance: random.Random) -> None:
    """One client that goes away before, in or after its answer, without a word."""
    body = json.dumps({**chat(number), "stream": chance.random() < 0.7}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    for _ in range(chance.randrange(4)):
        try:
            async with asyncio.timeout(chance.random() * 0.05):
                await reader.read(chance.randrange(1, 2000))
        except TimeoutError:
            break
    writer.transport.abort()


async def test_ten_thousand_random_hang_ups_leave_nothing_behind(
    start_worker: StartWorker, serve: Serve
) -> None:
    async def sometimes(submit: pb.Submit, line: Line) -> None:
        await (words, endless, silence)[submit.request_id % 3](submit, line)

    def is_done(worker: FakeWorker) -> bool:
        asked = {submit.request_id for submit in worker.submits}
        return asked == set(worker.ended) | set(worker.cancels)

    workers = [await start_worker(name=f"w{i}", script=sometimes) for i in range(3)]
    # On a busy machine no heartbeat may come for a while; a link that breaks is another test's.
    live = await serve(*workers, link=LinkConfig(silence_s=120))
    await live.until_linked("w0", "w1", "w2")
    chance = random.Random(7)

    async def client(numbers: range) -> None:
        for number in numbers:
            await hang_up_at_random(live, number, chance)

    await asyncio.gather(*(client(range(start, 10_000, 30)) for start in range(30)))
    await live.until(lambda: live.gateway.fleet.in_flight == 0)
    for worker in workers:
        await live.until(partial(is_done, worker))
    assert sum(len(worker.cancels) for worker in workers) > 100
    live.assert_nothing_is_left()
    for worker in workers:
        worker.script = words
    answers = await asyncio.gather(
        *(live.openai.chat.completions.create(**chat(number)) for number in range(20))
    )
    assert {answer.choices[0].message.content for answer in answers} == {"Hello big world"}


async def test_a_slow_client_holds_up_nobody_and_gets_everything(
    start_worker: StartWorker, serve: Serve
) -> None:
    text = "x" * 4096

    async def script(submit: pb.Submit, line: Line) -> None:
        for _ in range(2000 if b"slow" in submit.chat.messages else 1):
            line.text(submit.request_id, text)
        line.done(submit.request_id)

    live = await serve(await start_worker(script=script))
    await live.until_linked("w0")
    slow = {"model": "tiny", "messages": [{"role": "user", "content": "slow"}], "stream": True}
    async with live.http.stream("POST", "/v1/chat/completions", json=slow) as response:
        pieces = response.aiter_bytes()
        received = len(await anext(pieces))
        for _ in range(3):
            await live.openai.chat.completions.create(**CHAT)
        text_chars = 0
        async for piece in pieces:
            received += len(piece)
            text_chars += piece.count(b"x")
    assert received > 2000 * 4096
    live.assert_nothing_is_left()


async def test_a_client_that_stops_reading_and_goes_away_is_cancelled(
    start_worker: StartWorker, serve: Serve
) -> None:
    async def flood(submit: pb.Submit, line: Line) -> None:
        while True:
            line.text(submit.request_id, "x" * 65536)
            await asyncio.sleep(0.001)

    worker = await start_worker(script=flood)
    live = await serve(worker)
    await live.until_linked("w0")
    body = json.dumps({**CHAT, "stream": True}).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", live.port, limit=1024)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await live.until(lambda: len(worker.submits) == 1)
    await asyncio.sleep(0.2)
    assert worker.cancels == []
    writer.transport.abort()
    await live.until(lambda: len(worker.cancels) == 1)
    await live.until(lambda: live.gateway.fleet.in_flight == 0)
    live.assert_nothing_is_left()


async def test_a_client_that_takes_nothing_for_too_long_is_cut(
    start_worker: StartWorker, serve: Serve
) -> None:
    async def flood(submit: pb.Submit, line: Line) -> None:
        while True:
            line.text(submit.request_id, "x" * 65536)
            await asyncio.sleep(0.001)

    worker = await start_worker(script=flood)
    live = await serve(worker, limits=LimitConfig(stall_s=0.3))
    await live.until_linked("w0")
    body = json.dumps({**CHAT, "stream": True}).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", live.port, limit=1024)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await live.until(lambda: len(worker.cancels) == 1)
    assert live.metric("stalled_clients_total") == 1
    assert live.metric("requests_total", status="499") == 1
    live.assert_nothing_is_left()
    writer.transport.abort()


async def test_equal_prefixes_go_to_one_worker_and_others_spread(
    start_worker: StartWorker, serve: Serve
) -> None:
    workers = [await start_worker(name=f"w{i}") for i in range(4)]
    live = await serve(*workers)
    await live.until_linked(*(worker.name for worker in workers))
    for number in range(24):
        for question in ("a", "b"):
            asked: ChatCompletionMessageParam = {"role": "user", "content": question}
            messages = [*chat(number)["messages"], asked]
            await live.openai.chat.completions.create(model="tiny", messages=messages)
    seen = [
        {json.loads(submit.chat.messages)[0]["content"] for submit in worker.submits}
        for worker in workers
    ]
    assert sum(len(prefixes) for prefixes in seen) == 24
    assert all(seen)
    assert live.metric("routing_decisions_total", reason="owner") == 48
