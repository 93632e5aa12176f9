"""The page over HTTP: three files that hold no data, and the JSON behind them, which is guarded.

    GET /ui                              the page
    GET /ui/page.js  /ui/page.css        its script and style
    GET /ui/state.json                   all that it shows
    GET /ui/request.json?id=REQUEST_ID   one request's life

The admin server gives the files to all and the JSON to its keys; the page asks for one and keeps it
in the tab. The public server gives all of it while the gateway is open, and else knows no such
path. Nothing may run in the page, and nothing be asked by it, but what comes from here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.resources import files

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gateway.errors import GatewayError, Headers, InternalError, NotFound
from gateway.http.inbound import header, request_id
from gateway.http.reply import Reply
from gateway.telemetry.log import EventLog
from gateway.tenancy.tenants import Tenants
from gateway.ui.state import State

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SECURITY: Headers = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
)
_FILES = {
    "/ui": ("page.html", b"text/html; charset=utf-8"),
    "/ui/page.js": ("page.js", b"text/javascript; charset=utf-8"),
    "/ui/page.css": ("page.css", b"text/css; charset=utf-8"),
}
# Raises GatewayError for who may not see it.
Guard = Callable[[str | None], object]
Body = Callable[[Request], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Door:
    """Who may see what on one server: guards of the files and of the data."""

    files: Guard
    data: Guard
    log: EventLog
    make_id: Callable[[], str]


def while_open(tenants: Tenants) -> Guard:
    """Lets everybody pass while the gateway is open; else there is no such path."""

    def guard(_: str | None) -> None:
        if not tenants.roster.open:
            raise NotFound("Unknown here: the page is shown by the admin API's server.")

    return guard


def everybody(_: str | None) -> None:
    """Lets everybody pass."""


def ui_routes(state: State, door: Door) -> list[Route]:
    """The page's routes, for one server."""
    routes = []
    for path, (name, kind) in _FILES.items():
        body = files("gateway.ui").joinpath(name).read_bytes()
        routes.append(_route(path, Endpoint(door, door.files, _file(body), kind)))

    async def page(_: Request) -> bytes:
        return await state.page()

    async def one(request: Request) -> bytes:
        return state.request(request.query_params.get("id", ""))

    json = b"application/json"
    routes.append(_route("/ui/state.json", Endpoint(door, door.data, page, json)))
    routes.append(_route("/ui/request.json", Endpoint(door, door.data, one, json)))
    return routes


def _route(path: str, endpoint: Endpoint) -> Route:
    return Route(path, endpoint, methods=["GET"])


def _file(body: bytes) -> Body:
    async def give(_: Request) -> bytes:
        return body

    return give


class Endpoint:
    """One path; an ASGI application of its own."""

    def __init__(self, door: Door, guard: Guard, body: Body, kind: bytes):
        self._door = door
        self._guard = guard
        self._body = body
        self._kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever happens."""
        reply = Reply(send, request_id(scope, self._door.make_id))
        reply.headers += _SECURITY
        try:
            self._guard(header(scope, "authorization"))
            body = await self._body(Request(scope, receive))
            await reply.whole(body, content_type=self._kind)
        except GatewayError as error:
            await reply.error(error)
        except Exception:
            self._door.log.exception("ui_failed", request_id=reply.request_id)
            await reply.error(InternalError())
