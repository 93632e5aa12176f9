"""Every metric of the gateway.

Metrics live in the registry that is passed in; nothing is global. A `Record` follows one accepted
request and reports its end exactly once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gateway.errors import FACES, Draining, Overloaded, WorkerLost
from gateway.telemetry.collectors import (
    LogCollector,
    QueueCollector,
    Snapshot,
    Waiting,
    WorkerCollector,
    WorkerGauges,
)
from gateway.telemetry.lives import Lives
from gateway.telemetry.totals import Totals
from gateway.telemetry.worker_series import WorkerSeries

# Children of metrics that are kept at hand.
_CHILDREN = 16_384
Clock = Callable[[], float]
# The errors behind which another worker may go on.
RETRIED = (WorkerLost, Overloaded, Draining)

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 5.0)


class TokenCounts(Protocol):
    """Tokens of one prompt and its answer."""

    @property
    def prompt_tokens(self) -> int:
        """Of the prompt."""
        ...

    @property
    def cached_tokens(self) -> int:
        """Of the prompt, from the cache."""
        ...

    @property
    def completion_tokens(self) -> int:
        """Of the answer."""
        ...


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose request it is, and what it asks for."""

    tenant: str
    model: str
    route: str


class Record:
    """What is measured of one accepted request. Times are seconds of the clock."""

    def __init__(self, telemetry: Telemetry, subject: Subject):
        self._telemetry = telemetry
        self._subject = subject
        self._began = telemetry.clock()
        self._submitted: float | None = None
        self._first_token: float | None = None
        self._last_token = 0.0
        self._num_tokens = 0
        self._ended = False
        telemetry.counter(telemetry.accepted, subject.tenant, subject.route).inc()
        telemetry.gauge(telemetry.in_flight, subject.tenant).inc()

    @property
    def num_tokens(self) -> int:
        """Output tokens so far, over all choices."""
        return self._num_tokens

    @property
    def began(self) -> float:
        """When the request was accepted."""
        return self._began

    @property
    def first_token(self) -> float | None:
        """When its first output token came."""
        return self._first_token

    @property
    def elapsed_s(self) -> float:
        """Seconds since the request was accepted."""
        return self._telemetry.clock() - self._began

    def submitted(self) -> None:
        """It went to a worker; only the first time counts as the end of queueing."""
        if self._submitted is None:
            self._submitted = self._telemetry.clock()
            self._histogram(self._telemetry.queue_s, self._submitted - self._began)

    def tokens(self, num_tokens: int) -> None:
        """Output tokens arrived."""
        now = self._telemetry.clock()
        if self._first_token is None:
            self._first_token = now
            self._histogram(self._telemetry.ttft_s, now - self._began)
            self._telemetry.totals.ttft_s.add(now - self._began)
        self._last_token = now
        self._num_tokens += num_tokens

    def end(self, status: int, outcome: str) -> None:
        """The request is over: `finished`, or the code of the error that ended it."""
        assert not self._ended, "a request ends once"
        self._ended = True
        telemetry, subject = self._telemetry, self._subject
        telemetry.gauge(telemetry.in_flight, subject.tenant).dec()
        telemetry.counter(telemetry.ended, outcome).inc()
        telemetry.totals.ended += 1
        telemetry.totals.failed += status >= 500
        telemetry.count_request(subject, status)
        self._histogram(telemetry.e2e_s, telemetry.clock() - self._began)
        if self._first_token is not None and self._num_tokens > 1:
            per_token = (self._last_token - self._first_token) / (self._num_tokens - 1)
            self._histogram(telemetry.tpot_s, per_token)
            telemetry.totals.tpot_s.add(per_token)

    def _histogram(self, histogram: Histogram, value: float) -> None:
        child = self._telemetry.histogram(histogram, self._subject.tenant, self._subject.model)
        child.observe(value)


