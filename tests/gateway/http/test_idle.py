"""Connections over which nothing is asked for a while."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn

from gateway.config import LimitConfig
from gateway.http.connection import Connection
from tests.gateway.conftest import QuietServer

ASK = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
IDLE_S = 30.0


async def app(scope: Any, receive: Any, send: Any) -> None:
    head = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": b"ok"})


class Kept:
    """Two ends of a connection over which one request was answered."""

    ours: Connection
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def answer(self) -> bytes:
        """The first line of it; nothing where the connection ends."""
        try:
            return (await self.reader.readuntil(b"ok")).split(b"\r\n")[0]
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""


@pytest.fixture
async def kept() -> AsyncIterator[Kept]:
    made = Kept()

    def connection(**of_uvicorn: Any) -> Connection:
        made.ours = Connection(LimitConfig(idle_s=IDLE_S), **of_uvicorn)
        return made.ours

    config = uvicorn.Config(app, http=connection, lifespan="off", log_config=None)  # type: ignore[arg-type]
    server = QuietServer(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve([listener]))
        made.reader, made.writer = await asyncio.open_connection(*listener.getsockname()[:2])
        made.writer.write(ASK)
        assert await made.answer() == b"HTTP/1.1 200 OK"
        yield made
        made.writer.close()
        server.should_exit = True
        await serving


async def test_a_request_that_came_while_the_gateway_stood_still_is_answered(kept: Kept) -> None:
    # Its time is over, and what came meanwhile lies unread: as where a process was stopped.
    kept.writer.write(ASK)
    kept.ours.timeout_keep_alive_handler()
    assert await kept.answer() == b"HTTP/1.1 200 OK"


async def test_a_connection_ends_when_its_time_is_over_and_nothing_came(kept: Kept) -> None:
    kept.ours.timeout_keep_alive_handler()
    assert await kept.answer() == b""


async def test_a_request_that_is_on_its_way_when_the_gateway_leaves_is_answered(kept: Kept) -> None:
    kept.ours.shutdown()
    kept.writer.write(ASK)
    head = await kept.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b"connection: close" in head
    assert await kept.reader.read() == b"ok"


async def test_an_idle_connection_ends_when_the_gateway_leaves(kept: Kept) -> None:
    kept.ours.shutdown()
    assert await kept.answer() == b""


async def test_the_time_is_the_configured_one(kept: Kept) -> None:
    timer = kept.ours.timeout_keep_alive_task
    assert timer is not None
    left_s = timer.when() - asyncio.get_running_loop().time()
    assert IDLE_S / 2 < left_s <= IDLE_S


def test_a_connection_is_kept_for_longer_than_clients_keep_it() -> None:
    assert LimitConfig().idle_s > 60
