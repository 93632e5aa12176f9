"""A server with OpenAI's API as a member: here another gateway of ours plays it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import openai
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from gateway.config import ForeignConfig
from gateway.errors import ContextLengthExceeded, InvalidRequest, Overloaded, WorkerLost
from gateway.fleet.openai_door import call_of, error_of, piece_of
from gateway.request import Ask, ChatPrompt, Decoding, Sampling, Stopping, TextPrompt, TokenPrompt
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


@contextlib.asynccontextmanager
async def fake_server(
    port: int, chat: Callable[[Request], Awaitable[Response]]
) -> AsyncIterator[None]:
    app = Starlette(
        routes=[
            Route("/v1/models", refuse(200, {"data": [{"id": "tiny"}]})),
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


async def metrics(_: Request) -> Response:
    text = (
        'vllm:num_requests_running{model_name="tiny"} 3.0\n'
        'vllm:num_requests_waiting{model_name="tiny"} 4.0\n'
    )
    return Response(text)


DELTA = json.dumps({"choices": [{"index": 0, "delta": {"content": "half"}}]})


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


def ask(**changes: object) -> Ask:
    fields: dict[str, object] = {"prompt": TextPrompt("Hi"), "decoding": PLAIN, **changes}
    return Ask("trace", "acme", b"space", **fields)  # type: ignore[arg-type]


def test_a_salt_keeps_tenants_apart_where_the_server_takes_one() -> None:
    first = json.loads(call_of(ask(), "m", "vllm").body)
    other = Ask("trace", "acme", b"other", TextPrompt("Hi"), PLAIN)
    assert first["cache_salt"] != json.loads(call_of(other, "m", "vllm").body)["cache_salt"]
    assert "cache_salt" not in json.loads(call_of(ask(), "m", "sglang").body)


def test_what_is_asked_arrives_by_its_openai_name() -> None:
    decoding = Decoding(
        Sampling(temperature=0.5, top_k=4, seed=2**63 + 5, logit_bias={7: 1.5}),
        Stopping(max_tokens=9, stop=("x",), min_tokens=2, ignore_eos=True),
        n=3,
        top_logprobs=2,
    )
    prompt = ChatPrompt(b'[{"role":"user","content":"Hi"}]', template_kwargs=b'{"think":false}')
    call = call_of(ask(prompt=prompt, decoding=decoding), "m", "vllm")
    body = json.loads(call.body)
    assert call.path == "/v1/chat/completions"
    assert body["messages"] == [{"role": "user", "content": "Hi"}]
    assert body["chat_template_kwargs"] == {"think": False}
    assert (body["n"], body["max_tokens"], body["stop"], body["seed"]) == (3, 9, ["x"], 5)
    assert (body["top_k"], body["min_tokens"], body["ignore_eos"]) == (4, 2, True)
    assert (body["logprobs"], body["top_logprobs"]) == (True, 2)
    assert body["logit_bias"] == {"7": 1.5}
    ids = json.loads(call_of(ask(prompt=TokenPrompt(b"\1\0\0\0\2\0\0\0")), "m", "openai").body)
    assert ids["prompt"] == [1, 2]


def test_what_it_does_not_know_is_refused_by_name() -> None:
    decoding = Decoding(Sampling(top_k=4), Stopping())
    with pytest.raises(InvalidRequest) as caught:
        call_of(ask(decoding=decoding), "m", "openai")
    assert caught.value.param == "top_k"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (
            400,
            b'{"error":{"message":"This model\'s maximum context length is 5"}}',
            ContextLengthExceeded,
        ),
        (422, b'{"message":"flat"}', InvalidRequest),
        (503, b"not json", Overloaded),
        (404, b"", WorkerLost),
    ],
)
def test_refusals_by_kind(status: int, body: bytes, kind: type[Exception]) -> None:
    assert type(error_of(status, body)) is kind


def test_pieces_without_anything_to_tell_bring_nothing() -> None:
    role = b'{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}'
    assert piece_of(role).outputs == ()
    assert piece_of(b'{"choices":[]}').usage is None
