"""What the order of admission is worth: hits against the best order, and whom it makes wait.

    agents      types of agents with a long prompt of tools each; sessions that grow; strangers
    documents   long documents with many questions each; strangers

The cache holds a part of what all share. Everything waits at once for the hits: the best order is
then depth first, group by group. For waiting times the same traffic comes spread over time, faster
than it is served at first. `strangers` share nothing, and are the ones who might starve.

    own cost    plan, match, store and evict per step, among few and among many that wait, against
                a step of the real model of the same shape
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

from loadtest.report import Report
from loadtest.virtual_engine import Arrival, Run, run
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.cache.scope import CacheScope
from worker.order import ORDERS
from worker.order.cache_aware import CacheAware
from worker.order.first_come import FirstCome
from worker.request import Sampling, Stopping
from worker.scheduler import Scheduler, SchedulerLimits
from worker.sequence import SequenceSpec
from worker.step import PlanRow, SampleRow, StepPlan

NAME = "scheduler"
COLUMNS = (
    "mix",
    "order",
    "hit tokens",
    "of the best",
    "strangers' p99 TTFT, busy",
    "calm",
    "all p50, busy",
    "step us",
)
# How many come at once, for the picture.
QUEUES = (32, 64, 128, 256, 512, 1024, 2048)
# Over how much of the best order's time the same traffic is spread.
BUSY, CALM = 0.7, 6.0
PAGE_SIZE = 16
LIMITS = SchedulerLimits(max_step_tokens=256, max_running=32)
_VOCABULARY = 49152
_SCOPE = CacheScope(b"tenant")


@dataclass(frozen=True, slots=True)
class Shape:
    """groups x members requests, one in `strange_every` beside them a stranger's.

    cache_share: of the tokens that the groups share, what the pool holds.
    """

    groups: int = 24
    members: int = 24
    cache_share: float = 0.4
    strange_every: int = 10
    new_tokens: int = 32
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt, packed. group: what it shares its beginning with; None: a stranger's."""

    tokens: bytes
    group: int | None


