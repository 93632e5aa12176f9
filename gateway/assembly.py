"""Every object of the process, joined: configuration -> fleet, routing, queue, tenancy -> HTTP."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry

from gateway.background import Work, around, running
from gateway.budget import RetryBudget
from gateway.config import ConfigError, DoctorConfig, ForeignConfig, GatewayConfig
from gateway.doctor.doctor import Doctor, DoctorSettings
from gateway.doctor.practice import Practice, Workers
from gateway.fleet.channel import encryption_of
from gateway.fleet.departures import MAX_DEPARTURES, Departures
from gateway.fleet.discovery import Discovery, Dns, Registry, Source, Static
from gateway.fleet.foreign import ForeignContext, ForeignMember, client_for
from gateway.fleet.link import WorkerLink
from gateway.fleet.links import Links
from gateway.fleet.past import Past
from gateway.fleet.resolver import Resolver
from gateway.fleet.session import LinkContext
from gateway.fleet.view import View
from gateway.fleet.workers import Fleet, Worker
from gateway.http.admin import AdminService, build_admin
from gateway.http.admin_server import serving_admin
from gateway.http.app import Express, build_app
from gateway.http.catalogue import Catalogue
from gateway.http.service import Service
from gateway.means import Means
from gateway.pipeline import Pipeline
from gateway.queueing.credit import has_credit
from gateway.queueing.dispatcher import Dispatcher
from gateway.routing.public import PublicPrefixes
from gateway.routing.router import Router
from gateway.telemetry.exporting import tracing_to
from gateway.telemetry.lag import LoopLag
from gateway.telemetry.log import EventLog
from gateway.telemetry.metrics import Telemetry
from gateway.telemetry.tracing import Clocks, Traces
from gateway.tenancy.assembly import Surroundings, Tenancy, build_tenancy
from gateway.threads import aside
from gateway.ui.assembly import Ui, build_ui

# Of ids that clients see: random, so that none tells how many others asked, or what they got.
_ID_BYTES = 12


@dataclass(frozen=True, slots=True)
class Gateway:
    """The application, and what its surroundings may look at."""

    app: Express
    fleet: Fleet
    router: Router
    telemetry: Telemetry
    tenancy: Tenancy
    doctor: Doctor | None
    ui: Ui
    pipeline: Pipeline


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the rooms share."""

    config: GatewayConfig
    log: EventLog
    telemetry: Telemetry
    tenancy: Tenancy
    fleet: Fleet
    catalogue: Catalogue
    router: Router
    practice: Practice
    departures: Departures
    traces: Traces


def build(
    config: GatewayConfig, log: EventLog, admin_listener: socket.socket | None = None
) -> Gateway:
    """The whole gateway. admin_listener None: no admin API is served. Raises ConfigError."""
    telemetry = Telemetry(CollectorRegistry())
    routing = config.routing
    new_view = partial(View, routing.view_boundaries, routing.guess_s)
    past = Past(config.breaker, config.queue.no_worker_s)
    fleet = Fleet(past, new_view=new_view)
    departures = Departures(MAX_DEPARTURES if config.doctor.enabled else 0)
    parts = _Parts(
        config=config,
        log=log,
        telemetry=telemetry,
        tenancy=build_tenancy(config, Surroundings(telemetry.registry, log)),
        fleet=fleet,
        catalogue=Catalogue(fleet, config.aliases),
        router=Router(fleet, routing, telemetry),
        practice=_practice(config.doctor, Workers(fleet, departures), telemetry, log),
        departures=departures,
        traces=tracing_to(
            config.tracing, Clocks(telemetry.clock), random.Random(), config.name, log
        ),
    )
    telemetry.watch_log(lambda: log.num_dropped)
    telemetry.watch_workers(lambda: [(w.name, w.gauges()) for w in fleet.workers()])
    service = _service(parts)
    links = _links(parts)
    ui = build_ui(service, links, parts.practice.doctor)
    works = [ui.history.watch, *_works(parts, service, links)]
    contexts = [aside, parts.tenancy.serving, *_admin(parts, service, admin_listener, ui)]
    lifespan = around(
        [*contexts, partial(running, works, partial(_close, links, parts.traces), log)]
    )
    app = build_app(service, lifespan, ui.public)
    doctor = parts.practice.doctor
    return Gateway(app, fleet, parts.router, telemetry, parts.tenancy, doctor, ui, service.pipeline)


def _works(parts: _Parts, service: Service, links: Links) -> list[Work]:
    """What runs beside the requests."""
    return [
        parts.router.follow_fleet,
        LoopLag(parts.telemetry).watch,
        service.pipeline.means.dispatcher.watch,
        Discovery(_sources(parts), links.follow, parts.log).watch,
        *(member.run for member in _foreign(parts)),
    ]


