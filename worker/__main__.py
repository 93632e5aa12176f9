"""Runs a worker until SIGTERM: its model is loaded, its doors open, and what runs is drained."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

import grpc.aio
import torch
from prometheus_client import CollectorRegistry

from process.outlet import Outlet, last_words
from process.threads import started
from worker.assembly import Parts, Plan, build, identity
from worker.config import ConfigError, WorkerConfig, load
from worker.engine import Engine
from worker.errors import EngineBroken, ModelUnavailable, RankLost
from worker.health import Health
from worker.link import LinkServicer, WorkerState
from worker.logs import set_up_logging
from worker.memory import start_lines
from worker.model.errors import UnsupportedModel
from worker.model.files import default_cache_folder, resolve
from worker.parallel.frames import Assignment
from worker.parallel.lead import leading
from worker.parallel.ranks import Ranks
from worker.registry import Entry, registered
from worker.scrapes import serve_metrics
from worker.service import Service
from worker.sizes import Sizes, formats_of
from worker.tasks import sizes_for, trade_of
from worker.telemetry import LogCounts
from worker.text.tokenizer import Tokenizer
from worker.tls import credentials

log = logging.getLogger("pando.worker")

GRPC_OPTIONS = [
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.http2.max_pings_without_data", 0),
]

# Prompts, programs and grammars that are read at once.
_NUM_ASIDE = 8


def main() -> int:
    """Runs a worker; returns the exit status."""
    arguments = vars(_parser().parse_args())
    try:
        config = load(arguments.pop("config"), arguments)
        outlet = set_up_logging(config.log_level, config.log_format)
        asyncio.run(serve(config, outlet))
    except (ConfigError, ModelUnavailable, UnsupportedModel) as error:
        print(f"worker: {error}", file=sys.stderr)
        return 2
    except EngineBroken as error:
        last_words(f"worker: {error}")
        return 1
    return 0


async def serve(config: WorkerConfig, outlet: Outlet) -> None:
    """Loads the model, serves until SIGTERM or SIGINT, drains. Raises EngineBroken."""
    asyncio.get_running_loop().set_default_executor(started(_NUM_ASIDE))
    shown = credentials(config)
    folder = resolve(config.model, default_cache_folder())
    tokenizer = Tokenizer.load(folder)
    trade = trade_of(config, folder, tokenizer)
    # Our kernels bring their own threads; torch's barriers would only stall beside them.
    on_torch = config.member == "modules" or config.tensor_parallel > 1 or trade.kind.encodes
    torch.set_num_threads(config.threads if on_torch else 1)
    sizes = sizes_for(config, folder, trade.kind)
    plan = Plan(config, folder, sizes, trade, tokenizer)
    with _ranks(config, sizes, folder) as ranks:
        parts = build(plan, ranks)
        parts.registry.register(LogCounts(outlet))
        await _answer(plan, parts, shown)


async def _answer(plan: Plan, parts: Parts, shown: grpc.ServerCredentials | None) -> None:
    """Opens the doors until a signal or the engine's end, drains. Raises EngineBroken."""
    config = plan.config
    service, engine, ranks = parts.service, parts.engine, parts.ranks
    _serve_metrics(config, parts.registry)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)

    def lost() -> None:
        service.abandon()
        stop.set()

    state = WorkerState(lambda: engine.load, engine.snapshot, parts.tokenizer.token_bytes)
    servicer = LinkServicer(identity(plan), service, state, config.heartbeat_s)
    server = grpc.aio.server(options=GRPC_OPTIONS)
    servicer.serve(server)
    health = Health()
    health.serve(server)
    port = _listen(server, config.listen, shown)
    await server.start()
    engine.start(lambda: loop.call_soon_threadsafe(lost))
    if ranks is not None:
        ranks.on_loss = lambda: loop.call_soon_threadsafe(lost)
    await health.set_serving(serving=True)
    _announce(plan, port)
    async with _in_registry(config, port):
        await stop.wait()
    await health.set_serving(serving=False)
    await drain(service, config.drain_s)
    servicer.close()
    await server.stop(grace=1.0)
    _end(engine, ranks)


def _end(engine: Engine, ranks: Ranks | None) -> None:
    """Stops the engine. Raises RankLost or EngineBroken where that is why the worker ends."""
    engine.stop()
    if ranks is not None and ranks.loss is not None:
        raise RankLost(ranks.loss)
    if engine.broken:
        raise EngineBroken


def _ranks(
    config: WorkerConfig, sizes: Sizes, folder: Path
) -> AbstractContextManager[Ranks | None]:
    """A context in which the other ranks of a split model run."""
    if config.tensor_parallel == 1:
        return nullcontext()
    own = Assignment(
        rank=0,
        num_ranks=config.tensor_parallel,
        store="",
        folder=str(folder.absolute()),
        num_pages=sizes.pages.num_pages,
        page_size=config.page_size,
        attention=config.attention,
        dtype=str(sizes.dtype).removeprefix("torch."),
        device=config.device,
        threads=config.threads,
        log_level=config.log_level,
        log_format=config.log_format,
        formats=formats_of(config),
    )
    return leading(own)


def _listen(server: grpc.aio.Server, address: str, shown: grpc.ServerCredentials | None) -> int:
    """Returns the port that the server listens on. Raises ConfigError when it is taken."""
    try:
        if shown is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, shown)
    except RuntimeError as error:
        raise ConfigError(f"listen is {address!r}: it can't be listened on here.") from error


async def drain(service: Service, seconds: float) -> None:
    """Takes nothing new, hands back what waits, and after so long what still runs."""
    service.leave()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await service.idle()
    service.hand_back()


def _in_registry(config: WorkerConfig, port: int) -> AbstractAsyncContextManager[None]:
    """Gateways that look in Redis find the worker; without a registry nobody looks."""
    if config.registry_url is None:
        return nullcontext()
    address = config.advertise or f"{config.listen.rpartition(':')[0]}:{port}"
    entry = Entry(config.registry_prefix, config.name, address)
    return registered(config.registry_url, entry)


def _serve_metrics(config: WorkerConfig, registry: CollectorRegistry) -> None:
    """Serves Prometheus where it is wanted. Raises ConfigError when the port is taken."""
    if not config.metrics_port:
        return
    host = config.listen.rpartition(":")[0]
    try:
        serve_metrics(host, config.metrics_port, registry)
    except OSError as error:
        raise ConfigError(
            f"metrics_port is {config.metrics_port}: it can't be listened on here."
        ) from error


def _announce(plan: Plan, port: int) -> None:
    longest = plan.sizes.max_model_len
    lines = start_lines(plan.sizes.pages, plan.cache, longest)
    if plan.trade.kind.encodes:
        lines = [f"texts of up to {longest:,} tokens, one by one; no K/V", "prefix cache: off"]
    for line in [f"task: {plan.trade.kind.task}", *lines]:
        log.info(line)
    log.info("ready", extra={"worker": plan.config.name, "port": port, "pid": os.getpid()})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="worker", description="Serves one model over gRPC.")
    parser.add_argument("--config", type=Path, help="a YAML or JSON file with these settings")
    for field in WorkerConfig.__struct_fields__:
        kind: Any = WorkerConfig.__annotations__[field]
        flag = "--" + field.replace("_", "-")
        if kind == "bool":
            parser.add_argument(flag, action=argparse.BooleanOptionalAction)
        else:
            parser.add_argument(flag, metavar=field.upper())
    return parser


if __name__ == "__main__":
    sys.exit(main())
