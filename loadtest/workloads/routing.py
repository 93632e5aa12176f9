"""How near the fleet comes to one big cache, and how evenly it works: recorded traffic, replayed.

    trace ──▶ open-loop client ──▶ real gateway processes ──▶ fake workers with finite LRU caches

Held against one cache of the whole fleet's size that serves every request (`pooled`). What other
rules would do with the same traffic is simulated, with the gateway's own router (`simulation`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import uvloop
from msgspec.structs import replace as with_fields

from gateway.config import RoutingConfig
from gateway.tenant_config import PolicyConfig
from loadtest.errors import LoadTestError
from loadtest.fake.engine import Pace
from loadtest.replay import Served, Speed, replay
from loadtest.replay_fleet import FleetWish, running
from loadtest.report import Report
from loadtest.simulation import Setting, Simulation, pooled_hits
from loadtest.traces import MOONCAKE_TOKENS, Recorded, agents, mooncake

NAME = "routing"
COLUMNS = ("traffic", "workers", "gw", "rule", "hits", "/pooled", "max/mean", "how")
# Blocks of 512 tokens that a worker's cache holds.
SMALL, LARGE = 3000, 6000
PREFILL_TOKENS_S = 8000.0
TICK_S = 0.02
# Boundaries are messages, and a trace's blocks are messages: all are named.
ALL_BOUNDARIES = 1024
# Tokens that a byte of a block's message stands for.
TOKENS_PER_BYTE = 8.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run. quick: the beginning of every trace only. gateways: of the run with many."""

    traces: Path
    quick: bool = False
    gateways: int = 8
    simulate: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """One run of one trace. rule: as the table names it. speed: of the replay's clock."""

    traffic: str
    requests: Sequence[Recorded] = field(repr=False)
    num_workers: int
    blocks: int
    speed: float
    rule: str = "cost"
    gateways: int = 1
    joins_at_s: float | None = None
    is_real: bool = True

    @property
    def cache_tokens(self) -> int:
        """Of one worker."""
        return self.blocks * MOONCAKE_TOKENS


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case's requests."""

    case: Case
    served: Sequence[Served]
    pooled: float

    @property
    def hits(self) -> float:
        """Cached tokens of all prompt tokens."""
        return hit_rate(self.served)

    @property
    def imbalance(self) -> float:
        """Computed prompt tokens of the busiest worker against the mean."""
        computed: Counter[str] = Counter({f"w{n}": 0 for n in range(self.case.num_workers)})
        for one in self.served:
            computed[one.worker] += one.computed_tokens
        return max(computed.values()) * len(computed) / sum(computed.values())

    @property
    def late_s(self) -> float:
        """How far behind its time the median request was sent."""
        late = sorted(one.late_s for one in self.served)
        return late[len(late) // 2]


RULES: dict[str, RoutingConfig] = {
    "cost": RoutingConfig(),
    "round robin": RoutingConfig(policy=PolicyConfig("round_robin")),
    "plain ring": RoutingConfig(
        policy=PolicyConfig("consistent"), load_floor=1_000_000, load_factor=1e6
    ),
    "ring, bound": RoutingConfig(policy=PolicyConfig("consistent"), load_floor=1),
    "ring, floor 16": RoutingConfig(policy=PolicyConfig("consistent")),
}


def hit_rate(served: Sequence[Served]) -> float:
    """Cached tokens of all prompt tokens."""
    return sum(one.cached_tokens for one in served) / sum(one.prompt_tokens for one in served)


def cases(plan: Plan) -> list[Case]:
    """The runs, in the table's order."""
    few, sessions = (2000, 40) if plan.quick else (None, 200)
    conversations = mooncake(plan.traces / "mooncake_conversation_trace.jsonl.gz", few)
    synthetic = mooncake(plan.traces / "mooncake_synthetic_trace.jsonl.gz", few)
    coding = agents(plan.traces / "cc_agentic_sessions.jsonl.gz", sessions)
    real = [
        Case("conversations", conversations, 8, SMALL, 60),
        Case("conversations", conversations, 16, SMALL, 60),
        Case("synthetic", synthetic, 8, SMALL, 40),
        Case("synthetic", synthetic, 16, SMALL, 40),
        Case("agents", coding, 8, LARGE, 200),
        Case("synthetic", synthetic, 8, SMALL, 40, gateways=plan.gateways),
    ]
    middle = synthetic[len(synthetic) // 2].at_s
    real.append(replace(real[2], joins_at_s=middle, traffic="synthetic, 9th in"))
    if plan.simulate:
        real = [replace(case, is_real=False) for case in real]
    others = [
        replace(case, rule=rule, is_real=False)
        for case in (real[0], real[2], real[4])
        for rule in RULES
        if rule != "cost"
    ]
    return real + others


def measure(plan: Plan, progress: Callable[[str], None]) -> list[Outcome]:
    """Every case's outcome. Raises LoadTestError."""
    outcomes = []
    pooled: dict[tuple[int, int], float] = {}
    for case in cases(plan):
        tokens = case.num_workers * case.cache_tokens
        key = id(case.requests), tokens
        if key not in pooled:
            pooled[key] = pooled_hits(case.requests, tokens)
        how = "real" if case.is_real else "simulated"
        progress(f"{case.traffic}, {case.num_workers} workers, {case.rule}, {how}")
        served = _replayed(case) if case.is_real else _simulated(case)
        outcomes.append(Outcome(case, served, pooled[key]))
    return outcomes


def _simulated(case: Case) -> list[Served]:
    setting = Setting(
        num_workers=case.num_workers,
        cache_tokens=case.cache_tokens,
        routing=with_fields(RULES[case.rule], max_boundaries=ALL_BOUNDARIES),
        num_gateways=case.gateways,
        joins_at_s=case.joins_at_s,
        pace=Pace(PREFILL_TOKENS_S, TICK_S),
    )
    return Simulation(setting).run(case.requests)


def _replayed(case: Case) -> list[Served]:
    speed = Speed(case.speed)
    rule = RULES[case.rule]
    routing = with_fields(
        rule,
        max_boundaries=ALL_BOUNDARIES,
        tokens_per_byte=TOKENS_PER_BYTE,
        warm_up_s=rule.warm_up_s / case.speed,
        work_half_life_s=rule.work_half_life_s / case.speed,
    )
    wish = FleetWish(
        num_workers=case.num_workers,
        num_gateways=case.gateways,
        cache_tokens=case.cache_tokens,
        pace=Pace(PREFILL_TOKENS_S * case.speed, TICK_S),
        routing=routing,
        num_later=0 if case.joins_at_s is None else 1,
    )
    with running(wish) as fleet:

        async def run() -> list[Served]:
            if case.joins_at_s is not None:
                first = case.requests[0].at_s
                delay = (case.joins_at_s - first) / case.speed
                asyncio.get_running_loop().call_later(delay, fleet.start_later)
            return await replay(case.requests, fleet.ports, speed)

        try:
            return uvloop.run(run())
        except ExceptionGroup as group:
            first = group.exceptions[0]
            raise LoadTestError(f"{case.traffic}: {first!r}") from group


def tenths(case: Case, served: Sequence[Served]) -> list[float]:
    """The hit rate of every tenth of the requests, in the order of their arrival."""
    ordered = sorted(served, key=lambda one: one.at_s)
    size = len(case.requests) / 10
    return [hit_rate(ordered[round(k * size) : round((k + 1) * size)]) for k in range(10)]


def join_dip(before: Outcome, joined: Outcome) -> float:
    """The most hits, in points, that a tenth after the join loses against the run without it."""
    pairs = zip(tenths(before.case, before.served), tenths(joined.case, joined.served), strict=True)
    return max(100 * (stayed - grown) for stayed, grown in list(pairs)[5:])


def report(outcomes: Sequence[Outcome]) -> Report:
    """The table; the last line names the worst of our own runs."""
    ours = [one for one in outcomes if one.case.rule == "cost"]
    by_traffic = {(one.case.traffic, one.case.num_workers, one.case.gateways): one for one in ours}
    single = [one for one in ours if one.case.gateways == 1 and one.case.joins_at_s is None]
    alone = by_traffic["synthetic", 8, 1]
    many = next(one for one in ours if one.case.gateways > 1)
    joined = next(one for one in ours if one.case.joins_at_s is not None)
    traces = [one for one in single if one.case.traffic != "agents"]
    coding = next(one for one in single if one.case.traffic == "agents")
    summary = {
        "hit_over_pooled": min(one.hits / one.pooled for one in traces),
        "imbalance": max(one.imbalance for one in traces),
        "agents_hit_over_pooled": coding.hits / coding.pooled,
        "agents_imbalance": coding.imbalance,
        "gateways8_loss": 100 * (alone.hits - many.hits),
        "gateways8_imbalance": many.imbalance,
        "join_dip": join_dip(alone, joined),
        "late_ms": 1000 * max(one.late_s for one in ours),
    }
    return Report(NAME, COLUMNS, [_row(one) for one in outcomes], summary)


def _row(outcome: Outcome) -> list[str]:
    case = outcome.case
    return [
        case.traffic,
        str(case.num_workers),
        str(case.gateways),
        case.rule,
        f"{outcome.hits:.3f}",
        f"{outcome.hits / outcome.pooled:.3f}",
        f"{outcome.imbalance:.2f}",
        f"{case.speed:.0f} x" if case.is_real else "simulated",
    ]
