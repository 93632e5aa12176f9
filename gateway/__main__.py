"""`python -m gateway`: the only wiring. Configuration -> objects -> uvicorn."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import secrets
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import uvicorn
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from gateway.budget import RetryBudget
from gateway.config import ConfigError, ForeignConfig, GatewayConfig, load, worker_flag
from gateway.fleet.channel import encryption_of
from gateway.fleet.discovery import Discovery, Dns, Source, Static
from gateway.fleet.foreign import ForeignContext, ForeignMember, client_for
from gateway.fleet.link import WorkerLink
from gateway.fleet.links import Links
from gateway.fleet.session import LinkContext
from gateway.fleet.view import View
from gateway.fleet.workers import Fleet
from gateway.http.admin import AdminService, build_admin
from gateway.http.admin_server import serving_admin
from gateway.http.app import Express, Lifespan, Service, build_app
from gateway.http.connection import Connection
from gateway.http.stalls import Stalls
from gateway.part import Means
from gateway.pipeline import Pipeline
from gateway.queueing.credit import has_credit
from gateway.queueing.dispatcher import Dispatcher
from gateway.routing.router import Router
from gateway.telemetry.log import EventLog, set_up_logging
from gateway.telemetry.metrics import Telemetry
from gateway.tenancy.assembly import Surroundings, Tenancy, build_tenancy


def main() -> None:
    """Serve until a signal; exit 2 on a wrong setting."""
    try:
        config = _configure(sys.argv[1:])
    except ConfigError as error:
        sys.exit(f"gateway: {error}")
    log = set_up_logging(config.log_level)
    listener = _listen(config.host, config.port)
    admin = config.admin
    admin_listener = None if admin.port is None else _listen(admin.host, admin.port)
    host, port = listener.getsockname()[:2]
    log.info("listening", host=host, port=port, workers=len(config.workers))
    gateway = build(config, log, admin_listener)
    uvicorn.Server(serving_config(gateway.app, config)).run(sockets=[listener])


@dataclass(frozen=True, slots=True)
class Gateway:
    """The application, and what its surroundings may look at."""

    app: Express
    fleet: Fleet
    router: Router
    telemetry: Telemetry
    tenancy: Tenancy


def build(
    config: GatewayConfig, log: EventLog, admin_listener: socket.socket | None = None
) -> Gateway:
    """Every object of the process, joined. admin_listener None: no admin API is served."""
    telemetry = Telemetry(CollectorRegistry())
    routing = config.routing
    new_view = partial(View, routing.view_boundaries, routing.guess_s)
    fleet = Fleet(config.breaker, new_view=new_view)
    router = Router(fleet, routing, telemetry)
    context = LinkContext(
        gateway=config.name,
        settings=config.link,
        fleet=fleet,
        telemetry=telemetry,
        log=log,
        chance=random.Random(),
        encryption=encryption_of(config.link.tls),
    )
    links = Links(partial(WorkerLink, context=context), log)
    sources: list[Source] = [Static(config.workers)]
    if config.dns is not None:
        sources.append(Dns(config.dns, log))
    discovery = Discovery(sources, links.follow)
    foreign = [
        ForeignMember(
            member, ForeignContext(fleet, telemetry, log), client_for(member, _key(member))
        )
        for member in config.foreign
    ]
    telemetry.watch_workers(lambda: [(w.name, w.gauges()) for w in fleet.workers()])
    dispatcher = Dispatcher(config.queue, telemetry.clock)
    fleet.on_capacity(dispatcher.nudge)
    telemetry.watch_queue(dispatcher.waiting_by_tenant)
    ahead = config.queue.credit_ahead
    means = Means(
        router=router,
        fleet=fleet,
        dispatcher=dispatcher,
        budget=RetryBudget(config.retries, telemetry.clock),
        telemetry=telemetry,
        log=log,
        attempts=routing.attempts,
        eligible=lambda worker: fleet.allows(worker) and has_credit(worker, ahead),
    )
    stalls = Stalls(config.limits.stall_s, telemetry.clock)
    telemetry.watch_stalls(lambda: stalls.cut_total)
    tenancy = build_tenancy(config, Surroundings(telemetry.registry, log))
    chance = random.Random(secrets.randbits(128))
    service = Service(
        config=config,
        tenants=tenancy.tenants,
        quotas=tenancy.quotas,
        fleet=fleet,
        pipeline=Pipeline(means, config.keep_alive_s),
        stalls=stalls,
        telemetry=telemetry,
        log=log,
        make_id=_ids(secrets.token_hex(8)),
        draw_seed=partial(chance.getrandbits, 62),
        wall_clock=time.time,
    )
    background = _background(
        [
            router.follow_fleet,
            stalls.watch,
            discovery.watch,
            *(member.run for member in foreign),
        ],
        links.close,
        log,
    )
    if admin_listener is not None:
        admin = build_admin(
            AdminService(config, tenancy.directory, fleet.workers, log, service.make_id)
        )
        serving = partial(serving_admin, admin, admin_listener, config.limits, log)
        background = _within(serving, background)
    app = build_app(service, _within(tenancy.serving, background))
    return Gateway(app, fleet, router, telemetry, tenancy)


def _ids(word: str) -> Callable[[], str]:
    """Ids that nobody else makes; word: random, new with every process."""
    numbers = count()
    return lambda: f"{word}{next(numbers):08x}"


def _key(member: ForeignConfig) -> str | None:
    """The key that a foreign server wants. Raises ConfigError."""
    if member.key_variable is None:
        return None
    key = os.environ.get(member.key_variable)
    if not key:
        raise ConfigError(
            f"foreign.key_variable is {member.key_variable!r}: no such environment variable is set"
        )
    return key


def serving_config(app: Express, config: GatewayConfig) -> uvicorn.Config:
    """How uvicorn runs the application."""
    return uvicorn.Config(
        app,
        http=partial(Connection, config.limits),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=math.ceil(config.shutdown_s),
    )


def _background(
    works: list[Callable[[], Awaitable[None]]], close: Callable[[], Awaitable[None]], log: EventLog
) -> Lifespan:
    """What works beside the requests, for as long as the application lives; close: its end."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(_for_ever(work, log)) for work in works]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await close()

    return lifespan


def _within(around: Callable[[], AbstractAsyncContextManager[None]], inner: Lifespan) -> Lifespan:
    """The one inside the other."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with around(), inner(app):
            yield

    return lifespan


async def _for_ever(work: Callable[[], Awaitable[None]], log: EventLog) -> None:
    """A background work that fails is told of and begun again."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("background_failed", work=getattr(work, "__qualname__", ""))
        await asyncio.sleep(1.0)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        sys.exit(f"gateway: cannot listen on {host}:{port}: {error.strerror}")


def _configure(arguments: list[str]) -> GatewayConfig:
    parser = argparse.ArgumentParser(prog="gateway", description="The Pando gateway.")
    parser.add_argument("--config", type=Path, help="settings file (YAML or JSON)")
    parser.add_argument("--host", help="address to listen on")
    parser.add_argument("--port", type=int, help="port to listen on; 0 takes any free one")
    parser.add_argument(
        "--worker",
        action="append",
        type=worker_flag,
        metavar="[NAME=]HOST:PORT",
        help="a worker to link to, in place of the file's; may be repeated",
    )
    given = vars(parser.parse_args(arguments))
    path = given.pop("config")
    given["workers"] = given.pop("worker")
    flags = {name: value for name, value in given.items() if value is not None}
    return load(path, flags, os.environ)


if __name__ == "__main__":
    main()
