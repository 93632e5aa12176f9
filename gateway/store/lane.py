"""How Redis is asked: on one connection, everything that waits in one piece.

    calls of one turn of the loop ──▶ one write ──▶ Redis ──▶ the replies, in order
    calls meanwhile wait ───────────▶ the next write

So a call costs a tenth of a round trip of its own where many wait, and calls keep their order. A
connection that was dropped while idle is made again, and what was under way is asked again: every
script may be repeated. Whatever else goes wrong fails all calls that wait.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, ResponseError

from gateway.store.interface import StoreAway

Argument = str | bytes | int
# Strings and numbers as Redis sends them; its own nesting is lists.
Reply = Any

_MAX_BATCH = 256


class Script:
    """A Lua script that lies beside this module."""

    def __init__(self, name: str):
        self.text = resources.files("gateway.store").joinpath(f"{name}.lua").read_text("utf-8")
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def command(self, keys: Sequence[str], arguments: Sequence[Argument]) -> Command:
        """What is sent to run it."""
        return Command(("EVALSHA", self.digest, len(keys), *keys, *arguments), self)


@dataclass(frozen=True, slots=True)
class Command:
    """A command's words, and the script that it runs, if it does."""

    words: tuple[Argument, ...]
    script: Script | None = None


@dataclass(slots=True)
class _Call:
    command: Command
    reply: asyncio.Future[Reply] = field(repr=False)


class Lane:
    """Lives on one event loop. timeout_s: of one piece; a call may wait for the one before, too."""

    def __init__(self, url: str, timeout_s: float):
        pool = ConnectionPool.from_url(url, protocol=2, socket_timeout=None)
        self._connection: AbstractConnection = pool.make_connection()
        self._timeout_s = timeout_s
        self._waiting: list[_Call] = []
        self._worker: asyncio.Task[None] | None = None

    async def ask(self, command: Command) -> Reply:
        """The reply to one command. Raises StoreAway."""
        loop = asyncio.get_running_loop()
        call = _Call(command, loop.create_future())
        self._waiting.append(call)
        if self._worker is None:
            self._worker = loop.create_task(self._work())
        return await call.reply

    async def aclose(self) -> None:
        """Whoever waits is answered; then the connection is closed."""
        while self._worker is not None:
            await asyncio.wait([self._worker])
        await self._connection.disconnect(nowait=True)

    async def _work(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:_MAX_BATCH], self._waiting[_MAX_BATCH:]
                await self._serve(batch)
        finally:
            self._worker = None

    async def _serve(self, batch: list[_Call]) -> None:
        """Every call of the batch has its reply, or StoreAway."""
        try:
            async with _patience(self._timeout_s):
                replies = await self._send_twice([call.command for call in batch])
        except TimeoutError:
            await self._fail(batch, f"no answer within {self._timeout_s:g} s")
        except Exception as error:
            await self._fail(batch, f"{type(error).__name__}: {error}")
        else:
            for call, reply in zip(batch, replies, strict=True):
                if isinstance(reply, ResponseError):
                    _refuse(call, f"{type(reply).__name__}: {reply}")
                elif not call.reply.done():
                    call.reply.set_result(reply)

    async def _fail(self, batch: list[_Call], reason: str) -> None:
        """The batch fails, and what has waited for it meanwhile: it would only wait as long."""
        waiting, self._waiting = self._waiting, []
        await self._connection.disconnect(nowait=True)
        for call in (*batch, *waiting):
            _refuse(call, reason)

    async def _send_twice(self, commands: list[Command]) -> list[Reply]:
        """The replies; once more where the connection broke, or Redis lost the scripts."""
        try:
            replies = await self._send([command.words for command in commands])
        except (RedisConnectionError, OSError):
            await self._connection.disconnect(nowait=True)
            replies = await self._send([command.words for command in commands])
        lost = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if lost:
            again = []
            for i in lost:
                words, script = commands[i].words, commands[i].script
                assert script is not None, "only scripts can be unknown"
                again.append(("EVAL", script.text, *words[2:]))
            for i, reply in zip(lost, await self._send(again), strict=True):
                replies[i] = reply
        return replies

    async def _send(self, commands: Sequence[tuple[Argument, ...]]) -> list[Reply]:
        connection = self._connection
        await connection.connect()
        packed = b"".join(map(_packed, commands))
        await connection.send_packed_command(packed, check_health=False)
        replies: list[Reply] = []
        for _ in commands:
            try:
                replies.append(await connection.read_response())
            except ResponseError as error:
                replies.append(error)
        return replies


@asynccontextmanager
async def _patience(timeout_s: float) -> AsyncIterator[None]:
    """Raises TimeoutError after so long. A loop that was held up gets to see what came meanwhile.

    The last quarter begins when the loop gets to it: else a gateway that stalled would find its
    time over before it read the reply, and take Redis for away.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as timeout:

        def last_quarter() -> None:
            timeout.reschedule(loop.time() + timeout_s / 4)

        timer = loop.call_later(timeout_s * 3 / 4, last_quarter)
        try:
            yield
        finally:
            timer.cancel()


def _packed(words: tuple[Argument, ...]) -> bytes:
    """A command as Redis reads it; redis-py's own packing takes eight times as long."""
    pieces = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        pieces.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(pieces)


def _refuse(call: _Call, reason: str) -> None:
    if not call.reply.done():
        call.reply.set_exception(StoreAway(reason))
