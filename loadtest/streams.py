"""Streamed completions sent together, and when each of their tokens came.

    stream 1   ----[first]--t--t--|--t--t--t--t--t--t--t--|[last]
    stream 2   --------------[first]--t--t--t--t--t--t--t--t--[last]
                                  |<------- steady ------>|

Plain sockets: two cores have to serve and to measure, and a comfortable client would take its part
of them. What comes is stamped and kept; it is parsed when all is over.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtest.client import events
from loadtest.errors import RequestRefused

TIMEOUT_S = 1800.0
HEAD_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Stream:
    """One answer. times_s: when each event with a choice came, in order."""

    times_s: tuple[float, ...]
    text: str
    num_tokens: int

    def tokens_within(self, begin_s: float, end_s: float) -> float:
        """How many of its tokens came in (begin, end]: an event may bring more than one."""
        seen = sum(begin_s < at <= end_s for at in self.times_s)
        return seen * self.num_tokens / len(self.times_s)


@dataclass(frozen=True, slots=True)
class Steady:
    """What a batch makes while all of it decodes."""

    seconds: float
    num_tokens: float

    @property
    def tokens_per_s(self) -> float:
        """The throughput of decoding."""
        return self.num_tokens / self.seconds


def steady(streams: Sequence[Stream]) -> Steady:
    """Returns what came between the last one's first token and the first one's last.

    Raises RequestRefused where the streams never ran all together.
    """
    begin = max(stream.times_s[0] for stream in streams)
    end = min(stream.times_s[-1] for stream in streams)
    if end <= begin:
        raise RequestRefused(
            f"Of {len(streams)} streams the first one ended before the last one had begun: "
            "ask for more new tokens."
        )
    return Steady(end - begin, sum(stream.tokens_within(begin, end) for stream in streams))


async def together(
    url: str, bodies: Sequence[dict[str, Any]], clock: Callable[[], float] = time.perf_counter
) -> list[Stream]:
    """Sends all bodies to /v1/completions at once; returns their streams in order.

    Asks for streams with usage. Raises RequestRefused.
    """
    host, _, port = url.removeprefix("http://").rpartition(":")
    loop = asyncio.get_running_loop()
    readers = [
        (await loop.create_connection(lambda: _Reader(clock), host, int(port)))[1] for _ in bodies
    ]
    for reader, body in zip(readers, bodies, strict=True):
        reader.send(_request(host, port, body))
    async with asyncio.timeout(TIMEOUT_S):
        return [await reader.finished() for reader in readers]


def _request(host: str, port: str, body: dict[str, Any]) -> bytes:
    asked = {"stream": True, "stream_options": {"include_usage": True}}
    content = json.dumps(body | asked).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


@dataclass(slots=True)
class _Reader(asyncio.Protocol):
    """One connection: stamps what comes until the server closes it."""

    clock: Callable[[], float]
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    _closed: asyncio.Future[None] = field(init=False)
    _transport: asyncio.Transport = field(init=False)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._closed = asyncio.get_running_loop().create_future()

    def send(self, request: bytes) -> None:
        """Writes the request."""
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.pieces.append((self.clock(), data))

    def connection_lost(self, _: Exception | None) -> None:
        if not self._closed.done():
            self._closed.set_result(None)

    async def finished(self) -> Stream:
        """Returns the whole answer."""
        await self._closed
        return parsed(self.pieces)


def parsed(pieces: Sequence[tuple[float, bytes]]) -> Stream:
    """Returns the stream of which these pieces of an HTTP answer came, each at its time.

    An event that only says why the stream ends is no token. Raises RequestRefused.
    """
    times, texts, num_tokens = [], [], 0
    for at, chunk in _chunks(*_body(pieces)):
        if "error" in chunk:
            raise RequestRefused(f"The stream broke off: {chunk['error']}")
        choice = (chunk.get("choices") or [None])[0]
        if choice and (choice.get("text") or not choice.get("finish_reason")):
            times.append(at)
            texts.append(choice.get("text") or "")
        num_tokens = (chunk.get("usage") or {}).get("completion_tokens", num_tokens)
    if not times or not num_tokens:
        raise RequestRefused("The stream ended without tokens or without usage.")
    return Stream(tuple(times), "".join(texts), num_tokens)


def _chunks(
    content: bytes, stamps: Sequence[tuple[int, float]]
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yields the events and when the end of each was there."""
    place = 0
    for line in content.split(b"\n"):
        place += len(line)
        for chunk in events(iter([line.decode().rstrip()])):
            yield next(at for end, at in stamps if end >= place), chunk
        place += 1


def _body(pieces: Sequence[tuple[float, bytes]]) -> tuple[bytes, list[tuple[int, float]]]:
    """The content without HTTP's head and chunk frames; up to which byte was there at which time.

    Raises RequestRefused where the answer is not a streamed 200.
    """
    raw = b"".join(data for _, data in pieces)
    head, _, framed = raw.partition(HEAD_END)
    if not head.startswith(b"HTTP/1.1 200"):
        raise RequestRefused(raw.decode("utf-8", "replace")[:500])
    arrived, total = [], -len(head) - len(HEAD_END)
    for at, data in pieces:
        total += len(data)
        arrived.append((total, at))
    if b"transfer-encoding: chunked" not in head.lower():
        return framed, arrived
    content, stamps, place = b"", [], 0
    while place < len(framed):
        line_end = framed.index(b"\r\n", place)
        size = int(framed[place:line_end].split(b";")[0], 16)
        end = line_end + 2 + size
        content += framed[line_end + 2 : end]
        stamps.append((len(content), next(at for seen, at in arrived if seen >= end)))
        place = end + 2
    return content, stamps
