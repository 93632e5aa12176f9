"""A small server with OpenAI's API on a port of its own: a word is a token, its cache endless."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from pando.ports import free_ports

WORKERS = ("w0", "w1")


@dataclass(slots=True)
class FakeOpenAI:
    """What came, and how it is answered. refuse: bodies with these words get 429."""

    url: str = ""
    refuse: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0
    _known: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)

    def cached(self, key: str, words: list[str]) -> int:
        """How many leading words were sent before under this key; all are known from now on."""
        found = 0
        for end in range(1, len(words)):
            if (key, tuple(words[:end])) not in self._known:
                break
            found = end
        self._known |= {(key, tuple(words[:end])) for end in range(1, len(words) + 1)}
        return found

    async def models(self, _: Request) -> Response:
        return JSONResponse({"data": [{"id": "fake"}]})

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        self.keys.append(request.headers.get("authorization", ""))
        if self.refuse and self.refuse in json.dumps(body):
            return JSONResponse({"error": {"message": "too much"}}, 429)
        words = words_of(body)
        cached = self.cached(self.keys[-1], words)
        usage = {
            "prompt_tokens": len(words),
            "completion_tokens": body["max_tokens"],
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        worker = WORKERS[len(self.bodies) % len(WORKERS)]
        return StreamingResponse(
            self._events("messages" in body, usage),
            media_type="text/event-stream",
            headers={"x-pando-worker": worker},
        )

    async def _events(self, is_chat: bool, usage: dict[str, Any]) -> AsyncIterator[str]:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        if is_chat:
            yield _event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for number in range(usage["completion_tokens"]):
            await asyncio.sleep(0)
            said = f" said{number}"
            yield _event({"choices": [{"delta": {"content": said}} if is_chat else {"text": said}]})
        self.under_way -= 1
        yield _event({"choices": [], "usage": usage})
        yield "data: [DONE]\n\n"


def words_of(body: dict[str, Any]) -> list[str]:
    """A prompt's words; a message begins with its role."""
    if "prompt" in body:
        return str(body["prompt"]).split()
    found = [json.dumps(body["tools"])] if body.get("tools") else []
    for message in body["messages"]:
        calls = json.dumps(message["tool_calls"]) if message.get("tool_calls") else ""
        found += [f"<{message['role']}>", *str(message["content"]).split(), *calls.split()]
    return found


def _event(chunk: dict[str, Any]) -> str:
    return f"data: {json.dumps(chunk)}\n\n"


@contextmanager
def serving() -> Iterator[FakeOpenAI]:
    """Yields a server that listens; it ends with the context."""
    [port] = free_ports(1)
    fake = FakeOpenAI(url=f"http://127.0.0.1:{port}")
    routes = [
        Route("/v1/models", fake.models),
        Route("/v1/chat/completions", fake.answer, methods=["POST"]),
        Route("/v1/completions", fake.answer, methods=["POST"]),
    ]
    config = uvicorn.Config(
        Starlette(routes=routes), host="127.0.0.1", port=port, log_level="error", lifespan="off"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server ended"
        thread.join(0.01)
    yield fake
    server.should_exit = True
    thread.join(10)
