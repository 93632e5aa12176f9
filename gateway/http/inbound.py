"""What comes in over one HTTP exchange: headers, the body within its limit, and the hang-up."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

from starlette.types import Receive, Scope

from gateway.errors import BodyTimeout, BodyTooLarge, ClientGone, InvalidRequest

_SANE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_MAX_HEADER_CHARS = 256
# Reading a larger body takes longer than all other requests should wait.
_LARGE_BYTES = 256 * 1024
Result = TypeVar("Result")


def header(scope: Scope, name: str) -> str | None:
    """A header's value; None if it is absent."""
    wanted = name.encode()
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return next((value.decode("latin-1") for key, value in headers if key == wanted), None)


def label_header(scope: Scope, name: str) -> str | None:
    """A header that names something. Raises InvalidRequest if it is longer than names are."""
    value = header(scope, name)
    if value is not None and not 1 <= len(value) <= _MAX_HEADER_CHARS:
        raise InvalidRequest(
            f"Invalid value for the header {name!r}: expected 1 to {_MAX_HEADER_CHARS} characters.",
            param=name,
        )
    return value


def sane_request_id(scope: Scope) -> str | None:
    """The client's own request id, if it is one that we take."""
    value = header(scope, "x-request-id")
    return value if value is not None and _SANE_ID.fullmatch(value) else None


def request_id(scope: Scope, make_id: Callable[[], str]) -> str:
    """The client's own request id, or a new one."""
    return sane_request_id(scope) or f"req-{make_id()}"


async def read_body(scope: Scope, receive: Receive, max_bytes: int, timeout_s: float) -> bytes:
    """The whole body. Raises BodyTooLarge, BodyTimeout, ClientGone."""
    declared = header(scope, "content-length")
    if declared is not None and int(declared) > max_bytes:
        raise BodyTooLarge(f"The body is larger than {max_bytes} bytes.")
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone("while sending the body")
                piece: bytes = message.get("body", b"")
                size += len(piece)
                if size > max_bytes:
                    raise BodyTooLarge(f"The body is larger than {max_bytes} bytes.")
                pieces.append(piece)
                if not message.get("more_body", False):
                    return b"".join(pieces)
    except TimeoutError:
        raise BodyTimeout(f"The body did not arrive within {timeout_s:g} s.") from None


async def worked(size: int, work: Callable[[], Result]) -> Result:
    """What the work on a body returns; for a large one a thread does it, beside other requests."""
    return await asyncio.to_thread(work) if size > _LARGE_BYTES else work()


class Line(Protocol):
    """The connection to a client."""

    def on_hang_up(self, call: Callable[[], None] | None) -> None:
        """Call this when the client is gone, soon if it is gone already; None: call nothing."""
        ...


async def unless_gone(line: Line, work: Awaitable[None]) -> None:
    """Do the work; when the client hangs up, cancel it and raise ClientGone.

    The work runs in the caller's own task, so that its cancellation unwinds every context.
    """
    task = asyncio.current_task()
    assert task is not None, "an ASGI application runs in a task"
    is_gone = False

    def cancel() -> None:
        nonlocal is_gone
        is_gone = True
        task.cancel()

    line.on_hang_up(cancel)
    try:
        await work
    except asyncio.CancelledError:
        if is_gone and not task.uncancel():
            raise ClientGone("before the end of the answer") from None
        raise
    finally:
        line.on_hang_up(None)
