"""The body within its limit, and the hang-up told from the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from starlette.types import Message, Receive, Scope

from gateway.errors import BodyTimeout, BodyTooLarge, ClientGone
from gateway.http.inbound import read_body, sane_request_id, unless_gone, worked


def receiving(*messages: Message) -> Receive:
    """A receive that gives the messages, then waits for ever."""
    left = list(messages)

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()
        return left.pop(0)

    return receive


def piece(body: bytes, more: bool = True) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def pending_cancels() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


GONE: Message = {"type": "http.disconnect"}
SCOPE: Scope = {"headers": []}


async def test_pieces_become_one_body() -> None:
    receive = receiving(piece(b"a"), piece(b""), piece(b"b", more=False))
    assert await read_body(SCOPE, receive, 2, 60) == b"ab"


async def test_a_body_that_is_too_large_is_refused_at_once() -> None:
    with pytest.raises(BodyTooLarge):
        await read_body(SCOPE, receiving(piece(b"abc")), 2, 60)
    declared = {"headers": [(b"content-length", b"3")]}
    with pytest.raises(BodyTooLarge):
        await read_body(declared, receiving(), 2, 60)


async def test_a_body_that_stops_or_whose_sender_leaves_is_given_up() -> None:
    with pytest.raises(BodyTimeout):
        await read_body(SCOPE, receiving(piece(b"a")), 9, 0.001)
    with pytest.raises(ClientGone):
        await read_body(SCOPE, receiving(piece(b"a"), GONE), 9, 60)


class Client:
    """A client that hangs up when it is told to, or has before anybody listened."""

    def __init__(self, gone: bool = False):
        self._gone = gone
        self.call: Callable[[], None] | None = None

    def on_hang_up(self, call: Callable[[], None] | None) -> None:
        self.call = call
        if call is not None and self._gone:
            asyncio.get_running_loop().call_soon(call)

    def hang_up(self) -> None:
        if self.call is not None:
            self.call()


@pytest.mark.parametrize("before", [True, False])
async def test_a_hang_up_cancels_the_work_and_says_so(before: bool) -> None:
    unwound = asyncio.Event()
    client = Client(gone=before)

    async def work() -> None:
        try:
            if not before:
                asyncio.get_running_loop().call_soon(client.hang_up)
            await asyncio.Event().wait()
        finally:
            unwound.set()

    with pytest.raises(ClientGone):
        await unless_gone(client, work())
    assert unwound.is_set()
    assert client.call is None
    assert pending_cancels() == 0


async def test_a_hang_up_after_the_work_cancels_nothing() -> None:
    client = Client()

    async def work() -> None:
        pass

    await unless_gone(client, work())
    client.hang_up()
    await asyncio.sleep(0)
    assert pending_cancels() == 0


async def test_a_cancel_from_elsewhere_stays_a_cancel() -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(unless_gone(Client(), work()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("value", "kept"),
    [(b"req-1.a:B_2", True), (b"", False), (b"a b", False), (b"x" * 129, False), (b"\xff", False)],
)
def test_only_a_sane_request_id_is_kept(value: bytes, kept: bool) -> None:
    scope = {"headers": [(b"x-request-id", value)]}
    assert (sane_request_id(scope) is not None) == kept


async def test_a_large_body_is_worked_on_beside_the_loop() -> None:
    here = threading.get_ident()
    assert await worked(1000, threading.get_ident) == here
    assert await worked(1_000_000, threading.get_ident) != here
