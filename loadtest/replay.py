"""Recorded requests sent to gateways when they are due, on a clock that runs faster than theirs.

An open loop: a request goes out at its time, whatever became of those before it. A piece becomes a
message `TOKENS:key`, which a fake worker counts as so many tokens. Plain sockets, since a
comfortable client would cost more than the gateways.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from loadtest.errors import RequestRefused
from loadtest.traces import Recorded

MODEL = "fake-model"
# Characters tell tokens, as in real prompts, only that each stands for more of them.
TOKENS_PER_CHAR = 16


@dataclass(frozen=True, slots=True)
class Speed:
    """How much faster than recorded, and how many of the answers' tokens are really made."""

    times: float = 1.0

    def output_tokens(self, recorded: int) -> int:
        """Each stands for as much time as `times` recorded ones."""
        return max(1, round(recorded / self.times))


@dataclass(frozen=True, slots=True)
class Served:
    """What became of one request. at_s: on the trace's clock. late_s: sent behind its time."""

    at_s: float
    worker: str
    prompt_tokens: int
    cached_tokens: int
    late_s: float = 0.0

    @property
    def computed_tokens(self) -> int:
        """Of the prompt."""
        return self.prompt_tokens - self.cached_tokens


@dataclass(slots=True)
class _Gateway:
    """One gateway's idle connections."""

    port: int
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)

    async def connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """One that the gateway has not closed since it was used last, or a new one."""
        while self.idle:
            reader, writer = self.idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def close(self) -> None:
        """No connection is left open."""
        idle, self.idle = self.idle, []
        for _, writer in idle:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in idle), return_exceptions=True)


def body(request: Recorded, speed: Speed) -> bytes:
    """The request's chat."""
    before, messages = 0, []
    for piece in request.pieces:
        tokens = piece.num_tokens - before
        content = f"{tokens}:{piece.key}".ljust(tokens // TOKENS_PER_CHAR, ".")
        messages.append({"role": "user", "content": content})
        before = piece.num_tokens
    chat = {
        "model": MODEL,
        "messages": messages,
        "prompt_cache_key": request.pieces[min(1, len(request.pieces) - 1)].key,
        "max_tokens": speed.output_tokens(request.output_tokens),
    }
    return json.dumps(chat, separators=(",", ":")).encode()


async def replay(
    requests: Sequence[Recorded], ports: Sequence[int], speed: Speed, seed: int = 0
) -> list[Served]:
    """Send all of them, each to a gateway drawn by chance. Raises RequestRefused."""
    rng = random.Random(seed)
    gateways = [_Gateway(port) for port in ports]
    loop = asyncio.get_running_loop()
    began = loop.time() - requests[0].at_s / speed.times
    tasks: list[asyncio.Task[Served]] = []
    async with asyncio.TaskGroup() as group:
        for request in requests:
            due = began + request.at_s / speed.times
            if (pause := due - loop.time()) > 0:
                await asyncio.sleep(pause)
            late = loop.time() - due
            sending = _send(request, rng.choice(gateways), speed, late)
            tasks.append(group.create_task(sending))
    for gateway in gateways:
        await gateway.close()
    return [task.result() for task in tasks]


async def _send(request: Recorded, gateway: _Gateway, speed: Speed, late_s: float) -> Served:
    chat = body(request, speed)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{gateway.port}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(chat)}\r\n\r\n"
    )
    try:
        told, answer = await _ask(gateway, head.encode() + chat)
    except (ConnectionError, asyncio.IncompleteReadError):
        # The gateway closed the idle connection just when it was taken up again.
        await gateway.close()
        told, answer = await _ask(gateway, head.encode() + chat)
    if not told.startswith(b"HTTP/1.1 200"):
        raise RequestRefused(f"{told.splitlines()[0].decode()} {answer.decode()}")
    usage = json.loads(answer)["usage"]
    details = usage.get("prompt_tokens_details") or {}
    return Served(
        at_s=request.at_s,
        worker=_headers(told)["x-pando-worker"],
        prompt_tokens=usage["prompt_tokens"],
        cached_tokens=details.get("cached_tokens", 0),
        late_s=late_s,
    )


async def _ask(gateway: _Gateway, message: bytes) -> tuple[bytes, bytes]:
    """The answer's head and body."""
    reader, writer = await gateway.connection()
    try:
        writer.write(message)
        told = await reader.readuntil(b"\r\n\r\n")
        answer = await reader.readexactly(int(_headers(told).get("content-length", "0")))
    except (ConnectionError, asyncio.IncompleteReadError):
        writer.close()
        raise
    gateway.idle.append((reader, writer))
    return told, answer


def _headers(told: bytes) -> dict[str, str]:
    lines = told.decode("latin-1").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}
