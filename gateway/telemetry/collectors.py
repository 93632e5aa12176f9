"""Metrics that are kept elsewhere and read when somebody asks: no cost until then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

WorkerGauges = Mapping[str, int]
# How many wait, by tenant and model.
Waiting = Callable[[], Mapping[tuple[str, str], int]]

_WORKER_GAUGES = {
    "leases": "Requests of this gateway on the worker.",
    "running_sequences": "Sequences that the worker is computing.",
    "waiting_sequences": "Sequences in the worker's queue.",
    "uncomputed_tokens": "Prompt tokens that the worker has still to compute.",
    "total_pages": "Pages of the worker's pool.",
    "used_pages": "Pages that a request refers to.",
    "cached_pages": "Pages without a request that can still be matched.",
    "queued_tokens": "Prompt tokens that the worker has still to compute, as routing counts them.",
    "view_boundaries": "Boundaries of prompts that the worker is known or expected to hold.",
    "held": "1 since the worker had no memory for a request, until one has its first output.",
    "view_stale": "1 while what is known of the worker's cache is old.",
}
# Since the worker's process started; all gateways' requests together.
_WORKER_COUNTERS = {
    "prompt_tokens": "Prompt tokens that the worker has admitted.",
    "cached_tokens": "Of them, found in its prefix cache.",
    "generated_tokens": "Tokens that the worker has sampled.",
    "evicted_pages": "Cached pages that the worker gave up for others.",
    "preemptions": "Sequences that gave their pages back to wait.",
}


class Snapshot(Collector):
    """A registry, whose metrics any thread may read, and what was read of the rest beforehand."""

    def __init__(self, registry: CollectorRegistry, read: Sequence[Metric]):
        self._registry = registry
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Every metric."""
        yield from self._registry.collect()
        yield from self._read


class QueueCollector(Collector):
    """Waiting requests by tenant and model, read from the dispatcher at scrape time."""

    def __init__(self, waiting: Waiting):
        self._waiting = waiting

    def collect(self) -> Iterator[Metric]:
        """One gauge, one sample per tenant and model that had requests waiting lately."""
        gauge = GaugeMetricFamily(
            "pando_gateway_waiting_requests",
            "Requests that wait at the gateway for a worker with credit.",
            labels=["tenant", "model"],
        )
        for (tenant, model), count in self._waiting().items():
            gauge.add_metric([tenant, model], count)
        yield gauge


class LogCollector(Collector):
    """Lines that the log could not take, read from its outlet at scrape time."""

    def __init__(self, num_dropped: Callable[[], int]):
        self._num_dropped = num_dropped

    def collect(self) -> Iterator[Metric]:
        """One counter."""
        yield CounterMetricFamily(
            "pando_gateway_log_lines_dropped",
            "Lines of the log that were dropped since nobody read it, or it could not be written.",
            self._num_dropped(),
        )


class WorkerCollector(Collector):
    """Worker gauges and counters, read from the fleet at scrape time: no cost per step."""

    def __init__(self, workers: Callable[[], Iterable[tuple[str, WorkerGauges]]]):
        self._workers = workers

    def collect(self) -> Iterator[Metric]:
        """One metric per name, one sample per worker."""
        samples = list(self._workers())
        for name, sentence in _WORKER_GAUGES.items():
            gauge = GaugeMetricFamily(f"pando_gateway_worker_{name}", sentence, labels=["worker"])
            for worker, gauges in samples:
                gauge.add_metric([worker], gauges[name])
            yield gauge
        for name, sentence in _WORKER_COUNTERS.items():
            counter = CounterMetricFamily(
                f"pando_gateway_worker_{name}", sentence, labels=["worker"]
            )
            for worker, gauges in samples:
                counter.add_metric([worker], gauges[f"{name}_total"])
            yield counter
