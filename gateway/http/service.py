"""What the routes work with, and what each of them makes of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from gateway.config import GatewayConfig
from gateway.fleet.workers import Fleet
from gateway.http.answer import Answer
from gateway.http.catalogue import Catalogue
from gateway.http.intake import Caller
from gateway.job import Job
from gateway.pipeline import Pipeline
from gateway.request import Output, Usage
from gateway.routing.public import NONE_PUBLIC, PublicPrefixes
from gateway.telemetry.log import EventLog
from gateway.telemetry.metrics import Telemetry
from gateway.tenancy.quota import Quotas
from gateway.tenancy.tenants import Tenants


@dataclass(frozen=True, slots=True)
class Service:
    """What the routes work with.

    make_id: a new random word. draw_seed: from 0 to 2^62. wall_clock: seconds since 1970.
    """

    config: GatewayConfig
    tenants: Tenants
    fleet: Fleet
    catalogue: Catalogue
    quotas: Quotas
    pipeline: Pipeline
    telemetry: Telemetry
    log: EventLog
    make_id: Callable[[], str]
    draw_seed: Callable[[], int]
    wall_clock: Callable[[], float]
    public: PublicPrefixes = NONE_PUBLIC


class Whole(Protocol):
    """A job's outputs as one body."""

    def whole(self, outputs: Iterable[Output], usage: Usage) -> bytes:
        """The whole answer as one JSON object."""
        ...


@dataclass(frozen=True, slots=True)
class Order:
    """A request understood: the job, and the form of its answer. stream None: in one piece."""

    job: Job
    answer: Whole
    stream: Answer | None = None


class Route(Protocol):
    """What a POST is for. name: in the metrics and the log."""

    name: str

    async def understand(self, body: bytes, caller: Caller) -> Order:
        """Read, validate and translate a request. Raises GatewayError."""
        ...
