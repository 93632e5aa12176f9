"""`python -m gateway`: the only wiring. Configuration -> objects -> uvicorn."""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import secrets
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import uvicorn
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from gateway.config import ConfigError, GatewayConfig, load, worker_flag
from gateway.fleet.link import LinkContext, WorkerLink
from gateway.fleet.workers import Fleet
from gateway.http.app import Lifespan, Service, build_app
from gateway.http.connection import Connection
from gateway.pipeline import Pipeline
from gateway.routing.ring import LoadBound
from gateway.routing.router import Router
from gateway.telemetry.log import EventLog, set_up_logging
from gateway.telemetry.metrics import Telemetry
from gateway.tenancy.tenants import Tenants


def main() -> None:
    """Serve until a signal; exit 2 on a wrong setting."""
    try:
        config = _configure(sys.argv[1:])
    except ConfigError as error:
        sys.exit(f"gateway: {error}")
    log = set_up_logging(config.log_level)
    listener = _listen(config)
    host, port = listener.getsockname()[:2]
    log.info("listening", host=host, port=port, workers=len(config.workers))
    server = uvicorn.Server(serving_config(build(config, log).app, config))
    server.run(sockets=[listener])


@dataclass(frozen=True, slots=True)
class Gateway:
    """The application, and what its surroundings may look at."""

    app: Starlette
    fleet: Fleet
    router: Router
    telemetry: Telemetry


def build(config: GatewayConfig, log: EventLog) -> Gateway:
    """Every object of the process, joined."""
    telemetry = Telemetry(CollectorRegistry())
    fleet = Fleet()
    routing = config.routing
    router = Router(fleet, LoadBound(routing.load_floor, routing.load_factor), routing.vnodes)
    context = LinkContext(config.name, config.link, fleet, telemetry, log, random.Random())
    links = [WorkerLink(worker, context) for worker in config.workers]
    telemetry.watch_workers(lambda: [(w.name, w.gauges()) for w in fleet.workers()])
    service = Service(
        config=config,
        tenants=Tenants(config.tenants),
        fleet=fleet,
        pipeline=Pipeline(router, fleet, telemetry, log),
        telemetry=telemetry,
        log=log,
        make_id=lambda: secrets.token_hex(12),
        wall_clock=time.time,
    )
    app = build_app(service, _background([router.follow_fleet, *(link.run for link in links)], log))
    return Gateway(app, fleet, router, telemetry)


def serving_config(app: Starlette, config: GatewayConfig) -> uvicorn.Config:
    """How uvicorn runs the application."""
    return uvicorn.Config(
        app,
        http=partial(Connection, config.limits),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(config.shutdown_s),
    )


def _background(works: list[Callable[[], Awaitable[None]]], log: EventLog) -> Lifespan:
    """What works beside the requests, for as long as the application lives."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(_for_ever(work, log)) for work in works]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return lifespan


async def _for_ever(work: Callable[[], Awaitable[None]], log: EventLog) -> None:
    """A background work that fails is told of and begun again."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("background_failed", work=getattr(work, "__qualname__", ""))
        await asyncio.sleep(1.0)


def _listen(config: GatewayConfig) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        return socket.create_server((config.host, config.port), family=family, backlog=2048)
    except OSError as error:
        sys.exit(f"gateway: cannot listen on {config.host}:{config.port}: {error.strerror}")


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
    return load(path, {name: value for name, value in given.items() if value is not None})


if __name__ == "__main__":
    main()
