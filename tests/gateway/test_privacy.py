"""What a client writes and the key that it sends are in no log line, metric, 5xx or store."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from gateway.config import BreakerConfig, QueueConfig
from gateway.telemetry.log import EventLog, set_up_logging
from gateway.tenancy.keys import digest_of
from gateway.tenant_config import QuotaConfig, RedisConfig, TenantConfig, TenantQuota
from pando.ports import free_ports
from proto import worker_pb2 as pb
from tests.gateway.conftest import GatewaySettings, Live, Serve, StartWorker
from tests.gateway.fake_worker import Line, Script, failing, silence, words
from tests.gateway.fleet.foreign_live import cut, fake_server, member, refuse
from tests.gateway.store.conftest import redis_server, shared_redis
from tests.gateway.store.redis_server import RedisServer

__all__ = ["redis_server", "shared_redis"]

SECRET = "Xyzzy-plugh"
KEY = "pnd-of-a-tenant"
HEADERS = {"authorization": f"Bearer {KEY}"}
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": SECRET}]}
TEXT = {"model": "tiny", "prompt": SECRET}
GEN = {"op": "gen", "name": "x", "max_tokens": 2}
BODIES: list[tuple[str, Any]] = [
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", {**CHAT, "stream": True}),
    ("/v1/chat/completions", {**CHAT, "temperature": SECRET}),
    ("/v1/chat/completions", {**CHAT, SECRET: 1}),
    ("/v1/chat/completions", {"model": SECRET, "messages": CHAT["messages"]}),
    ("/v1/chat/completions", {"model": "tiny", "messages": [{"role": SECRET, "content": "a"}]}),
    ("/v1/chat/completions", {**CHAT, "chat_template_kwargs": {SECRET: {SECRET: SECRET}}}),
    ("/v1/chat/completions", {**CHAT, "user": SECRET, "prompt_cache_key": SECRET}),
    ("/v1/chat/completions", {**CHAT, "tools": [{"type": SECRET}]}),
    ("/v1/completions", {**TEXT, "stop": [SECRET], "suffix": None}),
    ("/v1/completions", {**TEXT, "structured_outputs": {"regex": SECRET + "("}}),
    ("/v1/responses", {"model": "tiny", "input": SECRET, "instructions": SECRET}),
    ("/v1/responses", {"model": "tiny", "input": SECRET, "metadata": {SECRET: SECRET}}),
    ("/v1/programs", {"model": "tiny", "program": [{"op": "text", "text": [SECRET]}, GEN]}),
    ("/v1/rerank", {"model": "tiny", "query": SECRET, "documents": [SECRET]}),
    ("/v1/score", {"model": "tiny", "text_1": SECRET, "text_2": SECRET}),
    ("/v1/embeddings", {"model": "tiny", "input": SECRET}),
    ("/tokenize", {"model": "tiny", "prompt": SECRET}),
    (f"/v1/{SECRET}", CHAT),
]


async def wrong_choice(submit: pb.Submit, line: Line) -> None:
    """What no worker of ours says: an answer for a choice that nobody asked for."""
    line.text(submit.request_id, SECRET, choice=7)
    line.done(submit.request_id)


async def refuses(submit: pb.Submit, line: Line) -> None:
    line.fail(submit.request_id, pb.INVALID_REQUEST, f"The template refuses {SECRET}.", "messages")


SCRIPTS: dict[str, Script] = {
    "answered": words,
    "refused by the worker": refuses,
    "failed at the worker": failing(pb.INTERNAL, f"it broke on {SECRET}", SECRET),
    "broken in the gateway": wrong_choice,
}


@contextmanager
def logged(level: str) -> Iterator[Callable[[], str]]:
    """Everything that the process logs meanwhile, as it stands on standard error."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    names = ("_srcfile", "logThreads", "logProcesses", "logMultiprocessing")
    fast = {name: getattr(logging, name) for name in names}
    lines: list[str] = []
    log = set_up_logging(level)
    [handler] = root.handlers
    handler.emit = lambda record: lines.append(handler.format(record))  # type: ignore[method-assign]
    try:
        log.info("begun")
        yield lambda: "\n".join(lines)
    finally:
        root.handlers[:], level_before = before
        root.setLevel(level_before)
        for name, value in fast.items():
            setattr(logging, name, value)


def written(text: str) -> list[str]:
    """What of a client's is in a text, however it is written."""
    encoded = base64.b64encode(SECRET.encode()).decode()
    forms = (SECRET, SECRET.lower(), encoded, SECRET.encode().hex(), KEY)
    return [form for form in forms if form in text]