async def _close(links: Links, traces: Traces) -> None:
    """The links are down, and what was traced is sent."""
    await links.close()
    await asyncio.to_thread(traces.close)


def _practice(
    config: DoctorConfig, workers: Workers, telemetry: Telemetry, log: EventLog
) -> Practice:
    """Who finds out why prompts missed; its digests' key is known to this process alone."""
    if not config.enabled:
        return Practice(None, telemetry, log)
    settings = DoctorSettings(config.remember, config.examinations_per_s, config.show_text)
    return Practice(Doctor(settings, secrets.token_bytes(32), workers), telemetry, log)


def _service(parts: _Parts) -> Service:
    """What the routes work with."""
    chance = random.Random(secrets.randbits(128))
    return Service(
        config=parts.config,
        tenants=parts.tenancy.tenants,
        quotas=parts.tenancy.quotas,
        fleet=parts.fleet,
        catalogue=parts.catalogue,
        pipeline=Pipeline(_means(parts), parts.config.keep_alive_s),
        telemetry=parts.telemetry,
        log=parts.log,
        make_id=partial(secrets.token_hex, _ID_BYTES),
        draw_seed=partial(chance.getrandbits, 62),
        wall_clock=time.time,
        public=PublicPrefixes(one.messages for one in parts.config.public_prefixes),
    )


def _means(parts: _Parts) -> Means:
    """What brings requests to workers."""
    config, fleet, clock = parts.config, parts.fleet, parts.telemetry.clock
    ahead = config.queue.credit_ahead

    def takes(worker: Worker, num_sequences: int = 1) -> bool:
        if dispatcher.keeps(worker):
            return False
        return fleet.allows(worker) and has_credit(worker, ahead, num_sequences)

    dispatcher = Dispatcher(config.queue, clock, lambda model: fleet.has_room(model, takes))
    fleet.on_capacity(dispatcher.nudge)
    parts.telemetry.watch_queue(dispatcher.waiting)
    return Means(
        router=parts.router,
        fleet=fleet,
        dispatcher=dispatcher,
        budget=RetryBudget(config.retries, clock),
        telemetry=parts.telemetry,
        log=parts.log,
        attempts=config.routing.attempts,
        takes=takes,
        practice=parts.practice,
        traces=parts.traces,
    )


def _links(parts: _Parts) -> Links:
    """What keeps a link to every worker that is found."""
    context = LinkContext(
        gateway=parts.config.name,
        settings=parts.config.link,
        fleet=parts.fleet,
        telemetry=parts.telemetry,
        log=parts.log,
        chance=random.Random(),
        encryption=encryption_of(parts.config.link.tls),
        departures=parts.departures,
    )
    return Links(partial(WorkerLink, context=context), parts.log)


def _sources(parts: _Parts) -> list[Source]:
    """Where workers are looked for."""
    config, redis = parts.config, parts.tenancy.redis
    sources: list[Source] = [Static(config.workers)]
    if config.dns is not None:
        sources.append(Dns(config.dns, parts.log, Resolver().resolve))
    if config.redis.workers:
        if redis is None:
            raise ConfigError("redis.workers is True: redis.url must be set as well")
        sources.append(Registry(redis, config.redis.refresh_s, parts.log))
    return sources


def _foreign(parts: _Parts) -> list[ForeignMember]:
    """Servers with OpenAI's API as members of the fleet."""
    context = ForeignContext(parts.fleet, parts.telemetry, parts.log)
    return [
        ForeignMember(member, context, partial(client_for, member, _key(member, os.environ)))
        for member in parts.config.foreign
    ]


def _admin(
    parts: _Parts, service: Service, listener: socket.socket | None, ui: Ui
) -> list[Callable[[], AbstractAsyncContextManager[None]]]:
    """The admin API's own server, if there is one."""
    if listener is None:
        return []
    directory, catalogue = parts.tenancy.directory, parts.catalogue
    serving = AdminService(parts.config, directory, catalogue, parts.log, service.make_id)
    admin = build_admin(serving, ui.admin)
    return [partial(serving_admin, admin, listener, parts.config.limits, parts.log)]


def _key(member: ForeignConfig, environment: Mapping[str, str]) -> str | None:
    """The key that a foreign server wants. Raises ConfigError."""
    if member.key_variable is None:
        return None
    key = environment.get(member.key_variable)
    if not key:
        raise ConfigError(
            f"foreign.key_variable is {member.key_variable!r}: no such environment variable is set"
        )
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(
            f"foreign.key_variable is {member.key_variable!r}: its key is not plain ASCII"
        )
    return key
