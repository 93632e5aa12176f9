"""How a server with OpenAI's API is asked: one HTTP request per ask, and its events as they come.

    Ask ──▶ POST, streamed ──▶ outputs ──▶ [DONE]: the end ──▶ what is left of the body

What is left is read, if it comes soon, so that the connection is kept: closing it costs server and
gateway a new one for every ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

import httpx
import msgspec
from msgspec.structs import replace

from gateway.config import ForeignConfig
from gateway.errors import GatewayError, InternalError, WorkerLost
from gateway.fleet.foreign_pieces import piece_of
from gateway.fleet.openai_door import Call, call_of, error_of
from gateway.request import Ask, Deliver, Done, Event, Failed, Usage

_MAX_ERROR_BYTES = 64 * 1024
_MAX_LINE_BYTES = 1024 * 1024
# How long the end of a body may come after its last event.
_REST_S = 1.0


class ForeignDoor:
    """Asks over HTTP.

    A server that tells no usage is given one: the tokens that came, and `prompt_tokens == 0`, which
    says that nobody counted the prompt. Whoever bills puts an estimate in its place.
    """

    def __init__(self, client: httpx.AsyncClient, config: ForeignConfig, model: str):
        self._client = client
        self._config = config
        self._model = model
        self._tasks: set[asyncio.Task[None]] = set()

    @contextmanager
    def submit(self, ask: Ask, deliver: Deliver) -> Iterator[None]:
        """As Door.submit. What this server cannot do comes as a failure."""
        conversation = _Conversation(deliver)
        task = asyncio.create_task(self._converse(ask, conversation))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            yield
        finally:
            # Behind the end the task only reads what is left of the body.
            if not conversation.is_over:
                task.cancel()

    async def _converse(self, ask: Ask, conversation: _Conversation) -> None:
        """Exactly one end is delivered, unless the task is cancelled."""
        try:
            call = call_of(ask, self._model, self._config.kind)
            await self._stream(call, ask.traceparent, conversation)
        except GatewayError as error:
            conversation.end(Failed(error))
        except (httpx.HTTPError, msgspec.DecodeError) as error:
            conversation.end(Failed(WorkerLost(f"{self._config.name}: {reason_of(error)}")))
        except Exception as error:
            conversation.end(
                Failed(InternalError(f"{self._config.name}: {type(error).__name__}: {error}"))
            )

    async def _stream(self, call: Call, traceparent: str, conversation: _Conversation) -> None:
        """The outputs and the usage are delivered. Raises GatewayError, httpx.HTTPError."""
        headers = {"content-type": "application/json"}
        if traceparent:
            headers["traceparent"] = traceparent
        request = self._client.stream("POST", call.path, content=call.body, headers=headers)
        async with request as response:
            if response.status_code != 200:
                raise error_of(response.status_code, await limited(response, _MAX_ERROR_BYTES))
            lines = lines_of(response.aiter_bytes())
            async for line in lines:
                if conversation.take(line):
                    await _read_rest(lines)
                    return
        raise WorkerLost("the stream ended early")


class _Conversation:
    """What comes for one ask, delivered as it comes. is_over: the end was delivered."""

    def __init__(self, deliver: Deliver):
        self._deliver = deliver
        self._usage = Usage()
        self._num_tokens = 0
        self.is_over = False

    def take(self, line: bytes) -> bool:
        """Whether the line is the last event. Raises WorkerLost, msgspec.DecodeError."""
        if not line.startswith(b"data:"):
            return False
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            told = self._usage.completion_tokens
            self.end(Done(replace(self._usage, completion_tokens=told or self._num_tokens)))
            return True
        piece = piece_of(data)
        if piece.error is not None:
            raise WorkerLost(piece.error)
        for output in piece.outputs:
            self._num_tokens += output.num_tokens
            self._deliver(output)
        self._usage = piece.usage or self._usage
        return False

    def end(self, event: Event) -> None:
        """The end is delivered, unless it was already."""
        if not self.is_over:
            self.is_over = True
            self._deliver(event)


async def _read_rest(lines: AsyncIterator[bytes]) -> None:
    """The body's end is read if it comes soon, so that the connection serves the next ask."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_REST_S):
            async for _ in lines:
                pass


async def lines_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines of a stream, without their ends.

    A line ends with \\n alone: JSON may hold U+2028 and the like as they are. Raises WorkerLost
    where a line is too long.
    """
    begun: list[bytes] = []
    size = 0
    async for piece in pieces:
        *ended, rest = piece.split(b"\n")
        for line in ended:
            yield b"".join([*begun, line])
            begun, size = [], 0
        begun.append(rest)
        size += len(rest)
        if size > _MAX_LINE_BYTES:
            raise WorkerLost(f"a line of its answer is longer than {_MAX_LINE_BYTES} bytes")
    if begun:
        yield b"".join(begun)


def reason_of(error: Exception) -> str:
    """What went wrong, without the key that was sent."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"it answered {error.response.status_code}"
    if isinstance(error, httpx.LocalProtocolError):  # it quotes the header
        return "the request cannot be sent: a header, of the key perhaps, is not well formed"
    return f"{type(error).__name__}: {error}"


async def limited(response: httpx.Response, max_bytes: int) -> bytes:
    """The body, or so much of it that it is seen to be longer than that."""
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > max_bytes:
            break
    return bytes(body)
