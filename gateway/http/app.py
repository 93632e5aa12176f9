"""The HTTP routes: who asks, what is asked, and the answer in the form that was asked for.

    POST /v1/chat/completions  POST /v1/completions       run through the pipeline
    GET  /v1/models  GET /v1/models/{id}                  what the linked workers serve
    GET  /health  GET /ready  GET /metrics                for operators, without a key

A hang-up cancels the handler; that unwinds the run, which cancels at the worker and gives its
lease back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.config import GatewayConfig
from gateway.errors import (
    ClientGone,
    GatewayError,
    InternalError,
    ModelNotFound,
    face_of,
)
from gateway.fleet.workers import Fleet
from gateway.http.answer import KEEP_ALIVE, Answer, ChatAnswer, CompletionAnswer, Heading
from gateway.http.catalogue import Catalogue
from gateway.http.connection import connection_of
from gateway.http.deadline import Deadline
from gateway.http.inbound import (
    header,
    label_header,
    read_body,
    request_id,
    unless_gone,
    worked,
)
from gateway.http.intake import Caller, chat_job, completion_job
from gateway.http.openai import SharedFields, read_chat, read_completion
from gateway.http.reply import Reply
from gateway.http.unrouted import unrouted
from gateway.job import Job
from gateway.pipeline import Pipeline, Run
from gateway.request import Output
from gateway.routing.prefix import Overrides
from gateway.routing.public import NONE_PUBLIC, PublicPrefixes
from gateway.telemetry.log import EventLog
from gateway.telemetry.metrics import Subject, Telemetry
from gateway.tenancy.quota import Quotas
from gateway.tenancy.tenants import Tenant, Tenants

# How long a client may take to accept the word that its request failed.
FAREWELL_S = 5.0


@dataclass(frozen=True, slots=True)
class Service:
    """What the routes work with.

    make_id: a new random word. draw_seed: from 0 to 2^62. wall_clock: seconds since 1970.
    """

    config: GatewayConfig
    tenants: Tenants
    fleet: Fleet
    catalogue: Catalogue
    quotas: Quotas
    pipeline: Pipeline
    telemetry: Telemetry
    log: EventLog
    make_id: Callable[[], str]
    draw_seed: Callable[[], int]
    wall_clock: Callable[[], float]
    public: PublicPrefixes = NONE_PUBLIC


@dataclass(frozen=True, slots=True)
class Order:
    """A request understood: the job, and the form of its answer."""

    job: Job
    answer: Answer
    stream: bool


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


def build_app(service: Service, lifespan: Lifespan) -> Express:
    """The ASGI application; lifespan runs what works in the background."""
    models = Models(service, created=int(service.wall_clock()))
    deadline = Deadline(service.config.request_timeout_s)
    generations: dict[str, ASGIApp] = {
        "/v1/chat/completions": Generation(service, "chat_completions", deadline),
        "/v1/completions": Generation(service, "completions", deadline),
    }
    app = Starlette(
        routes=[
            *(Route(path, app, methods=["POST"]) for path, app in generations.items()),
            Route("/v1/models", models, methods=["GET"]),
            Route("/v1/models/{id:path}", models, methods=["GET"]),
            Route("/health", _health, methods=["GET"]),
            Route("/ready", _ready(service.fleet), methods=["GET"]),
            Route("/metrics", _metrics(service.telemetry), methods=["GET"]),
        ],
        exception_handlers=unrouted(service.make_id),
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return Express(app, generations, service.telemetry.stalled_clients.inc, deadline)


class Generation:
    """An endpoint that generates; an ASGI application of its own."""

    def __init__(self, service: Service, route: str, deadline: Deadline):
        self._service = service
        self._route = route
        self._deadline = deadline

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; every way out is counted once."""
        service = self._service
        connection = connection_of(scope)
        reply = Reply(send, request_id(scope, service.make_id))
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
        caller = Caller(request_id, tenant, overrides, service.draw_seed(), service.public)
        if self._route == "chat_completions":
            return await self._chat(body, caller)
        return await self._completion(body, caller)

    async def _chat(self, body: bytes, caller: Caller) -> Order:
        limits, size = self._service.config.limits, len(body)
        request = await worked(size, partial(read_chat, body, limits))
        model = self._model(request, caller.tenant)
        answer = ChatAnswer(self._heading("chatcmpl", request), _wants_usage(request))
        job = await worked(size, partial(chat_job, request, model, caller))
        return Order(job, answer, bool(request.stream))

    async def _completion(self, body: bytes, caller: Caller) -> Order:
        config, size = self._service.config, len(body)
        request = await worked(size, partial(read_completion, body, config.limits))
        model = self._model(request, caller.tenant)
        heading = self._heading("cmpl", request)
        answer = CompletionAnswer(heading, _wants_usage(request), bool(request.logprobs))
        lead = config.routing.completion_key_chars
        job = await worked(size, partial(completion_job, request, model, caller, lead))
        return Order(job, answer, bool(request.stream))

    def _model(self, request: SharedFields, tenant: Tenant) -> str:
        """What workers call it. Raises GatewayError."""
        catalogue = self._service.catalogue
        model = catalogue.resolve(request.model, tenant)
        if request.prompt_logprobs is not None:
            catalogue.check_scores(model)
        return model

    def _heading(self, kind: str, request: SharedFields) -> Heading:
        service = self._service
        return Heading(f"{kind}-{service.make_id()}", int(service.wall_clock()), request.model)

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
            run = service.pipeline.start(job)
            write = self._stream if order.stream else self._whole
            try:
                with run:
                    async with self._deadline.within():
                        await write(order, run, reply)
            finally:
                reservation.settle(run.bill)

    async def _stream(self, order: Order, run: Run, reply: Reply) -> None:
        """What has piled up since the last write goes out in one piece."""
        while (outputs := await run.take()) is not None:
            self._sign(order, run, reply)
            events = order.answer.events(outputs) if outputs else KEEP_ALIVE
            if events:
                await reply.events(events)
        await reply.end(order.answer.tail(run.usage))

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
        if order.job.tenant.debug:
            reply.headers += (("x-pando-route", run.explanation),)

    def _count_refusal(self, tenant: Tenant | None, error: GatewayError) -> None:
        subject = Subject(tenant.id if tenant else "", "", self._route)
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


def _wants_usage(request: SharedFields) -> bool:
    return bool(request.stream_options and request.stream_options.include_usage)


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
