"""What every part of a request works with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from gateway.budget import RetryBudget
from gateway.doctor.practice import Practice
from gateway.fleet.workers import Fleet, Worker
from gateway.queueing.dispatcher import Dispatcher
from gateway.routing.router import Router
from gateway.telemetry.log import EventLog
from gateway.telemetry.metrics import Telemetry
from gateway.telemetry.tracing import NoTraces, Traces


class Takes(Protocol):
    """Whether a worker takes so many more choices now: credit, and no breaker against it."""

    def __call__(self, worker: Worker, num_sequences: int = 1) -> bool:
        """Whether it does."""
        ...


@dataclass(frozen=True, slots=True)
class Means:
    """What every part works with. attempts: workers that a part is given to, at most."""

    router: Router
    fleet: Fleet
    dispatcher: Dispatcher
    budget: RetryBudget
    telemetry: Telemetry
    log: EventLog
    attempts: int
    takes: Takes
    practice: Practice
    traces: Traces = field(default_factory=NoTraces)
