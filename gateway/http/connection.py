"""One client connection: uvicorn's, held to limits that it hasn't got (before step 1 of a request).

    the head is too large, or isn't there in time     refused; the connection closes
    a further request while one is being answered     not taken: the connection closes after the
                                                      answer, and a hang-up is seen meanwhile
    an answer before the body's end                   the rest is thrown away, for a while
    a client that takes nothing                       cut, whatever lies unsent (`stalls`)
    nothing more is asked                             closed after a while, but never over a request
                                                      that came while this process stood still
    Upgrade: h2c and the like                         ignored, as RFC 9110 (7.8) lets a server do

The parser keeps what it has not told us yet, part of a header say; `_untold` bounds that, but for
what came in one read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import httptools
import msgspec
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.config import LimitConfig
from gateway.errors import GatewayError, HeadTooLarge, InvalidHTTP, face_of, public_body
from gateway.http.stalls import Outflow

# The extension of a request's scope that holds its connection.
_SELF = "pando.connection"
# How the parser counts a header's colon, space and line end.
_HEADER_FRAME = 4
# A loop that was held up hears of a time that is over before it reads what came meanwhile: so long
# it reads then.
_LATE_S = 0.1
# When the gateway leaves, an idle connection is kept so long for what is on its way already.
_LEAVE_S = 1.0


def _nothing() -> None:
    """Nobody counts the clients that take nothing."""


class Connection(HttpToolsProtocol):
    """Lives as long as the socket; one request after the other. on_stall: called when it is cut."""

    def __init__(
        self, limits: LimitConfig, on_stall: Callable[[], None] = _nothing, **of_uvicorn: Any
    ):
        super().__init__(**of_uvicorn)
        self.timeout_keep_alive = limits.idle_s  # type: ignore[assignment]
        self._limits = limits
        self._on_stall = on_stall
        self._outflow: Outflow | None = None
        self._head_len = 0
        self._untold = 0
        self._deaf = False
        self._upgrading = False
        self._leaving = False
        self._timer: asyncio.TimerHandle | None = None
        self._gone = False
        self._hang_up: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The client has so long for its first head."""
        super().connection_made(transport)
        self._outflow = Outflow(transport, self._limits.stall_s, self._on_stall)
        self.transport = cast(asyncio.Transport, self._outflow)
        self._close_in(self._limits.head_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """The request that is being answered learns of it."""
        self._close_in(None)
        if self._outflow is not None:
            self._outflow.stop()
        self._gone = True
        super().connection_lost(exc)
        if self._hang_up is not None:
            self._hang_up()

    def on_hang_up(self, call: Callable[[], None] | None) -> None:
        """Call this when the client is gone, soon if it is gone already; None: call nothing."""
        self._hang_up = call
        if call is not None and self._gone:
            self.loop.call_soon(call)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, which calls the methods below."""
        if self._deaf:
            return
        self._unset_keepalive_if_required()
        self._untold += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._read_again_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(HeadTooLarge() if self._is_too_large else InvalidHTTP())
        else:
            if self._is_too_large:
                self._refuse(HeadTooLarge())

    # ------------------------------------------------------------------ what the parser tells

    def on_message_begin(self) -> None:
        """A request's first byte."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._hear_no_more()
            return
        super().on_message_begin()
        self._head_len = 0
        self._close_in(self._limits.head_timeout_s)

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        if not self._deaf:
            self._count(len(url))
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer behind the body."""
        if not self._deaf:
            self._count(len(name) + len(value) + _HEADER_FRAME)
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The request begins."""
        if self._deaf:
            return
        self._untold = 0
        self._close_in(None)
        self._upgrading = self.parser.should_upgrade()
        if not self._upgrading:
            self.scope["extensions"] = {_SELF: {"self": self}}
            super().on_headers_complete()
            if self._leaving:
                self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if not self._deaf:
            self._untold = 0
            super().on_body(body)

    def on_message_complete(self) -> None:
        """A request's last byte."""
        if self._deaf or self._upgrading:
            return
        if self.cycle.response_complete:
            self._close_in(None)
        super().on_message_complete()
        # uvicorn stops reading behind a large piece, and then nobody would see a hang-up.
        self.flow.resume_reading()

    # ------------------------------------------------------------------ and what we make of it

    def on_response_complete(self) -> None:
        """The next request may come; what is left of this one's body may not come for ever."""
        super().on_response_complete()
        if self.cycle.more_body:
            self._close_in(self._limits.body_timeout_s)

    def timeout_keep_alive_handler(self) -> None:
        """Nothing more was asked for so long. What came meanwhile is read first, and stops this."""
        self.timeout_keep_alive_task = self.loop.call_later(
            _LATE_S, super().timeout_keep_alive_handler
        )

    def shutdown(self) -> None:
        """The gateway leaves: one more request at most is answered, and its client told of it."""
        self._leaving = True
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(_LEAVE_S, self._leave)
        else:
            self.cycle.keep_alive = False

    def _leave(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    @property
    def _is_too_large(self) -> bool:
        return self._head_len + self._untold > self._limits.head_bytes

    def _count(self, size: int) -> None:
        """Raises HeadTooLarge, which ends the parser's run."""
        self._untold = 0
        self._head_len += size
        if self._is_too_large:
            raise HeadTooLarge

    def _read_again_without_upgrade(self, rest: bytes) -> None:
        """The parser takes what follows such a head for another protocol, so it gets a new one."""
        method = self.parser.get_method()
        if self._deaf or method == b"CONNECT":
            self._refuse(InvalidHTTP())
            return
        lines = [b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode())]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def _refuse(self, error: GatewayError) -> None:
        """Answer in OpenAI's form and close; behind a request that is being answered only stop."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            self._hear_no_more()
            return
        body = msgspec.json.encode(public_body(error))
        head = [
            STATUS_LINE[face_of(error).status],
            b"content-type: application/json\r\nconnection: close\r\n",
            b"content-length: %d\r\n\r\n" % len(body),
        ]
        self.transport.write(b"".join([*head, body]))
        self.transport.close()

    def _hear_no_more(self) -> None:
        """Whatever comes is thrown away, and after the answer the connection closes."""
        self._deaf = True
        self.cycle.keep_alive = False

    def _close_in(self, seconds: float | None) -> None:
        """Close the connection after so long, in place of what was set before; None: never."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        self._timer = self.loop.call_later(_LATE_S, self._close)

    def _close(self) -> None:
        self.transport.close()


def connection_of(scope: Scope) -> Connection:
    """The connection over which a request came."""
    return cast(Connection, scope["extensions"][_SELF]["self"])
