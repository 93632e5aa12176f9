"""`python -m loadtest.peers.http_workers`: OpenAI's API and no model, for routers over HTTP.

One process plays several on consecutive ports of 127.0.0.1. A streamed answer gets one event per
tick, as an engine's decode step gives; any other answer comes at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from typing import Any, cast

import uvloop

MODEL = "fake-model"
_JSON = b"application/json"
_MAX_TOKENS = re.compile(rb'"max_(?:completion_)?tokens":\s*(\d+)')
_STREAM = re.compile(rb'"stream":\s*true')


def _event(choice: dict[str, Any]) -> bytes:
    data = {
        "id": "chatcmpl-fake",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": MODEL,
        "choices": [{"index": 0, "logprobs": None, "finish_reason": None, **choice}],
    }
    return _chunk(b"data: " + json.dumps(data).encode() + b"\n\n")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


_ROLE = _event({"delta": {"role": "assistant", "content": ""}})
_TOKEN = _event({"delta": {"content": " token"}})
_USAGE = {"prompt_tokens": 500, "completion_tokens": 12, "total_tokens": 512}
_END = _event({"delta": {}, "finish_reason": "stop"}) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
_WHOLE = json.dumps(
    {
        "id": "chatcmpl-fake",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "A short answer of a fake worker."},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": _USAGE,
    }
).encode()
_MODELS = json.dumps(
    {"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": 32768}]}
).encode()
_INFO = json.dumps(
    {
        "model_path": MODEL,
        "served_model_name": MODEL,
        "tokenizer_path": MODEL,
        "is_generation": True,
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "max_running_requests": 1024,
        "max_total_num_tokens": 1_000_000,
        "version": "0.5.23",
        "status": "ready",
        "tp_size": 1,
        "dp_size": 1,
        "internal_states": [{"last_gen_throughput": 0.0}],
    }
).encode()
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


class Ticker:
    """Writes one event to every running stream, tick by tick."""

    def __init__(self, tick_s: float):
        self._tick_s = tick_s
        self._streams: dict[Connection, int] = {}

    def start(self, connection: Connection, num_tokens: int) -> None:
        """The connection's stream gets so many events; without ticks, all at once."""
        if self._tick_s:
            self._streams[connection] = num_tokens
        else:
            connection.write(_TOKEN * num_tokens + _END)

    def stop(self, connection: Connection) -> None:
        """The client is gone."""
        self._streams.pop(connection, None)

    async def run(self) -> None:
        """Tick for ever."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due += self._tick_s or 1.0
            await asyncio.sleep(max(0.0, due - loop.time()))
            for connection, left in list(self._streams.items()):
                connection.write(_TOKEN if left > 1 else _TOKEN + _END)
                if left > 1:
                    self._streams[connection] = left - 1
                else:
                    del self._streams[connection]


class Connection(asyncio.Protocol):
    """One client; requests one after the other, bodies by content-length or chunked."""

    def __init__(self, ticker: Ticker):
        self._ticker = ticker
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, _: Exception | None) -> None:
        """The client is gone."""
        self._ticker.stop(self)

    def write(self, data: bytes) -> None:
        """Send."""
        if self._transport is not None:
            self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        """Answer every whole request."""
        self._buffer += data
        while (request := self._take()) is not None:
            self._answer(*request)

    def _take(self) -> tuple[bytes, bytes, bytes] | None:
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        lower = head.lower()
        if b"transfer-encoding: chunked" in lower:
            whole = self._unchunked(rest)
            if whole is None:
                return None
            body, self._buffer = whole
        else:
            length = re.search(rb"content-length:\s*(\d+)", lower)
            size = int(length[1]) if length else 0
            if len(rest) < size:
                return None
            body, self._buffer = rest[:size], rest[size:]
        method, path, _ = head.split(b" ", 2)
        return method, path, body

    @staticmethod
    def _unchunked(rest: bytes) -> tuple[bytes, bytes] | None:
        body = b""
        while True:
            size, found, rest = rest.partition(b"\r\n")
            if not found:
                return None
            count = int(size, 16)
            if len(rest) < count + 2:
                return None
            body, rest = body + rest[:count], rest[count + 2 :]
            if not count:
                return body, rest

    def _answer(self, method: bytes, path: bytes, body: bytes) -> None:
        if method == b"POST" and path.endswith(b"/chat/completions"):
            if _STREAM.search(body):
                tokens = _MAX_TOKENS.search(body)
                self.write(_STREAM_HEAD + _ROLE)
                self._ticker.start(self, int(tokens[1]) if tokens else 16)
            else:
                self._whole(_WHOLE)
        elif path.startswith(b"/v1/models"):
            self._whole(_MODELS)
        else:
            self._whole(_INFO)

    def _whole(self, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"
        self.write(head % (_JSON, len(body)) + body)


async def serve(ports: list[int], tick_s: float) -> None:
    """Serve on all ports for ever."""
    loop = asyncio.get_running_loop()
    tickers = [Ticker(tick_s) for _ in ports]
    for port, ticker in zip(ports, tickers, strict=True):
        await loop.create_server(lambda ticker=ticker: Connection(ticker), "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.gather(*(ticker.run() for ticker in tickers))


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ports", required=True, help="comma-separated")
    parser.add_argument("--tick-ms", type=float, default=0.0)
    arguments = parser.parse_args()
    ports = [int(port) for port in arguments.ports.split(",")]
    uvloop.run(serve(ports, arguments.tick_ms / 1000))


if __name__ == "__main__":
    main()
