"""How such a server is asked, and what is read of its answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from gateway.errors import WorkerLost
from gateway.fleet.foreign_door import ForeignDoor, lines_of
from gateway.request import Done, Event, Usage
from tests.gateway.conftest import Serve
from tests.gateway.fleet.foreign_live import CHAT, DELTA, ask, delta, member


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


LAST = delta("!", finish_reason="stop")


MODELS = b'HTTP/1.1 200 OK\r\ncontent-length: 24\r\n\r\n{"data":[{"id":"tiny"}]}'


class Connections:
    """A server that keeps its connections, and how many of them brought an ask."""

    def __init__(self, split: bool) -> None:
        self._split = split
        self.asking = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asks = 0
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"POST"):
                    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                    await reader.readexactly(int(length))
                    asks += 1
                    self.asking += asks == 1
                    await self._answer(writer)
                else:
                    body = b'{"data":[{"id":"tiny"}]}'
                    writer.write(
                        b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body
                    )
        writer.close()

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        body = f"data: {LAST}\n\ndata: [DONE]\n\n".encode()
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(b"%x\r\n%b\r\n" % (len(body), body))
        if self._split:
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")


@pytest.mark.parametrize("split", [False, True])
async def test_one_connection_serves_one_request_after_the_other(serve: Serve, split: bool) -> None:
    connections = Connections(split)
    server = await asyncio.start_server(connections, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        front = await serve(foreign=(member(f"http://127.0.0.1:{port}", kind="openai", poll_s=60),))
        await front.until_linked("f0")
        for _ in range(10):
            assert (await front.http.post("/v1/chat/completions", json=CHAT)).status_code == 200
            await front.until(lambda: front.gateway.fleet.in_flight == 0)
        front.assert_nothing_is_left()
        await front.leave()
    assert connections.asking == 1


class Endless(httpx.AsyncByteStream):
    """A body with some events and without an end."""

    def __init__(self, *events: str) -> None:
        self._events = events
        self.closed = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for event in self._events:
            yield f"data: {event}\n\n".encode()
        await asyncio.Event().wait()

    async def aclose(self) -> None:
        self.closed.set()


async def told(body: Endless, count: int) -> list[Event]:
    """So many events are waited for, and then the door is left; the body is closed at last."""
    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=body))
    events: list[Event] = []
    enough = asyncio.Event()

    def deliver(event: Event) -> None:
        events.append(event)
        if len(events) == count:
            enough.set()

    async with (
        asyncio.timeout(10),
        httpx.AsyncClient(transport=transport, base_url="http://x") as client,
    ):
        with ForeignDoor(client, member("http://x"), "m").submit(ask(), deliver):
            await enough.wait()
            assert not body.closed.is_set()
        await body.closed.wait()
    return events


async def test_a_body_without_an_end_delays_no_request_and_is_closed() -> None:
    events = await told(Endless(LAST, "[DONE]"), 2)
    assert events[-1] == Done(Usage(0, 0, 1))
    assert len(events) == 2


async def test_who_leaves_before_the_end_is_told_nothing_more() -> None:
    assert len(await told(Endless(DELTA), 1)) == 1
