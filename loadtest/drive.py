"""A closed loop of HTTP clients: so many connections, each with one request under way at a time.

Plain sockets on uvloop, since a comfortable client would cost more than what it measures. Answers
are read to their end and their events counted, not parsed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

WORDS = ("system", "policy", "assistant", "answer", "cache", "prefix", "route", "tenant")


@dataclass(frozen=True, slots=True)
class Drive:
    """What is sent. think_s: pause of each client between two requests.

    every_s: from the start of a client's request to the start of its next one, if the first is over
    by then. key: for the API.
    """

    port: int
    connections: int
    seconds: float
    warm_s: float = 1.0
    stream: bool = False
    max_tokens: int = 64
    prefix_chars: int = 2000
    prefixes: int = 32
    model: str = "fake-model"
    think_s: float = 0.0
    seed: int = 0
    every_s: float = 0.0
    key: str = ""


@dataclass(slots=True)
class Driven:
    """What came back within the measured time. Latencies in seconds; cpu_s: of `cpu`."""

    seconds: float = 0.0
    num_requests: int = 0
    num_events: int = 0
    num_errors: int = 0
    cpu_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    first_event_s: list[float] = field(default_factory=list)

    def quantile(self, share: float) -> float:
        """A latency's quantile."""
        values = sorted(self.latencies_s)
        return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def bodies(drive: Drive, count: int = 512) -> list[bytes]:
    """Whole HTTP requests; those of one prefix share a system message."""
    rng = random.Random(drive.seed)
    systems = []
    for number in range(drive.prefixes):
        text = f"PFX:{number:06d} "
        while len(text) < drive.prefix_chars:
            text += rng.choice(WORDS) + " "
        systems.append(text)
    made = []
    authorization = f"authorization: Bearer {drive.key}\r\n" if drive.key else ""
    for number in range(count):
        question = " ".join(rng.choices(WORDS, k=14))
        body = (
            f'{{"model":"{drive.model}","messages":[{{"role":"system","content":'
            f'"{rng.choice(systems)}"}},'
            f'{{"role":"user","content":"Question {number}: {question}"}}],'
            f'"max_tokens":{drive.max_tokens},"temperature":0.7,'
            f'"stream":{"true" if drive.stream else "false"}}}'
        ).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{drive.port}\r\n"
            f"{authorization}content-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        made.append(head.encode() + body)
    return made


class _Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, loop: _Loop):
        self._loop = loop
        self._tail = b""
        self._head_done = False
        self._left = 0
        self._chunked = False
        self.began = 0.0
        self.first: float | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.send()

    def connection_lost(self, _: Exception | None) -> None:
        self._loop.lost()

    def send(self) -> None:
        if self._loop.stopped:
            return
        assert self.transport is not None
        self._tail, self._head_done, self._chunked = b"", False, False
        self.first, self.began = None, time.perf_counter()
        self.transport.write(self._loop.next_request())

    def data_received(self, data: bytes) -> None:
        if not self._head_done:
            data = self._tail + data
            head, found, data = data.partition(b"\r\n\r\n")
            if not found:
                self._tail = head
                return
            self._read_head(head)
        events = data.count(b"data:")
        if events:
            self._loop.came(events)
            if self.first is None:
                self.first = time.perf_counter()
        if self._chunked:
            self._tail = (self._tail + data)[-5:]
            ended = self._tail == b"0\r\n\r\n"
        else:
            self._left -= len(data)
            ended = self._left <= 0
        if ended:
            self._loop.ended(self)

    def _read_head(self, head: bytes) -> None:
        lower = head.lower()
        self._head_done, self._tail = True, b""
        self._chunked = b"transfer-encoding: chunked" in lower
        if not head.startswith(b"HTTP/1.1 200"):
            self._loop.refused()
        if not self._chunked:
            self._left = int(lower.partition(b"content-length:")[2].split(b"\r\n")[0])


class _Loop:
    """Counts what ends within the measured time."""

    def __init__(self, drive: Drive):
        self._drive = drive
        self._bodies = bodies(drive)
        self._rng = random.Random(drive.seed)
        self.driven = Driven()
        self.measuring = False
        self.stopped = False

    def next_request(self) -> bytes:
        return self._bodies[self._rng.randrange(len(self._bodies))]

    def ended(self, client: _Client) -> None:
        if self.measuring:
            driven = self.driven
            driven.num_requests += 1
            driven.latencies_s.append(time.perf_counter() - client.began)
            if client.first is not None:
                driven.first_event_s.append(client.first - client.began)
        if self.stopped:
            return
        pause_s = self._drive.think_s
        if self._drive.every_s:
            pause_s = max(0.0, client.began + self._drive.every_s - time.perf_counter())
        if pause_s:
            asyncio.get_running_loop().call_later(pause_s, client.send)
        else:
            client.send()

    def came(self, events: int) -> None:
        if self.measuring:
            self.driven.num_events += events

    def refused(self) -> None:
        self.driven.num_errors += 1

    def lost(self) -> None:
        if not self.stopped:
            self.driven.num_errors += 1


async def drive_async(drive: Drive, cpu: Callable[[], float]) -> Driven:
    """Sends for the whole time; cpu: seconds that what is measured has used so far."""
    loop = asyncio.get_running_loop()
    counting = _Loop(drive)
    clients: Sequence[_Client] = [
        (await loop.create_connection(lambda: _Client(counting), "127.0.0.1", drive.port))[1]
        for _ in range(drive.connections)
    ]
    await asyncio.sleep(drive.warm_s)
    counting.measuring = True
    before, began = cpu(), time.perf_counter()
    await asyncio.sleep(drive.seconds)
    counting.measuring, counting.stopped = False, True
    counting.driven.cpu_s = cpu() - before
    counting.driven.seconds = time.perf_counter() - began
    for client in clients:
        if client.transport is not None:
            client.transport.abort()
    return counting.driven
