"""Builds the objects of one worker and joins them: the one place that picks a cache."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from prometheus_client import CollectorRegistry

from worker.cache.block_hash import BlockHashCache
from worker.cache.interface import PrefixCache
from worker.cache.off import NoCache
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.config import ConfigError, WorkerConfig
from worker.engine import Engine, StepReport, StepRunner
from worker.errors import ChatUnsupported
from worker.grammar.masks import THREADS as MASK_THREADS
from worker.grammar.masks import Masks
from worker.intake import Intake
from worker.live import ServiceLimits
from worker.model.graphs import GraphRoom, sizes_up_to, with_graphs
from worker.model.heads import VOCABULARY, Head, Vocabulary
from worker.model.loading import LoadOptions
from worker.model.loading import load as load_model
from worker.model.lowered import LoweredModel
from worker.parallel.lead import LeadRunner
from worker.parallel.ranks import Ranks
from worker.runner import Runner
from worker.scheduler import Scheduler, SchedulerLimits
from worker.service import Service
from worker.sizes import Sizes, formats_of
from worker.tasks import Trade, check, encoder_runner
from worker.telemetry import GrammarCounts, PageHistory, RequestCounts, Telemetry
from worker.text.chat import ChatTemplate
from worker.text.tokenizer import Tokenizer
from worker.text.turns import TurnMemory
from worker.wire import Identity

CACHES: dict[str, Callable[[PagePool], PrefixCache]] = {
    "radix": RadixCache,
    "block": BlockHashCache,
    "off": NoCache,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a worker is built by."""

    config: WorkerConfig
    folder: Path
    sizes: Sizes
    trade: Trade
    tokenizer: Tokenizer

    @property
    def cache(self) -> str:
        """The prefix cache that it has: an encoder has nothing to keep."""
        return "off" if self.trade.kind.encodes else self.config.prefix_cache

    @property
    def limits(self) -> SchedulerLimits:
        """What a step may hold."""
        return SchedulerLimits(
            self.sizes.max_step_tokens,
            self.config.max_running_sequences,
            self.config.short_share,
            whole_prompts=self.trade.kind.encodes,
            append_forced=self.config.append_forced,
            dflash=self.trade.purpose.dflash,
        )


@dataclass(frozen=True, slots=True)
class Parts:
    """What a worker is made of, behind its doors. ranks: None where the model is not split."""

    service: Service
    engine: Engine
    tokenizer: Tokenizer
    registry: CollectorRegistry
    ranks: Ranks | None


def build(plan: Plan, ranks: Ranks | None) -> Parts:
    """Returns the objects of one worker, joined. Raises RankLost when one doesn't load."""
    config, tokenizer = plan.config, plan.tokenizer
    intake = make_intake(plan)
    limits = ServiceLimits(config.max_running_sequences, config.max_waiting_sequences)
    clock = time.perf_counter  # one of both, else what they mark is not one request's time
    service = Service(intake, tokenizer, limits, clock)
    registry = CollectorRegistry()
    telemetry = Telemetry(registry)
    registry.register(RequestCounts(service.tallies))
    registry.register(GrammarCounts(intake.grammars.tallies))
    loop = asyncio.get_running_loop()

    def take(report: StepReport) -> None:
        telemetry.observe(report)
        service.on_report(report)

    def on_report(report: StepReport) -> None:
        loop.call_soon_threadsafe(take, report)

    scheduler = make_scheduler(plan)
    registry.register(PageHistory(scheduler.pool.record))
    runner = make_runner(plan, ranks)
    if plan.trade.kind.task == "rerank" and config.check_task:
        check(intake, runner, plan.limits, config.page_size)
    engine = Engine(scheduler, runner, on_report, clock)
    service.attach(engine)
    return Parts(service, engine, tokenizer, registry, ranks)


def make_intake(plan: Plan) -> Intake:
    """What reads requests. Only what a model generates is remembered for the next turn."""
    folder, tokenizer, longest = plan.folder, plan.tokenizer, plan.sizes.max_model_len
    try:
        template = ChatTemplate.load(folder, tokenizer, longest)
    except ChatUnsupported:
        template = None
    purpose = plan.trade.purpose
    turns = TurnMemory(plan.config.turn_memory_bytes if purpose.task == "generate" else 0)
    return Intake(tokenizer, template, longest, random.SystemRandom(), turns, purpose)


def make_scheduler(plan: Plan) -> Scheduler:
    """Decides the steps, with an empty cache."""
    config, sizes = plan.config, plan.sizes
    pool = PagePool(
        sizes.pages.num_pages,
        config.page_size,
        max_cached_pages=config.max_cached_tokens and config.max_cached_tokens // config.page_size,
        keep_freed=config.poison_freed_pages,
    )
    return Scheduler(CACHES[plan.cache](pool), plan.limits, config.order, Masks(MASK_THREADS))


def make_runner(plan: Plan, ranks: Ranks | None) -> StepRunner:
    """Loads the model. Raises ConfigError, UnsupportedModel, RankLost."""
    config, folder, sizes, trade = plan.config, plan.folder, plan.sizes, plan.trade
    if trade.kind.encodes:
        return encoder_runner(config, folder, sizes, trade)
    if ranks is None:
        return build_runner(config, sizes, folder, trade.head)
    with ranks.loading():
        return LeadRunner(build_runner(config, sizes, folder), ranks)


def build_runner(
    config: WorkerConfig, sizes: Sizes, folder: Path, head: Head = VOCABULARY
) -> Runner:
    """Returns the model's side of the torch line. Raises ConfigError, UnsupportedModel."""
    graphs = config.cuda_graphs and config.device.startswith("cuda")
    options = LoadOptions(
        num_pages=sizes.pages.num_pages + int(graphs),  # one for graphs to scribble on
        page_size=config.page_size,
        member=config.member,
        backend=config.attention,
        dtype=sizes.dtype,
        device=config.device,
        threads=config.threads,
        num_ranks=config.tensor_parallel,
        head=head,
        formats=formats_of(config),
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
    device = torch.device(config.device)
    if graphs and isinstance(model, LoweredModel) and isinstance(head, Vocabulary):
        return Runner(with_graphs(model, _graph_room(config, sizes, device)), device, head)
    return Runner(model, device, head)


def _graph_room(config: WorkerConfig, sizes: Sizes, device: torch.device) -> GraphRoom:
    """Graphs for all batches that may decode; the page behind the pool's is theirs."""
    return GraphRoom(
        sizes=sizes_up_to(config.max_running_sequences),
        scratch_page=sizes.pages.num_pages,
        max_pages=-(-sizes.max_model_len // config.page_size),
        device=device,
    )


def identity(plan: Plan) -> Identity:
    """Returns what the worker says of itself."""
    config, sizes = plan.config, plan.sizes
    return Identity(
        worker=config.name,
        incarnation=uuid.uuid4().hex,
        model=config.served_model_name or _model_name(config.model, plan.folder),
        task=plan.trade.kind.task,
        max_model_len=sizes.max_model_len,
        prefix_cache=plan.cache,
        page_size=config.page_size,
        cache_tokens=0 if plan.trade.kind.encodes else sizes.pages.num_tokens,
        max_running_sequences=config.max_running_sequences,
        max_waiting_sequences=config.max_waiting_sequences,
        version=_version(),
        vocab_size=sizes.shape.vocab_size,
    )


def _model_name(model: str, folder: Path) -> str:
    path = Path(model)
    return path.stem if path.suffix == ".gguf" else path.name or folder.name


def _version() -> str:
    try:
        return version("pando")
    except PackageNotFoundError:
        return "unknown"
