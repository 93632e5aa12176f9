"""A server with OpenAI's API that answers as a test wants it to."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from gateway.config import ForeignConfig
from gateway.request import Ask, Decoding, Sampling, Stopping, TextPrompt
from tests.gateway.conftest import Chat, QuietServer

CHAT: Chat = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}
PLAIN = Decoding(Sampling(seed=5), Stopping(max_tokens=7))


def member(url: str, name: str = "f0", **settings: object) -> ForeignConfig:
    chosen = {"kind": "vllm", "poll_s": 0.05, "failures": 2, **settings}
    return ForeignConfig(url=url, name=name, **chosen)  # type: ignore[arg-type]


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
            Route("/v1/completions", chat, methods=["POST"]),
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


def ask(**changes: object) -> Ask:
    fields: dict[str, object] = {"prompt": TextPrompt("Hi"), "decoding": PLAIN, **changes}
    return Ask("trace", "acme", b"space", **fields)  # type: ignore[arg-type]