def agents(shape: Shape) -> list[Request]:
    """Types of agents; each session's turns repeat what was said and add to it."""
    rng = random.Random(shape.seed)
    made = []
    for group in range(shape.groups):
        tools = _tokens(rng, rng.randint(3000, 4000))
        sessions = [b""] * max(shape.members // 4, 1)
        for turn in range(shape.members):
            at = turn % len(sessions)
            sessions[at] += _tokens(rng, rng.randint(80, 400))
            made.append(Request(tools + sessions[at], group))
    return made + _strangers(shape, rng)


def documents(shape: Shape) -> list[Request]:
    """Long documents, and many short questions about each."""
    rng = random.Random(shape.seed)
    made = []
    for group in range(shape.groups):
        document = _tokens(rng, rng.randint(2000, 6000))
        for _ in range(shape.members):
            made.append(Request(document + _tokens(rng, rng.randint(20, 60)), group))
    return made + _strangers(shape, rng)


MIXES: Mapping[str, Callable[[Shape], list[Request]]] = {"agents": agents, "documents": documents}


def _strangers(shape: Shape, rng: random.Random) -> list[Request]:
    count = shape.groups * shape.members // shape.strange_every
    return [Request(_tokens(rng, rng.randint(500, 3000)), None) for _ in range(count)]


def _tokens(rng: random.Random, count: int) -> bytes:
    return array("i", (rng.randrange(_VOCABULARY) for _ in range(count))).tobytes()


def scheduler_of(order: str, num_pages: int, limits: SchedulerLimits = LIMITS) -> Scheduler:
    """A worker's scheduler over an empty radix cache."""
    return Scheduler(RadixCache(PagePool(num_pages, PAGE_SIZE)), limits, order)


def arrivals(requests: Sequence[Request], shape: Shape, over_s: float = 0.0) -> list[Arrival]:
    """The requests, evenly at random over some seconds, in the order given."""
    rng = random.Random(shape.seed + 1)
    times = sorted(rng.uniform(0.0, over_s) for _ in requests)
    return [
        Arrival(at_s, _spec(number, request, shape.new_tokens))
        for number, (at_s, request) in enumerate(zip(times, requests, strict=True), start=1)
    ]


def _spec(number: int, request: Request, new_tokens: int) -> SequenceSpec:
    return SequenceSpec(number, _SCOPE, request.tokens, Sampling(), Stopping(new_tokens))


@dataclass(frozen=True, slots=True)
class Outcome:
    """One mix under one order. busy_p99_s, calm_p99_s: TTFT of strangers where arrivals are spread.

    busy: over 0.7 of the time that the best order takes for all. calm: over six times it.
    """

    mix: str
    order: str
    hit_tokens: int
    best_tokens: int
    busy_p99_s: float
    calm_p99_s: float
    busy_p50_s: float
    step_us: float


def measure(mix: str, order: str, shape: Shape) -> Outcome:
    """Runs a mix under an order, at once and spread over a short and a long time."""
    grouped = MIXES[mix](shape)
    shuffled = list(grouped)
    random.Random(shape.seed + 2).shuffle(shuffled)
    num_pages = pool_pages(grouped, shape)

    def served(requests: Sequence[Request], order: str, over_s: float = 0.0) -> Run:
        return run(scheduler_of(order, num_pages), arrivals(requests, shape, over_s))

    best = served(grouped, FirstCome.name)
    at_once = served(shuffled, order)
    busy = served(shuffled, order, BUSY * best.makespan_s)
    calm = served(shuffled, order, CALM * best.makespan_s)
    strangers = [n for n, request in enumerate(shuffled, start=1) if request.group is None]
    return Outcome(
        mix,
        order,
        at_once.cached_tokens,
        best.cached_tokens,
        _p99([busy.told[number].ttft_s for number in strangers]),
        _p99([calm.told[number].ttft_s for number in strangers]),
        median(one.ttft_s for one in busy.told.values()),
        1e6 * mean(at_once.decision_s),
    )


def pool_pages(requests: Sequence[Request], shape: Shape) -> int:
    """Pages for a share of all groups' longest prompts, and room for those that run."""
    longest: dict[int, int] = {}
    for request in requests:
        if request.group is not None:
            size = len(request.tokens) // 4
            longest[request.group] = max(longest.get(request.group, 0), size)
    shared = int(sum(longest.values()) * shape.cache_share)
    return (shared + LIMITS.max_running * 256) // PAGE_SIZE


def _p99(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[min(int(0.99 * len(ordered)), len(ordered) - 1)]


def report(outcomes: Sequence[Outcome], own: Mapping[str, float]) -> Report:
    """The table; the worst mix stands in the last line. own: further figures of the last line."""
    by = {(one.mix, one.order): one for one in outcomes}
    pairs = [(by[mix, CacheAware.name], by[mix, FirstCome.name]) for mix in MIXES]
    summary = {
        "hit_over_best": min(ours.hit_tokens / ours.best_tokens for ours, _ in pairs),
        "fcfs_hit_over_best": min(fcfs.hit_tokens / fcfs.best_tokens for _, fcfs in pairs),
        "cold_p99_over_fcfs": max(
            max(ours.busy_p99_s / fcfs.busy_p99_s, ours.calm_p99_s / fcfs.calm_p99_s)
            for ours, fcfs in pairs
        ),
        **own,
    }
    return Report(NAME, COLUMNS, [_row(one) for one in outcomes], summary)


def _row(one: Outcome) -> list[str]:
    return [
        one.mix,
        one.order,
        f"{one.hit_tokens:,}",
        f"{one.hit_tokens / one.best_tokens:.3f}",
        f"{one.busy_p99_s:,.1f} s",
        f"{one.calm_p99_s:,.1f} s",
        f"{one.busy_p50_s:,.1f} s",
        f"{one.step_us:,.0f}",
    ]


def siblings(count: int = 64, prompt_tokens: int = 1500) -> float:
    """Tokens computed for identical prompts that come at once, over one's and the tails'."""
    rng = random.Random(0)
    prompt = Request(_tokens(rng, prompt_tokens), 0)
    shape = Shape(new_tokens=1)
    scheduler = scheduler_of(CacheAware.name, 64 * prompt_tokens // PAGE_SIZE)
    done: Run = run(scheduler, arrivals([prompt] * count, shape))
    tail = (prompt_tokens - 1) % PAGE_SIZE + 1
    return done.computed_tokens / (prompt_tokens + (count - 1) * tail)


def own_cost(model: str | None) -> dict[str, float]:
    """What decisions take per step, at 256 and at 2,000 that wait; and of a model's step."""
    few, many = decision_us(256), decision_us(2000)
    own = {
        "computed_over_one": siblings(),
        "decision_us": few,
        "decision_2000_over_256": many / few,
    }
    if model is not None:
        own["decision_over_step"] = few / 1e6 / step_s(model)
    return own


def decision_us(num_waiting: int, order: str = CacheAware.name, steps: int = 150) -> float:
    """Mean real time of a step's plan and apply, while so many wait and LIMITS.max_running run."""
    shape = Shape(groups=40, members=-(-2 * num_waiting // 40), new_tokens=24)
    requests = documents(shape)
    random.Random(shape.seed).shuffle(requests)
    scheduler = scheduler_of(order, pool_pages(requests, shape))
    kept_waiting = arrivals(requests, shape)[: num_waiting + LIMITS.max_running + steps]
    return 1e6 * mean(run(scheduler, kept_waiting, max_steps=steps).decision_s[steps // 5 :])


def step_s(model: str, context: int = 1000, steps: int = 8) -> float:
    """Median time of a real model's step that decodes LIMITS.max_running rows, one thread."""
    # Only this needs torch.
    from worker.assembly import build_runner
    from worker.config import WorkerConfig
    from worker.model.files import default_cache_folder, resolve
    from worker.sizes import decide

    config = WorkerConfig(
        model=model,
        kv_memory="2GiB",
        max_running_sequences=LIMITS.max_running,
        max_step_tokens=LIMITS.max_step_tokens,
    )
    folder = resolve(model, default_cache_folder())
    runner = build_runner(config, decide(config, folder), folder)
    num_pages = -(-context // config.page_size)
    row = bytes(4)
    asked = SampleRow(Sampling(temperature=0.0), context)
    rows = [
        PlanRow(number, row, context - 1, list(range(first, first + num_pages)), asked)
        for number in range(LIMITS.max_running)
        for first in [number * num_pages]
    ]
    taken = []
    for _ in range(steps):
        began = time.perf_counter()
        runner.run(StepPlan(rows), lambda: None)
        taken.append(time.perf_counter() - began)
    return median(taken)


def draw(shape: Shape, path: Path) -> None:
    """Draws the mean TTFT over the number of requests that come at once, for each order."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, mix in zip(figure.subplots(1, len(MIXES)), MIXES, strict=True):
        whole = MIXES[mix](replace(shape, members=max(QUEUES) // shape.groups + 1))
        random.Random(shape.seed + 2).shuffle(whole)
        num_pages = pool_pages(whole, shape)
        for order in ORDERS:
            means = []
            for count in QUEUES:
                served = run(scheduler_of(order, num_pages), arrivals(whole[:count], shape))
                means.append(mean(one.ttft_s for one in served.told.values()))
            axes.plot(QUEUES, means, marker="o", label=order)
        axes.set(title=mix, xlabel="requests that wait", xscale="log", yscale="log")
        axes.grid(visible=True, which="both", alpha=0.3)
    figure.axes[0].set_ylabel("mean TTFT, virtual seconds")
    figure.axes[0].legend()
    figure.savefig(path, metadata={"Date": None})