class Telemetry:
    """All metrics. The clock is seconds that only go forward."""

    def __init__(self, registry: CollectorRegistry, clock: Clock = time.monotonic):
        # Else a second series for each, which nobody asks for.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry
        self.clock = clock
        self.totals = Totals()
        self.lives = Lives()
        # Looking a child up by its labels costs as much as ten of its increments.
        self.counter = lru_cache(_CHILDREN)(Counter.labels)
        self.histogram = lru_cache(_CHILDREN)(Histogram.labels)
        self.gauge = lru_cache(_CHILDREN)(Gauge.labels)
        self._declare_requests()
        self._declare_tokens()
        self._declare_workers()
        self._declare_routing()
        self._declare_doctor()
        self._live: list[Collector] = []
        self._rendering: asyncio.Future[bytes] | None = None
        self._worker_series = WorkerSeries(
            [
                *(self.worker_up, self.link_breaks, self.incarnations),
                *(self.cache_gaps, self.cache_events, self.routes),
                *(self.prompt_tokens, self.cached_tokens, self.completion_tokens),
            ],
            clock,
        )

    def _declare_requests(self) -> None:
        who = ["tenant", "model"]
        self.requests = self._counter(
            "requests",
            "Requests answered, by the status they ended with.",
            [*who, "route", "status"],
        )
        self.accepted = self._counter(
            "accepted_requests", "Requests that passed validation.", ["tenant", "route"]
        )
        self.ended = self._counter(
            "ended_requests",
            "Accepted requests that ended: finished, or an error code.",
            ["outcome"],
        )
        self.in_flight = Gauge(
            "pando_gateway_requests_in_flight",
            "Accepted requests that have not ended.",
            ["tenant"],
            registry=self.registry,
        )
        self.stalled_clients = self._counter(
            "stalled_clients", "Clients cut since they took nothing.", []
        )
        self.queue_s = self._seconds("queue", "From acceptance to the first worker.", _SECONDS)
        self.ttft_s = self._seconds("ttft", "From acceptance to the first token.", _SECONDS)
        self.tpot_s = self._seconds("tpot", "Per output token after the first.", _TOKEN_SECONDS)
        self.e2e_s = self._seconds("e2e", "From acceptance to the end.", _SECONDS)
        self.loop_lag_s = Histogram(
            "pando_gateway_loop_lag_seconds",
            "By how much the event loop wakes up late.",
            buckets=_LAG_SECONDS,
            registry=self.registry,
        )

    def _declare_tokens(self) -> None:
        whence = ["tenant", "model", "worker"]
        self.prompt_tokens = self._counter(
            "prompt_tokens", "Prompt tokens of finished requests.", whence
        )
        self.cached_tokens = self._counter(
            "cached_tokens", "Prompt tokens that came from a worker's prefix cache.", whence
        )
        self.completion_tokens = self._counter(
            "completion_tokens", "Output tokens, those of requests that failed included.", whence
        )

    def _declare_workers(self) -> None:
        self.worker_up = Gauge(
            "pando_gateway_worker_up",
            "Whether the link to the worker stands.",
            ["worker"],
            registry=self.registry,
        )
        self.link_breaks = self._counter(
            "link_breaks", "Links that broke or were refused, by reason.", ["worker", "reason"]
        )
        self.incarnations = self._counter(
            "worker_incarnations", "New processes seen under a worker's name.", ["worker"]
        )
        self.cache_gaps = self._counter(
            "cache_gaps",
            "Times that cache events were missing and a snapshot was asked for.",
            ["worker"],
        )
        self.cache_events = self._counter(
            "cache_events", "Cache events that workers reported, by kind.", ["worker", "kind"]
        )

    def _declare_routing(self) -> None:
        self.routes = self._counter(
            "routing_decisions",
            "Requests sent to a worker, by the policy and why it was chosen.",
            ["worker", "policy", "reason"],
        )
        self.predicted_tokens = self._counter(
            "predicted_tokens",
            "Prompt tokens of finished requests that routing took to be cached.",
            ["model"],
        )
        self.prediction_error = self._counter(
            "prediction_error_tokens",
            "Between the tokens taken to be cached and those that were, whichever way.",
            ["model"],
        )
        self.retries = self._counter(
            "retries", "Requests sent to a further worker, by the error of the last.", ["code"]
        )
        self.continuations = self._counter(
            "continuations",
            "Of the retries, those that went on behind output that a client had already.",
            ["code"],
        )
        # There from the start: a series that begins with its first retries shows no rate of them.
        for kind in RETRIED:
            self.retries.labels(FACES[kind].code)
            self.continuations.labels(FACES[kind].code)

    def _declare_doctor(self) -> None:
        self.cache_reasons = self._counter(
            "cache_reasons",
            "Prompts by why they came from a cache, or did not.",
            ["tenant", "model", "reason"],
        )
        self.uncached_tokens = self._counter(
            "uncached_tokens",
            "Prompt tokens that were computed, by why they did not come from a cache.",
            ["model", "reason"],
        )
        self.examinations = self._counter(
            "doctor_examinations",
            "Prompts whose new parts were looked at, were left out, or made the doctor fail.",
            ["outcome"],
        )

    def _counter(self, name: str, sentence: str, labels: list[str]) -> Counter:
        return Counter(f"pando_gateway_{name}", sentence, labels, registry=self.registry)

    def _seconds(self, name: str, sentence: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(
            f"pando_gateway_{name}_seconds",
            sentence,
            ["tenant", "model"],
            buckets=buckets,
            registry=self.registry,
        )

    def begin(self, subject: Subject) -> Record:
        """A request is accepted; the record reports its end."""
        return Record(self, subject)

    def count_tokens(self, whence: tuple[str, str, str], usage: TokenCounts) -> None:
        """Count the tokens of one prompt; whence: tenant, model, worker."""
        self.counter(self.prompt_tokens, *whence).inc(usage.prompt_tokens)
        self.counter(self.cached_tokens, *whence).inc(usage.cached_tokens)
        self.counter(self.completion_tokens, *whence).inc(usage.completion_tokens)
        self.totals.prompt_tokens += usage.prompt_tokens
        self.totals.cached_tokens += usage.cached_tokens
        self.totals.completion_tokens += usage.completion_tokens

    def count_request(self, subject: Subject, status: int) -> None:
        """Count an answered request, refused ones included."""
        labels = (subject.tenant, subject.model, subject.route, str(status))
        self.counter(self.requests, *labels).inc()

    def worker_expected(self, name: str) -> None:
        """A worker is looked for, under its name or address."""
        self._worker_series.expected(name)

    def worker_stands(self, name: str, stands: bool) -> None:
        """The link to the worker stands from now on, or does not."""
        self.worker_up.labels(name).set(stands)
        self._worker_series.stands(name, stands)

    def worker_given_up(self, name: str) -> None:
        """Nobody looks for the worker any more: its series go, when they were read once more."""
        self._worker_series.given_up(name)
        self._prune()

    def watch_workers(self, workers: Callable[[], Iterable[tuple[str, WorkerGauges]]]) -> None:
        """Show the gauges of the live workers, by name, whenever the metrics are read."""
        self._live.append(WorkerCollector(workers))

    def watch_queue(self, waiting: Waiting) -> None:
        """Show how many requests wait, by tenant and model, whenever the metrics are read."""
        self._live.append(QueueCollector(waiting))

    def watch_log(self, num_dropped: Callable[[], int]) -> None:
        """Show how many lines of the log were dropped, whenever the metrics are read."""
        self._live.append(LogCollector(num_dropped))

    def families(self) -> Snapshot:
        """All metrics. What is kept elsewhere is read now, and so on the loop that writes it."""
        self._prune()
        live: list[Metric] = [metric for kept in self._live for metric in kept.collect()]
        return Snapshot(self.registry, live)

    async def exposition(self) -> bytes:
        """All metrics in the text format of Prometheus.

        With many tenants that is long work, so a thread does it, one for all who ask meanwhile.
        """
        if self._rendering is None:
            work = asyncio.to_thread(generate_latest, self.families())
            self._rendering = asyncio.ensure_future(work)
            self._rendering.add_done_callback(self._rendered)
        return await asyncio.shield(self._rendering)

    def _rendered(self, _: asyncio.Future[bytes]) -> None:
        self._rendering = None

    def _prune(self) -> None:
        """A child at hand of a series that is gone would count for nobody."""
        if self._worker_series.prune():
            self.counter.cache_clear()
