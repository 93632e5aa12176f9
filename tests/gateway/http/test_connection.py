"""What a client may do to a connection: heads that are too large or slow, pipelining, upgrades."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.config import LimitConfig
from tests.gateway.conftest import Live, Serve, StartWorker
from tests.gateway.fake_worker import silence

BODY = b'{"model": "tiny", "prompt": "Hi"}'
LIMITS = LimitConfig(head_bytes=4096, head_timeout_s=0.2, body_timeout_s=0.2)


def request(*headers: bytes, path: bytes = b"/v1/completions", body: bytes = BODY) -> bytes:
    length = b"content-length: %d" % len(body)
    lines = [b"POST %b HTTP/1.1" % path, b"host: x", *headers, length]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@asynccontextmanager
async def connected(live: Live) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    """The next response: its status and its body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.split("content-length: ")[1].split("\r\n")[0])
    return int(head.split()[1]), json.loads(await reader.readexactly(length))


@pytest.fixture
async def live(start_worker: StartWorker, serve: Serve) -> AsyncIterator[Live]:
    live = await serve(await start_worker(), limits=LIMITS)
    await live.until_linked("w0")
    yield live
    live.assert_nothing_is_left()


@pytest.fixture
async def stuck(start_worker: StartWorker, serve: Serve) -> AsyncIterator[Live]:
    """A gateway whose worker never answers."""
    live = await serve(await start_worker(script=silence), limits=LIMITS)
    await live.until_linked("w0")
    yield live
    live.assert_nothing_is_left()


@pytest.mark.parametrize(
    "head",
    [
        request(b"x-long: " + b"a" * 5000),
        request(*[b"x-many: a"] * 500),
        request(path=b"/" + b"a" * 5000),
    ],
)
async def test_a_head_that_is_too_large_is_refused(live: Live, head: bytes) -> None:
    async with connected(live) as (reader, writer):
        writer.write(head)
        status, told = await answer(reader)
        assert (status, told["error"]["code"]) == (431, "head_too_large")
        assert await reader.read() == b""


@pytest.mark.parametrize(
    "begin",
    [
        b"POST /v1/completions HTTP/1.1\r\nx-endless: ",
        b"POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-endless: ",
    ],
)
async def test_a_header_or_trailer_that_does_not_end_is_refused(live: Live, begin: bytes) -> None:
    async with connected(live) as (reader, writer):
        writer.write(begin)
        for _ in range(4):
            await asyncio.sleep(0.02)
            writer.write(b"a" * 2000)
        status, told = await answer(reader)
        assert (status, told["error"]["code"]) == (431, "head_too_large")


async def test_a_large_body_does_not_count_as_head(live: Live) -> None:
    async with connected(live) as (reader, writer):
        writer.write(request(body=BODY + b" " * 200_000))
        assert (await answer(reader))[0] == 200


@pytest.mark.parametrize("sent", [b"", b"POST /v1/completions HTTP/1.1\r\nx-slow: a"])
async def test_a_head_that_does_not_come_in_time_ends_the_connection(
    live: Live, sent: bytes
) -> None:
    async with connected(live) as (reader, writer):
        writer.write(sent)
        assert await reader.read() == b""


async def test_the_time_for_the_head_is_no_time_for_the_answer(stuck: Live) -> None:
    async with connected(stuck) as (reader, writer):
        writer.write(request())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(), 3 * LIMITS.head_timeout_s)
    await stuck.until(lambda: stuck.gateway.fleet.in_flight == 0)


async def test_requests_follow_one_another_on_a_connection(live: Live) -> None:
    async with connected(live) as (reader, writer):
        for _ in range(3):
            writer.write(request())
            assert (await answer(reader))[0] == 200


async def test_a_hang_up_behind_a_pipelined_request_frees_the_first_one(stuck: Live) -> None:
    async with connected(stuck) as (_, writer):
        writer.write(request())
        await stuck.until(lambda: stuck.gateway.fleet.in_flight == 1)
        writer.write(request() + b"and more that is no request")
        await asyncio.sleep(0.05)
    await stuck.until(lambda: stuck.gateway.fleet.in_flight == 0)
    assert stuck.metric("accepted_requests_total") == 1


@pytest.mark.parametrize("size", [70_000, 150_000, 400_000, 1_000_000])
async def test_a_hang_up_behind_a_large_body_is_seen(stuck: Live, size: int) -> None:
    async with connected(stuck) as (_, writer):
        whole = request(body=BODY + b" " * size)
        writer.write(whole[:100])
        await asyncio.sleep(0.02)
        writer.write(whole[100:])
        await stuck.until(lambda: stuck.gateway.fleet.in_flight == 1)
    await stuck.until(lambda: stuck.gateway.fleet.in_flight == 0)


@pytest.mark.parametrize("behind", [request(), request()[:20], b"\x00 no request"])
async def test_what_stands_behind_a_request_is_not_answered_and_the_connection_closes(
    live: Live, behind: bytes
) -> None:
    async with connected(live) as (reader, writer):
        writer.write(request() + behind)
        assert (await answer(reader))[0] == 200
        assert await reader.read() == b""


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
async def test_an_offer_to_upgrade_is_ignored(live: Live, protocol: bytes) -> None:
    offer = (b"upgrade: " + protocol, b"connection: Upgrade, HTTP2-Settings", b"http2-settings: A")
    async with connected(live) as (reader, writer):
        whole = request(*offer)
        writer.write(whole[:-10])
        await asyncio.sleep(0.02)
        writer.write(whole[-10:])
        assert (await answer(reader))[0] == 200
        writer.write(request(*offer))
        assert (await answer(reader))[0] == 200


@pytest.mark.parametrize("junk", [b"\x16\x03\x01\x02\x00", b"CONNECT a:1 HTTP/1.1\r\n\r\n"])
async def test_what_is_no_request_is_refused_in_openais_form(live: Live, junk: bytes) -> None:
    async with connected(live) as (reader, writer):
        writer.write(junk)
        status, told = await answer(reader)
        assert (status, told["error"]["code"]) == (400, "invalid_http")


async def test_the_rest_of_a_refused_body_may_not_come_for_ever(live: Live) -> None:
    async with connected(live) as (reader, writer):
        writer.write(request(body=b"").replace(b"length: 0", b"length: 99999999"))
        assert (await answer(reader))[0] == 413
        writer.write(b"a" * 1000)
        assert await reader.read() == b""
