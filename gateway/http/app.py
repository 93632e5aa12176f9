"""The HTTP routes: who asks, what is asked, and the answer in the form that was asked for.

    POST /v1/chat/completions  /v1/completions  /v1/responses    run through the pipeline
    POST /v1/rerank  /v1/score  /v1/embeddings  /tokenize ...    so do they (`values.routes`)
    GET  /v1/models  GET /v1/models/{id}                  what the linked workers serve
    GET  /openapi.json                                    all of this, for machines
    GET  /health  GET /ready  GET /metrics                for operators, without a key

A hang-up cancels the handler; that unwinds the run, which cancels at the worker and gives its
lease back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.routing import Route as HTTPRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.errors import (
    ClientGone,
    GatewayError,
    InternalError,
    ModelNotFound,
    face_of,
)
from gateway.fleet.workers import Fleet
from gateway.http.answer import KEEP_ALIVE, Answer
from gateway.http.connection import connection_of
from gateway.http.deadline import Deadline
from gateway.http.generations import Chat, Completion
from gateway.http.inbound import header, label_header, read_body, request_id, unless_gone
from gateway.http.intake import Caller
from gateway.http.openapi import document
from gateway.http.programs.answer import ProgramAnswer
from gateway.http.programs.route import Programs
from gateway.http.reply import Reply
from gateway.http.responses.route import Responses
from gateway.http.service import Order, Route, Service
from gateway.http.unrouted import unrouted
from gateway.http.values.routes import values_routes
from gateway.pipeline import Run
from gateway.request import Output
from gateway.routing.prefix import Overrides
from gateway.telemetry.metrics import Subject, Telemetry
from gateway.tenancy.tenants import Tenant

# How long a client may take to accept the word that its request failed.
FAREWELL_S = 5.0


class ModelObject(msgspec.Struct, frozen=True):
    """A model as OpenAI describes it."""

    id: str
    created: int
    object: str = "model"
    owned_by: str = "pando"


class ModelList(msgspec.Struct, frozen=True):
    """The models that the caller may use."""

    data: list[ModelObject]
    object: str = "list"


class Readiness(msgspec.Struct, frozen=True):
    """Whether requests can be served, and by how many workers."""

    ready: bool
    workers: int


class Express:
    """The application with the routes that do the work in front: no middleware is on their path.

    on_stall: to be called when a client was cut since it took nothing. deadline: of the answers;
    whoever serves the application ends them all by it.
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: dict[str, ASGIApp],
        on_stall: Callable[[], None],
        deadline: Deadline,
    ):
        self.on_stall = on_stall
        self.deadline = deadline
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """To the route, if it is one of them, else to the application."""
        chosen = self._app
        if scope["type"] == "http" and scope["method"] == "POST":
            chosen = self._routes.get(scope["path"], self._app)
        await chosen(scope, receive, send)


Handler = Callable[[Request], Awaitable[Response]]
Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]