async def exchange(live: Live, bodies: list[tuple[str, Any]]) -> list[httpx.Response]:
    """Every request, one with a wrong key, and one that is no HTTP."""
    answers = [await live.http.post(path, json=body, headers=HEADERS) for path, body in bodies]
    broken = json.dumps(CHAT).encode()[:-3]
    answers.append(await live.http.post("/v1/completions", content=broken, headers=HEADERS))
    wrong = {"authorization": f"Bearer {KEY}-{SECRET}", "x-request-id": f"{SECRET} {SECRET}"}
    answers.append(await live.http.post("/v1/completions", json=TEXT, headers=wrong))
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    writer.write(f"POST /{SECRET} {SECRET}\r\n{SECRET}\r\n\r\n".encode())
    await reader.read()
    writer.close()
    await writer.wait_closed()
    return answers


def settings(server: RedisServer | None = None) -> GatewaySettings:
    quota = TenantQuota(tokens_per_minute=10**9, requests_per_minute=10**6, concurrency=100)
    chosen: GatewaySettings = {
        "tenants": (TenantConfig("acme", (digest_of(KEY),), quota=quota),),
        "quota": QuotaConfig(lease_s=1.0),
        "queue": QueueConfig(max_wait_s=0.3, no_worker_s=0.1),
        "breaker": BreakerConfig(failures=10_000),
    }
    if server is not None:
        chosen["redis"] = RedisConfig(url=server.url, timeout_s=5.0)
    return chosen


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=list(SCRIPTS))
async def test_no_log_line_metric_or_5xx_holds_what_a_client_sent(
    start_worker: StartWorker, serve_linked: Serve, script: Script
) -> None:
    with logged("info") as log:
        live = await serve_linked(await start_worker(script=script), **settings())
        answers = await exchange(live, BODIES if script is words else BODIES[:2])
        metrics = (await live.gateway.telemetry.exposition()).decode()
    assert "request_ended" in log()
    assert written(log()) == []
    assert written(metrics) == []
    failed = [answer.text for answer in answers if answer.status_code >= 500]
    assert written("".join(failed)) == []
    assert KEY not in "".join(answer.text for answer in answers)


async def test_who_hangs_up_leaves_nothing_in_the_log(
    start_worker: StartWorker, serve_linked: Serve
) -> None:
    with logged("info") as log:
        live = await serve_linked(await start_worker(script=silence), **settings())
        asked = asyncio.create_task(
            live.http.post("/v1/chat/completions", json=CHAT, headers=HEADERS)
        )
        await live.until(lambda: live.gateway.fleet.in_flight == 1)
        asked.cancel()
        await live.until(lambda: live.metric("ended_requests_total") == 1)
    assert "client_closed" in log()
    assert written(log()) == []


@pytest.mark.parametrize(
    "chat",
    [
        refuse(500, {"error": {"message": f"it broke on {SECRET}", "code": f"bad {SECRET}"}}),
        refuse(429, {"message": SECRET}),
        cut(json.dumps({"error": {"message": f"in the middle of {SECRET}"}})),
        cut(f"{{{SECRET}"),
    ],
)
async def test_what_another_server_says_of_a_prompt_is_not_logged(serve: Serve, chat: Any) -> None:
    [port] = free_ports(1)
    with logged("info") as log:
        async with fake_server(port, chat):
            front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
            await front.until_linked("f0")
            asked = {**CHAT, "model": "theirs"}
            models = (await front.http.get("/v1/models")).json()["data"]
            asked["model"] = models[0]["id"]
            response = await front.http.post("/v1/chat/completions", json=asked)
    assert response.status_code >= 500
    assert "request_ended" in log()
    assert written(log() + response.text) == []


async def test_redis_holds_no_prompt_and_no_key(
    redis_server: RedisServer, start_worker: StartWorker, serve_linked: Serve
) -> None:
    live = await serve_linked(await start_worker(), **settings(redis_server))
    await exchange(live, BODIES[:4])
    held = redis_dump(redis_server)
    assert "acme" in held, "the quota is counted there"
    assert written(held) == []


def redis_dump(server: RedisServer) -> str:
    """Every key of the server and what it holds, as Redis serialises it."""
    script = (
        "local all = {} for _, key in ipairs(redis.call('KEYS', '*')) do "
        "all[#all + 1] = key for _, byte in ipairs({redis.call('DUMP', key)}) do "
        "all[#all + 1] = byte end end return table.concat(all, ' ')"
    )
    asked = ("EVAL", script, "0")
    sent = [f"*{len(asked)}\r\n", *(f"${len(word)}\r\n{word}\r\n" for word in asked)]
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall("".join(sent).encode())
        with connection.makefile("rb") as answer:
            size = int(answer.readline()[1:])
            return answer.read(size).decode("latin-1")


def test_the_search_finds_what_is_there() -> None:
    assert written(f"a {SECRET} b") == [SECRET]
    assert written(KEY) == [KEY]
    with logged("info") as log:
        EventLog(logging.getLogger("gateway")).info("told", prompt=SECRET)
        logging.getLogger("another").warning(KEY)
    assert written(log()) == [SECRET, KEY]
    assert log().splitlines()[0].endswith("begun")
