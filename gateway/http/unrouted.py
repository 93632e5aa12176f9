"""What is asked of a path, or by a method, that does not exist: refused in OpenAI's form."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import MethodNotAllowed, NotFound, public_body
from gateway.http.inbound import request_id

Refuse = Callable[[Request, Exception], Response]


def unrouted(make_id: Callable[[], str]) -> dict[int | type[Exception], Refuse]:
    """The handlers of an application's own 404 and 405."""

    def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        what = f"{request.method} {request.url.path}"
        known = error.status_code == 405
        told = MethodNotAllowed(f"Not allowed: {what}.") if known else NotFound(f"Unknown: {what}.")
        headers = {**(error.headers or {}), "x-request-id": request_id(request.scope, make_id)}
        body = msgspec.json.encode(public_body(told))
        return Response(body, error.status_code, headers, "application/json")

    return {404: refuse, 405: refuse}
