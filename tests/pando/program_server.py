"""A gateway of the contract of programs alone (docs/decisions/0024), with a model out of a hash.

What a gen or select gives depends on all of the text in front of it and on the node, so a value can
only be right if its branch's text was.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
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

Json = dict[str, Any]
WORDS = ("yes", "no", " two\nwords", "ü")


def generated(text: str, node: Json, index: int = 0) -> str:
    """The model: a word, by what is in front of it and what is asked."""
    asked = [text, node["name"], node.get("max_tokens"), node.get("regex"), index]
    digest = hashlib.blake2b(json.dumps(asked).encode(), digest_size=8).digest()
    return WORDS[int.from_bytes(digest, "big") % len(WORDS)]


def chosen(text: str, choices: list[str]) -> str:
    digest = hashlib.blake2b(json.dumps([text, *choices]).encode(), digest_size=8).digest()
    return choices[int.from_bytes(digest, "big") % len(choices)]


def opened(role: str) -> str:
    return f"<{role}>"


CLOSED = "<end>"


class Refused(Exception):
    """As the gateway's error object."""

    def __init__(self, message: str, param: str = "program", status: int = 400, code: str = ""):
        super().__init__(message)
        self.status = status
        self.error = {"message": message, "param": param, "code": code or None}


@dataclass
class Interpreter:
    """One request's nodes, one after the other."""

    values: dict[str, Any] = field(default_factory=dict)
    nodes: list[Json] = field(default_factory=list)
    has_messages: bool = False
    has_text: bool = False

    def run(self, nodes: list[Json], text: str, role: str | None = None) -> str:
        """Returns the branch's text."""
        for node in nodes:
            text = getattr(self, node["op"])(node, text, role)
        if self.has_messages and self.has_text:
            raise Refused("text outside of messages, beside messages")
        return text

    def text(self, node: Json, text: str, role: str | None) -> str:
        self.has_text |= role is None
        return text + self.joined(node["text"])

    def joined(self, parts: list[Any]) -> str:
        assert parts
        found = ""
        for part in parts:
            if isinstance(part, dict) and not isinstance(self.values.get(part["var"]), str):
                raise Refused(f"nothing before it sets {part['var']!r}, or several values")
            found += part if isinstance(part, str) else self.values[part["var"]]
        return found

    def gen(self, node: Json, text: str, role: str | None) -> str:
        self.asked(node, role)
        if node["name"] == "breaks":
            raise Refused("The model broke.", "program[0]", 500, "internal")
        n = node.get("n", 1)
        values = [generated(text, node, index) for index in range(n)]
        self.set(node, values if n > 1 else values[0])
        for index, value in enumerate(values):
            self.told(node, text, value, index=index)
        return text + values[0]

    def select(self, node: Json, text: str, role: str | None) -> str:
        self.asked(node, role)
        choices = [self.joined(choice) for choice in node["choices"]]
        value = chosen(text, choices)
        self.set(node, value)
        self.told(node, text, value, scores=[float(choice == value) for choice in choices])
        return text + value

    def message(self, node: Json, text: str, role: str | None) -> str:
        if role is not None:
            raise Refused("a message within a message")
        self.has_messages = True
        return self.run(node["body"], text + opened(node["role"]), node["role"]) + CLOSED

    def fork(self, node: Json, text: str, role: str | None) -> str:
        if not node["branches"] or role not in (None, "assistant"):
            raise Refused("a fork that can't be")
        for branch in node["branches"]:
            self.run(branch, text, role)
        return text

    def asked(self, node: Json, role: str | None) -> None:
        self.has_text |= role is None
        if role not in (None, "assistant"):
            raise Refused("a gen in a message of another role")

    def set(self, node: Json, value: Any) -> None:
        if node["name"] in self.values:
            raise Refused(f"{node['name']!r} is set twice")
        self.values[node["name"]] = value

    def told(self, node: Json, text: str, value: str, **more: Any) -> None:
        numbers = {
            "tokens": len(value),
            "prompt_tokens": len(text),
            "cached_tokens": len(text) // 2,
        }
        times = {"started_s": 0.25, "ended_s": 0.5}
        told = {"name": node["name"], "op": node["op"], "index": 0, "value": value}
        self.nodes.append({**told, "finish_reason": "stop", **numbers, **times, **more})


