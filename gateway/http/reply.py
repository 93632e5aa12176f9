"""What goes back over one HTTP exchange: a whole body, a stream of events, or an error.

The first thing sent decides the form: an error before it is a plain JSON answer, an error after it
is one event, and the stream ends without `[DONE]`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
from starlette.types import Send

from gateway.errors import GatewayError, Headers, face_of, public_body, retry_after_s
from gateway.http.answer import error_event

_JSON = b"application/json"
_EVENTS = b"text/event-stream; charset=utf-8"


class Reply:
    """One response on its way. worker: who serves it, once that is known; headers: further ones.

    failure: the last event of a stream that failed. traceparent: the request's, where it is traced.
    """

    def __init__(self, send: Send, request_id: str):
        self._send = send
        self.request_id = request_id
        self._started = False
        self.traceparent: str | None = None
        self.worker = ""
        self.headers: Headers = ()
        self.failure: Callable[[GatewayError], bytes] = error_event

    async def whole(self, body: bytes, status: int = 200, content_type: bytes = _JSON) -> None:
        """Answer in one piece."""
        await self._start(status, [(b"content-type", content_type), _length(body)])
        await self._send({"type": "http.response.body", "body": body})

    async def events(self, events: bytes) -> None:
        """Send events; the first ones open the stream."""
        if not self._started:
            await self._start(
                200, [(b"content-type", _EVENTS), (b"cache-control", b"no-cache, no-transform")]
            )
        await self._send({"type": "http.response.body", "body": events, "more_body": True})

    async def end(self, events: bytes) -> None:
        """Send the last events and close the stream."""
        await self.events(events)
        await self._send({"type": "http.response.body", "body": b""})

    async def error(self, error: GatewayError) -> None:
        """Tell the client what ended its request."""
        if self._started:
            await self.end(self.failure(error))
            return
        body = msgspec.json.encode(public_body(error))
        headers = [(b"content-type", _JSON), _length(body)]
        wait_s = retry_after_s(error)
        if wait_s is not None:
            headers.append((b"retry-after", b"%d" % math.ceil(wait_s)))
        self.headers += error.headers
        await self._start(face_of(error).status, headers)
        await self._send({"type": "http.response.body", "body": body})

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._started = True
        headers.append((b"x-request-id", self.request_id.encode()))
        headers += [(name.encode(), value.encode()) for name, value in self.headers]
        if self.worker:
            headers.append((b"x-pando-worker", self.worker.encode()))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})


def _length(body: bytes) -> tuple[bytes, bytes]:
    return b"content-length", str(len(body)).encode()
