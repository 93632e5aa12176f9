"""Builds a worker and runs it until SIGTERM: the only wiring, the one place that picks a cache."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import signal
import sys
import uuid
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import grpc.aio
import torch
from prometheus_client import CollectorRegistry, start_http_server

from worker.cache.block_hash import BlockHashCache
from worker.cache.interface import PrefixCache
from worker.cache.off import NoCache
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.config import ConfigError, WorkerConfig, load
from worker.engine import Engine, StepReport, StepRunner
from worker.errors import ChatUnsupported, EngineBroken, ModelUnavailable, RankLost
from worker.health import Health
from worker.intake import Intake
from worker.link import LinkServicer, WorkerState
from worker.memory import start_lines
from worker.model.errors import UnsupportedModel
from worker.model.files import default_cache_folder, resolve
from worker.model.loading import LoadOptions
from worker.model.loading import load as load_model
from worker.parallel.frames import Assignment
from worker.parallel.lead import LeadRunner, leading
from worker.parallel.ranks import Ranks
from worker.registry import Entry, registered
from worker.runner import Runner
from worker.scheduler import Scheduler, SchedulerLimits
from worker.service import Service, ServiceLimits
from worker.sizes import Sizes, decide
from worker.telemetry import PageHistory, RequestCounts, Telemetry, set_up_logging
from worker.text.chat import ChatTemplate
from worker.text.tokenizer import Tokenizer
from worker.text.turns import TurnMemory
from worker.tls import credentials
from worker.wire import Identity

log = logging.getLogger("pando.worker")

CACHES: dict[str, Callable[[PagePool], PrefixCache]] = {
    "radix": RadixCache,
    "block": BlockHashCache,
    "off": NoCache,
}
GRPC_OPTIONS = [
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.http2.max_pings_without_data", 0),
]


@dataclass(frozen=True, slots=True)
class Parts:
    """What a worker is made of, behind its doors. ranks: None where the model is not split."""

    service: Service
    engine: Engine
    tokenizer: Tokenizer
    registry: CollectorRegistry
    ranks: Ranks | None


def main() -> int:
    """Runs a worker; returns the exit status."""
    arguments = vars(_parser().parse_args())
    try:
        config = load(arguments.pop("config"), arguments)
        set_up_logging(config.log_level)
        asyncio.run(serve(config))
    except (ConfigError, ModelUnavailable, UnsupportedModel) as error:
        print(f"worker: {error}", file=sys.stderr)
        return 2
    except EngineBroken as error:
        print(f"worker: {error}", file=sys.stderr)
        return 1
    return 0


async def serve(config: WorkerConfig) -> None:
    """Loads the model, serves until SIGTERM or SIGINT, drains. Raises EngineBroken."""
    # Our kernels bring their own threads; torch's barriers would only stall beside them.
    on_torch = config.member == "modules" or config.tensor_parallel > 1
    torch.set_num_threads(config.threads if on_torch else 1)
    shown = credentials(config)
    folder = resolve(config.model, default_cache_folder())
    sizes = decide(config, folder)
    with _ranks(config, sizes, folder) as ranks:
        parts = build(config, folder, sizes, ranks)
        await _answer(config, sizes, parts, identity(config, sizes, folder), shown)


async def _answer(
    config: WorkerConfig,
    sizes: Sizes,
    parts: Parts,
    itself: Identity,
    shown: grpc.ServerCredentials | None,
) -> None:
    """Opens the doors until a signal or the engine's end, drains. Raises EngineBroken."""
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
    servicer = LinkServicer(itself, service, state, config.heartbeat_s)
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
    _announce(config, sizes, port)
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


def build(config: WorkerConfig, folder: Path, sizes: Sizes, ranks: Ranks | None) -> Parts:
    """Returns the objects of one worker, joined. Raises RankLost when one doesn't load."""
    tokenizer = Tokenizer.load(folder)
    try:
        template = ChatTemplate.load(folder, tokenizer, sizes.max_model_len)
    except ChatUnsupported:
        template = None
    turns = TurnMemory(config.turn_memory_bytes)
    intake = Intake(tokenizer, template, sizes.max_model_len, random.SystemRandom(), turns)
    limits = ServiceLimits(config.max_running_sequences, config.max_waiting_sequences)
    service = Service(intake, tokenizer, limits)
    registry = CollectorRegistry()
    telemetry = Telemetry(registry)
    registry.register(RequestCounts(service.tallies))
    loop = asyncio.get_running_loop()

    def take(report: StepReport) -> None:
        telemetry.observe(report)
        service.on_report(report)

    def on_report(report: StepReport) -> None:
        loop.call_soon_threadsafe(take, report)

    scheduler = _scheduler(config, sizes)
    registry.register(PageHistory(scheduler.pool.record))
    engine = Engine(
        scheduler,
        _step_runner(config, sizes, folder, ranks),
        on_report,
    )
    service.attach(engine)
    return Parts(service, engine, tokenizer, registry, ranks)