def build_app(service: Service, lifespan: Lifespan, beside: Sequence[BaseRoute] = ()) -> Express:
    """The ASGI application; lifespan runs what works in the background. beside: further routes."""
    models = Models(service, created=int(service.wall_clock()))
    deadline = Deadline(service.config.request_timeout_s)
    routes: dict[str, Route] = {
        "/v1/chat/completions": Chat(service),
        "/v1/completions": Completion(service),
        "/v1/responses": Responses(service),
        "/v1/programs": Programs(service),
        **values_routes(service),
    }
    posts: dict[str, ASGIApp] = {
        path: Endpoint(service, route, deadline) for path, route in routes.items()
    }
    app = Starlette(
        routes=[
            *(HTTPRoute(path, app, methods=["POST"]) for path, app in posts.items()),
            HTTPRoute("/v1/models", models, methods=["GET"]),
            HTTPRoute("/v1/models/{id:path}", models, methods=["GET"]),
            HTTPRoute("/openapi.json", _openapi, methods=["GET"]),
            HTTPRoute("/health", _health, methods=["GET"]),
            HTTPRoute("/ready", _ready(service.fleet), methods=["GET"]),
            HTTPRoute("/metrics", _metrics(service.telemetry), methods=["GET"]),
            *beside,
        ],
        exception_handlers=unrouted(service.make_id),
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return Express(app, posts, service.telemetry.stalled_clients.inc, deadline)


class Endpoint:
    """A route whose requests run through the pipeline; an ASGI application of its own."""

    def __init__(self, service: Service, route: Route, deadline: Deadline):
        self._service = service
        self._route = route
        self._deadline = deadline

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; every way out is counted once."""
        service = self._service
        connection = connection_of(scope)
        reply = Reply(send, request_id(scope, service.make_id))
        if service.pipeline.means.traces.is_on:
            reply.traceparent = header(scope, "traceparent")
        tenant: Tenant | None = None
        try:
            tenant = service.tenants.of(header(scope, "authorization"))
            order = await self._understand(scope, receive, reply.request_id, tenant)
        except GatewayError as error:
            self._count_refusal(tenant, error)
            await reply.error(error)
        except Exception:
            service.log.exception("request_failed", request_id=reply.request_id)
            self._count_refusal(tenant, InternalError())
            await reply.error(InternalError())
        else:
            try:
                await unless_gone(connection, self._answer(order, reply))
            except ClientGone:
                service.log.debug("client_gone", request_id=reply.request_id)

    async def _understand(
        self, scope: Scope, receive: Receive, request_id: str, tenant: Tenant
    ) -> Order:
        """Read, validate and translate the request. Raises GatewayError."""
        limits = self._service.config.limits
        overrides = Overrides(
            prefix=label_header(scope, "x-pando-prefix"),
            document=label_header(scope, "x-pando-document"),
            session=label_header(scope, "x-pando-session"),
        )
        body = await read_body(scope, receive, limits.body_bytes, limits.body_timeout_s)
        service = self._service
        seed = service.draw_seed()
        caller = Caller(request_id, tenant, overrides, seed, service.public, limits)
        return await self._route.understand(body, caller)

    async def _answer(self, order: Order, reply: Reply) -> None:
        """Run the job and write its answer, or the error that ended it."""
        service = self._service
        try:
            await self._served(order, reply)
        except GatewayError as error:
            await _farewell(reply, error)
        except Exception:
            service.log.exception("request_failed", request_id=reply.request_id)
            await _farewell(reply, InternalError())

    async def _served(self, order: Order, reply: Reply) -> None:
        """Within the tenant's quota: it is counted first and charged in the end what it used."""
        service, job = self._service, order.job
        try:
            reservation = await service.quotas.reserve(job.tenant, [part.ask for part in job.parts])
        except GatewayError as error:
            self._count_refusal(job.tenant, error)
            raise
        except asyncio.CancelledError:
            self._count_refusal(job.tenant, ClientGone())
            raise
        with reservation:
            reply.headers += reservation.headers
            run = service.pipeline.start(job, reply.traceparent)
            try:
                with run:
                    async with self._deadline.within():
                        if order.stream is not None:
                            await self._stream(order, order.stream, run, reply)
                        else:
                            await self._whole(order, run, reply)
            finally:
                reservation.settle(run.bill)

    async def _stream(self, order: Order, answer: Answer, run: Run, reply: Reply) -> None:
        """What has piled up since the last write goes out in one piece."""
        reply.failure = answer.failure
        while (outputs := await run.take()) is not None:
            self._sign(order, run, reply)
            events = answer.events(outputs) if outputs else KEEP_ALIVE
            if events:
                await reply.events(events)
        await reply.end(answer.tail(run.usage))

    async def _whole(self, order: Order, run: Run, reply: Reply) -> None:
        everything: list[Output] = []
        while (outputs := await run.take()) is not None:
            everything.extend(outputs)
        self._sign(order, run, reply)
        await reply.whole(order.answer.whole(everything, run.usage))

    def _sign(self, order: Order, run: Run, reply: Reply) -> None:
        """Say who serves, and to those who may see it why."""
        if reply.worker or not run.worker:
            return
        reply.worker = run.worker
        if isinstance(order.answer, ProgramAnswer):
            order.answer.worker = run.worker
        if order.job.tenant.debug:
            reply.headers += (("x-pando-route", run.explanation),)
            if run.finding is not None:
                reply.headers += (("x-pando-cache", run.finding.header()),)

    def _count_refusal(self, tenant: Tenant | None, error: GatewayError) -> None:
        subject = Subject(tenant.id if tenant else "", "", self._route.name)
        self._service.telemetry.count_request(subject, face_of(error).status)


async def _farewell(reply: Reply, error: GatewayError) -> None:
    """Tell the client what ended its request. Raises ClientGone if it takes nothing any more."""
    try:
        async with asyncio.timeout(FAREWELL_S):
            await reply.error(error)
    except TimeoutError:
        raise ClientGone("it takes nothing any more") from None


class Models:
    """The models endpoint: one, or all that the caller may use."""

    def __init__(self, service: Service, created: int):
        self._service = service
        self._created = created

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        """Answer one request."""
        reply = Reply(send, request_id(scope, self._service.make_id))
        try:
            tenant = self._service.tenants.of(header(scope, "authorization"))
            wanted = scope["path_params"].get("id")
            await reply.whole(msgspec.json.encode(self._describe(tenant, wanted)))
        except GatewayError as error:
            await reply.error(error)

    def _describe(self, tenant: Tenant, wanted: str | None) -> ModelObject | ModelList:
        catalogue = self._service.catalogue
        models = [
            ModelObject(name, self._created)
            for name in catalogue.names()
            if catalogue.allows(tenant, name)
        ]
        if wanted is None:
            return ModelList(models)
        for model in models:
            if model.id == wanted:
                return model
        raise ModelNotFound(wanted)


async def _openapi(_: Request) -> Response:
    return Response(document(ModelList, ModelObject), media_type="application/json")


async def _health(_: Request) -> Response:
    return Response(b'{"status":"ok"}', media_type="application/json")


def _ready(fleet: Fleet) -> Handler:
    async def ready(_: Request) -> Response:
        body = msgspec.json.encode(Readiness(fleet.ready, len(fleet.workers())))
        return Response(body, 200 if fleet.ready else 503, media_type="application/json")

    return ready


def _metrics(telemetry: Telemetry) -> Handler:
    async def metrics(_: Request) -> Response:
        return Response(await telemetry.exposition(), media_type="text/plain; version=0.0.4")

    return metrics
