"""The admin API: tenants, their keys and usage, and the fleet, on a port and with keys of its own.

    GET    /admin/tenants                       those that this gateway serves, by id:
                                                ?limit=100&after=ID; has_more: ask on
    GET    /admin/tenants/{id}                  one; ETag names its state
    PUT    /admin/tenants/{id}                  the whole tenant; without `keys` it keeps its own.
                                                If-Match: ETag    only if it still is what was read
                                                If-None-Match: *  only if it is new
    PATCH  /admin/tenants/{id}                  what the body names; null: its default (If-Match)
    DELETE /admin/tenants/{id}                  it is gone (If-Match)
    POST   /admin/tenants/{id}/keys             a new key, told once: {id, expires_in | expires_at}
    DELETE /admin/tenants/{id}/keys/{key_id}    it is gone; with ?expires_in=SECONDS, it will be
    GET    /admin/tenants/{id}/usage            ?days=7&by=day (or hour)
    GET    /admin/fleet                         the live workers

Errors have OpenAI's form. Every change is a line in the log, under the admin key that made it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from gateway.config import GatewayConfig
from gateway.errors import (
    GatewayError,
    InternalError,
    InvalidRequest,
    Unauthenticated,
    face_of,
)
from gateway.http.admin_views import (
    MAX_DAYS,
    FleetView,
    NewKeyView,
    TenantList,
    TenantView,
    UsageList,
    read_new_key,
    read_patch,
    read_tenant,
)
from gateway.http.catalogue import Catalogue
from gateway.http.doubts import doubts
from gateway.http.inbound import header, read_body, request_id
from gateway.http.reply import Reply
from gateway.http.unrouted import unrouted
from gateway.telemetry.log import EventLog
from gateway.tenancy.directory import Condition, Directory, Listed
from gateway.tenancy.keys import bearer_digest

# Tenants that are listed at once.
_PAGE, _MAX_PAGE = 100, 1000
_MAX_EXPIRES_IN_S = 10 * 366 * 86_400.0


@dataclass(frozen=True, slots=True)
class AdminService:
    """What the routes work with."""

    config: GatewayConfig
    directory: Directory
    catalogue: Catalogue
    log: EventLog
    make_id: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Call:
    """One request whose sender may ask. log: with the admin key's first digits."""

    service: AdminService
    request: Request
    body: bytes
    log: EventLog

    @property
    def tenant(self) -> str:
        """The tenant of the URL."""
        return str(self.request.path_params["id"])

    @property
    def condition(self) -> Condition:
        """What the headers ask to hold."""
        headers = self.request.headers
        etag = headers.get("if-match")
        return Condition(
            etag=None if etag is None else etag.strip().strip('"'),
            absent=headers.get("if-none-match") == "*",
        )


@dataclass(frozen=True, slots=True)
class Told:
    """The answer to a call. body None: none."""

    body: object
    status: int = 200
    etag: str | None = None


Work = Callable[[Call], Awaitable[Told]]


def build_admin(service: AdminService, beside: Sequence[BaseRoute] = ()) -> Starlette:
    """The ASGI application. Whoever serves it keeps it from the public. beside: further routes."""
    routes: list[tuple[str, str, Work]] = [
        ("GET", "/admin/tenants", list_tenants),
        ("GET", "/admin/tenants/{id}", get_tenant),
        ("PUT", "/admin/tenants/{id}", put_tenant),
        ("PATCH", "/admin/tenants/{id}", patch_tenant),
        ("DELETE", "/admin/tenants/{id}", delete_tenant),
        ("POST", "/admin/tenants/{id}/keys", add_key),
        ("DELETE", "/admin/tenants/{id}/keys/{key_id}", end_key),
        ("GET", "/admin/tenants/{id}/usage", get_usage),
        ("GET", "/admin/fleet", get_fleet),
    ]
    paths: dict[str, dict[str, Work]] = {}
    for method, path, work in routes:
        paths.setdefault(path, {})[method] = work
    app = Starlette(
        routes=[
            *(
                Route(path, Endpoint(service, works), methods=list(works))
                for path, works in paths.items()
            ),
            *beside,
        ],
        exception_handlers=unrouted(service.make_id),
    )
    app.router.redirect_slashes = False
    return app