class ProgramServer:
    """What was asked, and what tests switch. A program with the name `hangs` in it hangs."""

    def __init__(self) -> None:
        self.bodies: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.sessions: dict[str, str] = {}
        self.models = ["tiny"]
        self.loses_sessions = False
        self.busy = 0
        self.never = False
        self.hung = threading.Event()
        self.hung_up = threading.Event()
        self.url = ""

    def app(self) -> Starlette:
        routes = [
            Route("/v1/programs", self.programs, methods=["POST"]),
            Route("/v1/models", self.list_models),
        ]
        return Starlette(routes=routes)

    async def list_models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": name} for name in self.models]})

    async def programs(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        if self.busy:
            self.busy -= 1
            busy = {"error": {"message": "Later.", "code": "busy", "param": None}}
            retry = {"x-should-retry": "false"} if self.never else {"retry-after": "0"}
            return JSONResponse(busy, 429, retry)
        if "hangs" in json.dumps(body):
            return StreamingResponse(self.hang(), media_type="text/event-stream")
        if body["stream"] and "breaks" in json.dumps(body):
            return StreamingResponse(self.broken(body), media_type="text/event-stream")
        try:
            answer = self.answered(body)
        except Refused as refused:
            return JSONResponse({"error": refused.error}, refused.status)
        if not body["stream"]:
            return JSONResponse(answer)
        return StreamingResponse(self.events(answer), media_type="text/event-stream")

    def answered(self, body: Json) -> Json:
        known = {"model", "program", "sampling", "heal", "session", "stream"}
        if unknown := set(body) - known:
            raise Refused("unknown field", unknown.pop())
        asked = body.get("session") or {}
        begin = ""
        if "id" in asked:
            if self.loses_sessions or asked["id"] not in self.sessions:
                self.sessions.pop(asked["id"], None)
                raise Refused("The session is gone.", "session.id", 404, "session_lost")
            begin = self.sessions[asked["id"]]
        elif not body["program"]:
            raise Refused("expected at least one node")
        interpreter = Interpreter()
        text = interpreter.run(body["program"], begin)
        session = self.kept(asked, text)
        usage = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
        return {
            "id": "prog-1",
            "object": "program",
            "created": 1,
            "model": body["model"],
            "variables": interpreter.values,
            "text": text,
            "nodes": interpreter.nodes,
            "usage": {**usage, "prompt_tokens_details": {"cached_tokens": 4}},
            "session": session,
        }

    def kept(self, asked: Json, text: str) -> Json | None:
        ttl_s = asked.get("ttl_s", 60 if asked else 0)
        name = asked.get("id") or f"worker~{len(self.bodies)}"
        if not ttl_s:
            self.sessions.pop(name, None)
            return None
        self.sessions[name] = text
        return {"id": name, "ttl_s": ttl_s}

    async def events(self, answer: Json) -> AsyncIterator[bytes]:
        yield event("start", id=answer["id"], created=1, model=answer["model"])
        for node in answer["nodes"]:
            for piece in (node["value"][:1], node["value"][1:]):
                if node["op"] == "gen" and piece:
                    yield event("delta", name=node["name"], index=node["index"], text=piece)
            yield event("node", **node)
        done = {name: answer[name] for name in ("variables", "text", "usage", "session")}
        yield event("done", **done)
        yield b"data: [DONE]\n\n"

    async def broken(self, body: Json) -> AsyncIterator[bytes]:
        yield event("start", id="prog-1", created=1, model="tiny")
        yield event("delta", name="breaks", index=0, text="half")
        error = {"message": "The model broke.", "param": "program[1]", "code": "internal"}
        yield event("error", error=error)

    async def hang(self) -> AsyncIterator[bytes]:
        self.hung.set()
        try:
            yield event("delta", name="hangs", index=0, text="...")
            await asyncio.sleep(3600)
        finally:
            self.hung_up.set()


def event(kind: str, **fields: Any) -> bytes:
    told = json.dumps({"event": kind, **fields}, ensure_ascii=False)  # as the gateway writes it
    return f"data: {told}\n\n".encode()


@contextmanager
def serving(server: ProgramServer) -> Iterator[ProgramServer]:
    """The server at its url, until the end."""
    config = uvicorn.Config(server.app(), log_level="error", lifespan="off", ws="none")
    live = uvicorn.Server(config)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    server.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    thread = threading.Thread(target=live.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        live.should_exit = live.force_exit = True
        thread.join()
        listener.close()
