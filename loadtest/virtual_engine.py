"""A worker's scheduler and cache driven in virtual time: no model, no threads, exact repeats.

The decisions are the worker's own; a step takes as long as a linear model of its tokens and rows
says, and every sampled token is arbitrary. So orders and caches are compared by what they decide,
on hours of traffic in seconds. What the decisions themselves take is measured in real time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from worker.scheduler import Scheduler
from worker.sequence import SequenceSpec
from worker.step import Sampled, StepPlan, StepResult

_TOKEN = 7


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds of a step. Defaults: SmolLM2-135M on two cores, rounded."""

    base_s: float = 0.02
    token_s: float = 0.0015
    row_s: float = 0.001

    def of(self, plan: StepPlan) -> float:
        """How long the plan would take."""
        return self.base_s + self.token_s * plan.num_tokens + self.row_s * len(plan.rows)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A sequence and when it comes, in virtual seconds."""

    at_s: float
    spec: SequenceSpec


@dataclass(slots=True)
class Told:
    """What became of one sequence. ttft_s: from its arrival to its first token."""

    prompt_tokens: int
    cached_tokens: int = 0
    ttft_s: float = 0.0


@dataclass(slots=True)
class Run:
    """One run. decision_s: real seconds of each step's plan and apply."""

    told: dict[int, Told] = field(default_factory=dict)
    makespan_s: float = 0.0
    decision_s: list[float] = field(default_factory=list)
    computed_tokens: int = 0

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that came from the cache."""
        return sum(one.cached_tokens for one in self.told.values())


def run(
    scheduler: Scheduler,
    arrivals: Sequence[Arrival],
    cost: StepCost | None = None,
    max_steps: int | None = None,
) -> Run:
    """Serves all arrivals, which are in order of time, and tells what became of them.

    max_steps: after so many it stops as it stands.
    """
    cost = cost or StepCost()
    result = Run()
    came_at: dict[int, float] = {}
    position, now = 0, 0.0
    while max_steps is None or len(result.decision_s) < max_steps:
        while position < len(arrivals) and arrivals[position].at_s <= now:
            spec = arrivals[position].spec
            scheduler.add(spec)
            came_at[spec.id] = arrivals[position].at_s
            result.told[spec.id] = Told(len(spec.prompt) // 4)
            position += 1
        began = time.perf_counter()
        plan = scheduler.plan()
        planned = time.perf_counter()
        if plan is None:
            if position == len(arrivals):
                break
            now = arrivals[position].at_s
            continue
        now += cost.of(plan)
        _note_first(scheduler, plan, result, now, came_at)
        sampled = [Sampled(row.sequence_id, _TOKEN) for row in plan.rows if row.sample is not None]
        resumed = time.perf_counter()
        scheduler.apply(StepResult(sampled))
        scheduler.cache.tags.take_events()
        result.decision_s.append(planned - began + time.perf_counter() - resumed)
        result.computed_tokens += plan.num_tokens
    result.makespan_s = now
    return result


def _note_first(
    scheduler: Scheduler, plan: StepPlan, result: Run, now: float, came_at: dict[int, float]
) -> None:
    """Sequences that get their first token with this step."""
    for row in plan.rows:
        if row.sample is not None and row.sequence_id in came_at:
            told = result.told[row.sequence_id]
            told.ttft_s = now - came_at.pop(row.sequence_id)
            told.cached_tokens = scheduler.cached_tokens(row.sequence_id) or 0