class Endpoint:
    """One path; an ASGI application of its own. works: by method."""

    def __init__(self, service: AdminService, works: dict[str, Work]):
        self._service = service
        self._works = works

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever happens."""
        service = self._service
        reply = Reply(send, request_id(scope, service.make_id))
        try:
            admin = admin_of(service.config, header(scope, "authorization"))
            limits = service.config.limits
            body = await read_body(
                scope, receive, service.config.admin.body_bytes, limits.body_timeout_s
            )
            log = service.log.bind(request_id=reply.request_id, admin=admin)
            work = self._works["GET" if scope["method"] == "HEAD" else scope["method"]]
            told = await work(Call(service, Request(scope), body, log))
            if told.etag is not None:
                reply.headers += (("etag", f'"{told.etag}"'),)
            await reply.whole(msgspec.json.encode(told.body), told.status)
        except GatewayError as error:
            if face_of(error).status >= 500:
                service.log.warning(
                    "admin_refused", request_id=reply.request_id, detail=error.detail
                )
            await reply.error(error)
        except Exception:
            service.log.exception("admin_failed", request_id=reply.request_id)
            await reply.error(InternalError())


def admin_of(config: GatewayConfig, authorization: str | None) -> str:
    """The first digits of the sender's key's digest. Raises Unauthenticated."""
    digest = bearer_digest(authorization)
    known = {bytes.fromhex(one.removeprefix("sha256:")) for one in config.admin.keys}
    if digest is None or digest not in known:
        raise Unauthenticated(
            "The admin API needs one of its own keys: 'Authorization: Bearer KEY'."
        )
    return digest.hex()[:12]


async def list_tenants(call: Call) -> Told:
    """The tenants that this gateway serves, a page of them."""
    limit = int(_number(call.request, "limit", 1, _MAX_PAGE) or _PAGE)
    page = call.service.directory.page(call.request.query_params.get("after", ""), limit)
    return Told(TenantList([_view(call, one) for one in page.tenants], page.has_more))


async def get_tenant(call: Call) -> Told:
    """One tenant."""
    return _tenant(call, call.service.directory.get(call.tenant))


async def put_tenant(call: Call) -> Told:
    """A tenant is as the body says."""
    directory = call.service.directory
    config, names_keys = read_tenant(call.body, call.tenant)
    is_new = not directory.has(config.id)
    listed = await directory.put(config, keep_keys=not names_keys, when=call.condition)
    return _written(call, listed, is_new)


async def patch_tenant(call: Call) -> Told:
    """Of a tenant, what the body names is so; the rest stays."""
    patched = read_patch(call.body, call.tenant)
    listed = await call.service.directory.patch(call.tenant, patched, call.condition)
    return _written(call, listed, is_new=False)


async def delete_tenant(call: Call) -> Told:
    """A tenant is gone."""
    await call.service.directory.delete(call.tenant, call.condition)
    call.log.info("tenant_deleted", tenant=call.tenant)
    return Told({"id": call.tenant, "deleted": True})


async def add_key(call: Call) -> Told:
    """A tenant has one more key."""
    directory = call.service.directory
    wish = read_new_key(call.body)
    key = await directory.add_key(call.tenant, wish.id, wish.end(directory.now))
    config = key.config
    call.log.info("key_added", tenant=call.tenant, key=config.name)
    return Told(NewKeyView(key.text, config.name, config.created_at, config.expires_at), 201)


async def end_key(call: Call) -> Told:
    """A key is gone, or will be."""
    directory = call.service.directory
    key = str(call.request.path_params["key_id"])
    expires_in = _number(call.request, "expires_in", 0.0, _MAX_EXPIRES_IN_S)
    expires_at: datetime | None = None
    if expires_in is not None:
        expires_at = directory.now + timedelta(seconds=expires_in)
    listed = await directory.end_key(call.tenant, key, expires_at)
    call.log.info("key_ended", tenant=call.tenant, key=key, expires_in=expires_in)
    return _tenant(call, listed)


async def get_usage(call: Call) -> Told:
    """What a tenant used on the last days, today included."""
    directory = call.service.directory
    num_days = int(_number(call.request, "days", 1, MAX_DAYS) or 7)
    by = call.request.query_params.get("by", "day")
    if by not in ("day", "hour"):
        raise InvalidRequest(f"by is {by!r:.200}: 'day' or 'hour'.", param="by")
    days = [(directory.now - timedelta(days=n)).strftime("%Y-%m-%d") for n in range(num_days)]
    return Told(UsageList.of(await directory.usage(call.tenant, days), days, by))


async def get_fleet(call: Call) -> Told:
    """The live workers."""
    return Told(FleetView.of(call.service.catalogue.fleet.workers()))


def _written(call: Call, listed: Listed, is_new: bool) -> Told:
    call.log.info("tenant_written", tenant=call.tenant, new=is_new)
    for doubt in doubts(listed.config, call.service.catalogue):
        call.log.warning("tenant_doubtful", tenant=call.tenant, warning=doubt)
    return _tenant(call, listed, 201 if is_new else 200)


def _tenant(call: Call, listed: Listed, status: int = 200) -> Told:
    return Told(_view(call, listed), status, listed.etag)


def _view(call: Call, listed: Listed) -> TenantView:
    service = call.service
    return TenantView.of(listed, service.directory.now, doubts(listed.config, service.catalogue))


def _number(request: Request, name: str, least: float, most: float) -> float | None:
    """A number of the query; None without it. Raises InvalidRequest."""
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not least <= number <= most:
        raise InvalidRequest(
            f"{name} is {text!r:.200}: a number from {least:g} to {most:g}.", param=name
        )
    return number
