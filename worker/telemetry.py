"""Logging set-up and every metric of a worker."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from worker.engine import StepReport
from worker.service import Tallies
from worker.text.turns import TurnIds

STEP_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
STEP_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_STANDARD = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class Telemetry:
    """A worker's metrics; `observe` is called once per step report."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # Else a second series for each, which nobody asks for.
        disable_created_metrics()  # type: ignore[no-untyped-call]

        def gauge(name: str, says: str) -> Gauge:
            return Gauge(f"pando_worker_{name}", says, registry=registry)

        def counter(name: str, says: str) -> Counter:
            return Counter(f"pando_worker_{name}", says, registry=registry)

        self._running = gauge("running_sequences", "Sequences that hold pages.")
        self._waiting = gauge("waiting_sequences", "Sequences in the queue.")
        self._uncomputed = gauge("uncomputed_tokens", "Tokens still to be computed.")
        self._total = gauge("kv_pages", "Pages in the pool.")
        self._used = gauge("kv_used_pages", "Pages referenced by a sequence.")
        self._cached = gauge("kv_cached_pages", "Unreferenced pages that can still be matched.")
        self._counters = {
            "prompt_tokens": counter("prompt_tokens", "Prompt tokens of admitted sequences."),
            "cached_tokens": counter("cached_tokens", "Of them, taken from the prefix cache."),
            "generated_tokens": counter("generated_tokens", "Tokens sampled."),
            "preemptions": counter("preemptions", "Sequences that gave their pages back to wait."),
        }
        self._evicted = counter("evicted_pages", "Cached pages given up for others.")
        self._failed = counter("failed_sequences", "Sequences ended by a step that failed.")
        self._step_s = Histogram(
            "pando_worker_step_seconds",
            "Time of one step.",
            buckets=STEP_SECONDS,
            registry=registry,
        )
        self._step_tokens = Histogram(
            "pando_worker_step_tokens",
            "Tokens computed in one step.",
            buckets=STEP_TOKENS,
            registry=registry,
        )
        self._last: dict[str, int] = {}

    def observe(self, report: StepReport) -> None:
        """Takes over a report's load and step figures."""
        load = report.load
        self._running.set(load.running)
        self._waiting.set(load.waiting)
        self._uncomputed.set(load.uncomputed_tokens)
        self._total.set(load.total_pages)
        self._used.set(load.used_pages)
        self._cached.set(load.cached_pages)
        for name, counter in self._counters.items():
            self._raise(counter, name, getattr(load.counters, name))
        self._raise(self._evicted, "evicted_pages", load.evicted_pages)
        self._failed.inc(len(report.failed))
        if report.step_tokens:
            self._step_s.observe(report.step_s)
            self._step_tokens.observe(report.step_tokens)

    def _raise(self, counter: Counter, name: str, total: int) -> None:
        counter.inc(total - self._last.get(name, 0))
        self._last[name] = total


class RequestCounts(Collector):
    """Requests accepted and ended, and turns of chats: the service's own, read at a scrape."""

    def __init__(self, tallies: Tallies) -> None:
        self._tallies = tallies

    def collect(self) -> Iterator[Metric]:
        """Yields the counters."""
        tallies = self._tallies
        yield CounterMetricFamily(
            "pando_worker_accepted_requests", "Requests taken from gateways.", tallies.accepted
        )
        ended = CounterMetricFamily(
            "pando_worker_ended_requests", "Requests that ended, by outcome.", labels=["outcome"]
        )
        for outcome, count in [("done", tallies.done), *list(tallies.failed.items())]:
            ended.add_metric([outcome], count)
        yield ended
        turns = CounterMetricFamily(
            "pando_worker_turns",
            "Chats with an answer in them, by the ids that the last one has: the tokenizer's own,"
            " which are those generated (exact), those generated here (recorded), or the"
            " tokenizer's for want of others (missed).",
            labels=["ids"],
        )
        for ids in TurnIds:
            turns.add_metric([ids.value], tallies.turns[ids])
        yield turns


class FieldFormatter(logging.Formatter):
    """One event per line: time, level, event, fields as key=value; as the gateway's.

    2026-01-31T12:00:00.000Z info ready worker=worker-0 port=7001
    """

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line, with a traceback behind it where there is one."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        head = f"{seconds}.{int(record.msecs):03d}Z {record.levelname.lower()}"
        extra: dict[str, Any] = {k: v for k, v in vars(record).items() if k not in _STANDARD}
        fields = "".join(f" {name}={value}" for name, value in extra.items())
        line = f"{head} {record.getMessage()}{fields}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def set_up_logging(level: str) -> None:
    """Sends our events to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FieldFormatter())
    root = logging.getLogger("pando")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