def _scheduler(config: WorkerConfig, sizes: Sizes) -> Scheduler:
    pool = PagePool(
        sizes.pages.num_pages,
        config.page_size,
        max_cached_pages=config.max_cached_tokens and config.max_cached_tokens // config.page_size,
        keep_freed=config.poison_freed_pages,
    )
    limits = SchedulerLimits(
        sizes.max_step_tokens, config.max_running_sequences, config.short_share
    )
    return Scheduler(CACHES[config.prefix_cache](pool), limits, config.order)


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
    )
    return leading(own)


def _step_runner(
    config: WorkerConfig, sizes: Sizes, folder: Path, ranks: Ranks | None
) -> StepRunner:
    if ranks is None:
        return build_runner(config, sizes, folder)
    with ranks.loading():
        return LeadRunner(build_runner(config, sizes, folder), ranks)


def build_runner(config: WorkerConfig, sizes: Sizes, folder: Path) -> Runner:
    """Returns the model's side of the torch line. Raises ConfigError, UnsupportedModel."""
    options = LoadOptions(
        num_pages=sizes.pages.num_pages,
        page_size=config.page_size,
        member=config.member,
        backend=config.attention,
        dtype=sizes.dtype,
        device=config.device,
        threads=config.threads,
        num_ranks=config.tensor_parallel,
    )
    try:
        model = load_model(folder, options)
    except ValueError as error:
        raise ConfigError(f"{error}.") from error
    if config.deterministic and not model.bitwise:
        raise ConfigError(
            f"deterministic is true: member {model.name!r} with attention {model.backend.name!r} "
            f"and {config.dtype} keeps outputs equal only within rounding here. It takes a model "
            "of the Llama shape (member lowered), device cpu, dtype float32, attention cpu, and a "
            "C compiler."
        )
    return Runner(model, torch.device(config.device))


def _listen(server: grpc.aio.Server, address: str, shown: grpc.ServerCredentials | None) -> int:
    """Returns the port that the server listens on. Raises ConfigError when it is taken."""
    try:
        if shown is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, shown)
    except RuntimeError as error:
        raise ConfigError(f"listen is {address!r}: it can't be listened on here.") from error


def identity(config: WorkerConfig, sizes: Sizes, folder: Path) -> Identity:
    """Returns what the worker says of itself."""
    return Identity(
        worker=config.name,
        incarnation=uuid.uuid4().hex,
        model=config.served_model_name or _model_name(config.model, folder),
        task="generate",
        max_model_len=sizes.max_model_len,
        prefix_cache=config.prefix_cache,
        page_size=config.page_size,
        cache_tokens=sizes.pages.num_tokens,
        max_running_sequences=config.max_running_sequences,
        max_waiting_sequences=config.max_waiting_sequences,
        version=_version(),
        vocab_size=sizes.shape.vocab_size,
    )


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
        start_http_server(config.metrics_port, addr=host, registry=registry)
    except OSError as error:
        raise ConfigError(
            f"metrics_port is {config.metrics_port}: it can't be listened on here."
        ) from error


def _announce(config: WorkerConfig, sizes: Sizes, port: int) -> None:
    for line in start_lines(sizes.pages, config.prefix_cache, sizes.max_model_len):
        log.info(line)
    log.info("ready", extra={"worker": config.name, "port": port, "pid": os.getpid()})


def _model_name(model: str, folder: Path) -> str:
    path = Path(model)
    return path.stem if path.suffix == ".gguf" else path.name or folder.name


def _version() -> str:
    try:
        return version("pando")
    except PackageNotFoundError:
        return "unknown"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="worker", description="Serves one model over gRPC.")
    parser.add_argument("--config", type=Path, help="a YAML or JSON file with these settings")
    for field in WorkerConfig.__struct_fields__:
        kind: Any = WorkerConfig.__annotations__[field]
        flag = "--" + field.replace("_", "-")
        if kind == "bool":
            parser.add_argument(flag, action="store_const", const=True)
        else:
            parser.add_argument(flag, metavar=field.upper())
    return parser


if __name__ == "__main__":
    sys.exit(main())
