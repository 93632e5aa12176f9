"""A server with OpenAI's API as a member: here another gateway of ours plays it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import openai
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from gateway.config import ConfigError, ForeignConfig
from gateway.errors import WorkerLost
from gateway.fleet.foreign import ForeignDoor, lines_of
from gateway.request import (
    Ask,
    Decoding,
    Done,
    Event,
    Sampling,
    Stopping,
    TextPrompt,
    Usage,
)
from pando.ports import free_ports
from tests.gateway.conftest import Chat, Live, QuietServer, Serve, StartWorker
from tests.gateway.storyteller import story
from tests.gateway.test_continuation import BODY, Told

CHAT: Chat = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}
PLAIN = Decoding(Sampling(seed=5), Stopping(max_tokens=7))


def member(url: str, name: str = "f0", **settings: object) -> ForeignConfig:
    chosen = {"kind": "vllm", "poll_s": 0.05, "failures": 2, **settings}
    return ForeignConfig(url=url, name=name, **chosen)  # type: ignore[arg-type]


async def behind(start_worker: StartWorker, serve: Serve) -> tuple[Live, Live]:
    """A gateway before a gateway: the front one, and the one that plays the foreign server."""
    back = await serve(await start_worker(script=story(0.002)))
    await back.until_linked("w0")
    front = await serve(foreign=(member(f"http://127.0.0.1:{back.port}", kind="openai"),))
    await front.until_linked("f0")
    return front, back


async def test_its_answers_are_those_it_gives_by_itself(
    start_worker: StartWorker, serve: Serve
) -> None:
    front, back = await behind(start_worker, serve)
    told = []
    for live in (front, back):
        response = await live.http.post("/v1/chat/completions", json=BODY)
        assert response.status_code == 200
        told.append(Told.of(response.text))
    assert told[0].text == told[1].text
    assert told[0].logprobs == told[1].logprobs
    assert told[0].finish == told[1].finish
    assert told[0].usage == told[1].usage
    front.assert_nothing_is_left()
    back.assert_nothing_is_left()


async def test_completions_of_text_and_ids_go_through(
    start_worker: StartWorker, serve: Serve
) -> None:
    front, _ = await behind(start_worker, serve)
    answer = await front.openai.completions.create(
        model="tiny", prompt=["a", "b"], max_tokens=5, seed=1, logprobs=1
    )
    assert [choice.finish_reason for choice in answer.choices] == ["length", "length"]
    assert answer.choices[0].logprobs is not None
    assert len(answer.choices[0].logprobs.tokens or []) == 5
    ids = await front.openai.completions.create(model="tiny", prompt=[1, 2, 3], max_tokens=5)
    assert ids.usage is not None
    assert ids.usage.completion_tokens == 5


async def test_a_hang_up_ends_the_request_there_too(
    start_worker: StartWorker, serve: Serve
) -> None:
    worker = await start_worker(script=story(0.05))
    back = await serve(worker)
    await back.until_linked("w0")
    front = await serve(foreign=(member(f"http://127.0.0.1:{back.port}", kind="openai"),))
    await front.until_linked("f0")
    stream = await front.openai.chat.completions.create(**CHAT, max_tokens=500, stream=True)
    await anext(stream)
    await stream.close()
    await back.until(lambda: len(worker.cancels) == 1)
    await front.until(lambda: front.gateway.fleet.in_flight == 0)
    front.assert_nothing_is_left()


async def test_a_server_that_goes_away_leaves_the_fleet_and_comes_back(
    start_worker: StartWorker, serve: Serve
) -> None:
    [port] = free_ports(1)
    front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
    for _ in range(2):
        async with fake_server(port, refuse(200, {})):
            await front.until_linked("f0")
        await front.until(lambda: not front.gateway.fleet.workers())
    response = await front.http.post("/v1/chat/completions", json=CHAT)
    assert response.status_code == 503


def refuse(status: int, body: object) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return JSONResponse(body, status)

    return answer


def cut(*events: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        async def pieces() -> AsyncIterator[str]:
            for event in events:
                yield f"data: {event}\n\n"

        return StreamingResponse(pieces(), media_type="text/event-stream")

    return answer


async def metrics(_: Request) -> Response:
    text = (
        'vllm:num_requests_running{model_name="tiny"} 3.0\n'
        'vllm:num_requests_waiting{model_name="tiny"} 4.0\n'
    )
    return Response(text)


Answer = Callable[[Request], Awaitable[Response]]
MODELS = refuse(200, {"data": [{"id": "tiny"}]})


@contextlib.asynccontextmanager
async def fake_server(
    port: int, chat: Answer, models: Answer = MODELS, metrics: Answer = metrics
) -> AsyncIterator[None]:
    app = Starlette(
        routes=[
            Route("/v1/models", models),
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/metrics", metrics),
        ]
    )
    server = QuietServer(
        uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None, lifespan="off")
    )
    task = asyncio.create_task(server.serve())
    try:
        yield
    finally:
        server.should_exit = True
        await task


def delta(text: str, **fields: str) -> str:
    choice = {"index": 0, "delta": {"content": text}, **fields}
    return json.dumps({"choices": [choice]}, ensure_ascii=False)


DELTA = delta("half")


@pytest.mark.parametrize(
    ("chat", "status", "code"),
    [
        (refuse(400, {"error": {"message": "no", "param": "top_p"}}), 400, "invalid_value"),
        (refuse(429, {"error": {"message": "full"}}), 503, "overloaded"),
        (refuse(500, {"detail": "secret"}), 502, "worker_lost"),
        (cut(), 502, "worker_lost"),
        (cut("{not json"), 502, "worker_lost"),
        (cut(DELTA), 502, "worker_lost"),
        (cut(DELTA, '{"error": {"message": "secret"}}'), 502, "worker_lost"),
    ],
)
async def test_what_it_refuses_or_breaks_is_told_in_our_words(
    serve: Serve, chat: Callable[[Request], Awaitable[Response]], status: int, code: str
) -> None:
    [port] = free_ports(1)
    async with fake_server(port, chat):
        front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
        await front.until_linked("f0")
        response = await front.http.post("/v1/chat/completions", json=CHAT)
        assert (response.status_code, response.json()["error"]["code"]) == (status, code)
        assert "secret" not in response.text
        front.assert_nothing_is_left()


async def test_what_it_began_is_not_taken_up_by_another(
    start_worker: StartWorker, serve: Serve
) -> None:
    [port] = free_ports(1)
    async with fake_server(port, cut(DELTA)):
        front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
        await front.until_linked("f0")
        with pytest.raises(openai.APIError, match="was lost"):
            async for _ in await front.openai.chat.completions.create(**CHAT, stream=True):
                pass
        assert front.metric("continuations_total") == 0


async def test_its_load_is_read_from_its_metrics(serve: Serve) -> None:
    [port] = free_ports(1)
    async with fake_server(port, refuse(200, {})):
        front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
        await front.until_linked("f0")
        await front.until(lambda: front.metric("worker_waiting_sequences") == 4)
        assert front.metric("worker_running_sequences") == 3


async def test_signs_that_unicode_takes_for_line_ends_break_nothing(serve: Serve) -> None:
    [port] = free_ports(1)
    text = "a\u2028b\u0085c\x1cd"
    async with fake_server(port, cut(delta(text), delta("!", finish_reason="stop"), "[DONE]")):
        front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
        await front.until_linked("f0")
        response = await front.http.post("/v1/chat/completions", json=CHAT)
    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"] == text + "!"


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_lines_are_joined_over_pieces_and_a_last_one_needs_no_end() -> None:
    lines = [line async for line in lines_of(pieces(b"a", b"b\n\nc\n", b"", b"d"))]
    assert lines == [b"ab", b"", b"c", b"d"]


async def test_a_line_without_an_end_is_not_kept_for_ever() -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while taken < 100:
            taken += 1
            yield b"x" * 65536

    with pytest.raises(WorkerLost, match="longer than"):
        async for _ in lines_of(endless()):
            pass
    assert taken == 17


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        (None, Usage(0, 0, 2)),
        ({"prompt_tokens": 9}, Usage(9, 0, 2)),
        ({"prompt_tokens": 9, "completion_tokens": 5}, Usage(9, 0, 5)),
        (
            {"prompt_tokens": -9, "prompt_tokens_details": {"cached_tokens": 5}},
            Usage(0, 0, 2),
        ),
    ],
)
async def test_usage_that_is_not_told_is_counted(
    told: dict[str, object] | None, usage: Usage
) -> None:
    last = [json.dumps({"choices": [], "usage": told})] if told else []
    body = "".join(f"data: {event}\n\n" for event in [DELTA, DELTA, *last, "[DONE]"])
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text=body))
    events: list[Event] = []
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        with ForeignDoor(client, member("http://x"), "m").submit(ask(), events.append):
            async with asyncio.timeout(5):
                while len(events) < 3:  # noqa: ASYNC110 - the door calls back
                    await asyncio.sleep(0.001)
    assert events[-1] == Done(usage)


@pytest.mark.parametrize(
    ("sample", "value"),
    [
        ("1e-5", 0),
        ("1e+01", 10),
        ("+Inf", 0),
        ("NaN", 0),
        ("-3", 0),
        ("1e", 0),
        ("7 1700000000", 7),
        ("9e999", 10**9),
    ],
)
async def test_no_number_in_its_metrics_ends_the_member(
    serve: Serve, sample: str, value: int
) -> None:
    [port] = free_ports(1)

    async def metrics(_: Request) -> Response:
        return Response(f'vllm:num_requests_running{{m="a}}b"}} {sample}\n{WAITING} 4\n')

    async with fake_server(port, refuse(200, {}), metrics=metrics):
        front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
        await front.until_linked("f0")
        await front.until(lambda: front.metric("worker_waiting_sequences") == 4)
        assert front.metric("worker_running_sequences") == value


WAITING = "vllm:num_requests_waiting"


async def test_a_member_whose_run_failed_by_a_defect_runs_again(serve: Serve) -> None:
    [port] = free_ports(1)
    async with fake_server(port, refuse(200, {})):
        front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
        await front.until_linked("f0")
        fleet = front.gateway.fleet
        [worker] = fleet.workers()
        report = fleet.report

        def fail(*_: object) -> None:
            fleet.report = report  # type: ignore[method-assign]
            raise RuntimeError("a defect")

        fleet.report = fail  # type: ignore[method-assign, assignment]
        await front.until(lambda: worker not in fleet.workers())
        await front.until_linked("f0")


async def test_why_it_does_not_answer_is_told_once_and_again_when_it_changes(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        return [line for line in caplog.messages if line.startswith("worker_unreachable")]

    looks = 0
    answers = [refuse(401, {}), refuse(200, [1]), refuse(200, {"data": []})]

    async def models(request: Request) -> Response:
        nonlocal looks
        looks += 1
        return await answers[min(looks // 4, 2)](request)

    [port] = free_ports(1)
    caplog.set_level(logging.INFO, "gateway")
    async with fake_server(port, refuse(200, {}), models):
        front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
        await front.until(lambda: looks > 12)
        assert len(told()) == 3
    assert "401" in told()[0]
    assert "ValidationError" in told()[1]
    assert "lists no model" in told()[2]


async def test_a_key_that_cannot_be_sent_is_not_told(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREIGN_KEY", "sk-secret\n")
    with pytest.raises(ConfigError, match="FOREIGN_KEY") as caught:
        await serve(foreign=(member("http://127.0.0.1:9", key_variable="FOREIGN_KEY"),))
    assert "sk-secret" not in str(caught.value)


def ask(**changes: object) -> Ask:
    fields: dict[str, object] = {"prompt": TextPrompt("Hi"), "decoding": PLAIN, **changes}
    return Ask("trace", "acme", b"space", **fields)  # type: ignore[arg-type]
