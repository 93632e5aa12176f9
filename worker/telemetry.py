"""Every metric of a worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from process.outlet import Outlet
from worker.cache.record import EvictionRecord
from worker.cache.record import Histogram as PageCounts
from worker.engine import StepReport
from worker.grammar.compiler import Compilations
from worker.live import Tallies
from worker.text.turns import TurnIds

STEP_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
SEQUENCE_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120)
MASK_SECONDS = (2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1)
STEP_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
STEP_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


# By the field of Load: the metric's name and what it says.
GAUGES = {
    "running": ("running_sequences", "Sequences that hold pages."),
    "waiting": ("waiting_sequences", "Sequences in the queue."),
    "uncomputed_tokens": ("uncomputed_tokens", "Tokens still to be computed."),
    "total_pages": ("kv_pages", "Pages in the pool."),
    "used_pages": ("kv_used_pages", "Pages referenced by a sequence."),
    "cached_pages": ("kv_cached_pages", "Unreferenced pages that can still be matched."),
    "unused_slots": ("kv_unused_slots", "Slots of pages in use without a token yet."),
}
# By the field of Counters.
COUNTERS = {
    "prompt_tokens": "Prompt tokens of admitted sequences.",
    "cached_tokens": "Of them, taken from the prefix cache.",
    "generated_tokens": "Tokens sampled, or forced by a grammar.",
    "forced_tokens": "Of them, forced and not sampled.",
    "sat_out": "Steps that constrained sequences sat out because their mask was not ready.",
    "computed_tokens": "Tokens that steps computed, again after preemption too.",
    "copied_pages": "Pages that began as a copy of another.",
    "preemptions": "Sequences that gave their pages back to wait.",
}
# By the field of Durations.
DURATIONS = {
    "queue_s": ("queue_seconds", "From a sequence's arrival to its first step."),
    "prefill_s": ("prefill_seconds", "From a sequence's first step to its first token."),
    "ttft_s": ("ttft_seconds", "From a sequence's arrival to its first token."),
    "tpot_s": ("tpot_seconds", "A sequence's mean time per token after the first."),
}


class Telemetry:
    """A worker's metrics; `observe` is called once per step report."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # Else a second series for each, which nobody asks for.
        disable_created_metrics()  # type: ignore[no-untyped-call]

        def counter(name: str, says: str) -> Counter:
            return Counter(f"pando_worker_{name}", says, registry=registry)

        def histogram(name: str, says: str, buckets: Sequence[float]) -> Histogram:
            return Histogram(f"pando_worker_{name}", says, buckets=buckets, registry=registry)

        self._gauges = {
            field: Gauge(f"pando_worker_{name}", says, registry=registry)
            for field, (name, says) in GAUGES.items()
        }
        self._counters = {name: counter(name, says) for name, says in COUNTERS.items()}
        self._durations = {
            field: histogram(name, says, SEQUENCE_SECONDS)
            for field, (name, says) in DURATIONS.items()
        }
        self._evicted = counter("evicted_pages", "Cached pages given up for others.")
        self._failed = counter("failed_sequences", "Sequences that a step or a grammar failed.")
        self._step_s = histogram("step_seconds", "Time of one step.", STEP_SECONDS)
        self._step_tokens = histogram("step_tokens", "Tokens computed in one step.", STEP_TOKENS)
        self._step_rows = histogram("step_sequences", "Sequences in one step.", STEP_ROWS)
        self._mask_s = histogram(
            "mask_seconds", "Time in which a grammar found what may follow a token.", MASK_SECONDS
        )
        self._last: dict[str, int] = {}

    def observe(self, report: StepReport) -> None:
        """Takes over a report's load and step figures."""
        load = report.load
        for field, gauge in self._gauges.items():
            gauge.set(getattr(load, field))
        for name, counter in self._counters.items():
            self._raise(counter, name, getattr(load.counters, name))
        self._raise(self._evicted, "evicted_pages", load.evicted_pages)
        self._failed.inc(len(report.failed) + len(report.refused))
        if report.step_tokens:
            self._step_s.observe(report.step_s)
            self._step_tokens.observe(report.step_tokens)
            self._step_rows.observe(report.step_rows)
        for seconds in report.mask_s:
            self._mask_s.observe(seconds)
        for field, histogram in self._durations.items():
            for value in getattr(report.durations, field):
                histogram.observe(value)

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


class GrammarCounts(Collector):
    """Constraints compiled, read at a scrape."""

    def __init__(self, tallies: Compilations) -> None:
        self._tallies = tallies

    def collect(self) -> Iterator[Metric]:
        """Yields the counters."""
        tallies = self._tallies
        compiled = CounterMetricFamily(
            "pando_worker_grammars",
            "Constraints that came: compiled, refused, or found in the cache (hit).",
            labels=["outcome"],
        )
        compiled.add_metric(["compiled"], tallies.compiled)
        compiled.add_metric(["refused"], tallies.refused)
        compiled.add_metric(["hit"], tallies.hits)
        yield compiled
        yield CounterMetricFamily(
            "pando_worker_grammar_compile_seconds", "Time spent compiling.", tallies.seconds
        )


class PageHistory(Collector):
    """What became of cached pages, read from the pool's record at a scrape."""

    def __init__(self, record: EvictionRecord) -> None:
        self._record = record

    def collect(self) -> Iterator[Metric]:
        """Yields evictions by whose pressure, and how old and how long unused the pages were."""
        record = self._record
        pressed = CounterMetricFamily(
            "pando_worker_evictions",
            "Cached pages given up: by the account's own need of room, or by another's.",
            labels=["by"],
        )
        pairs = list(record.by_pressure.items())
        own = sum(count for (victim, pressing), count in pairs if victim == pressing)
        pressed.add_metric(["own"], own)
        pressed.add_metric(["another"], sum(count for _, count in pairs) - own)
        yield pressed
        for name, since, histogram in (
            ("page_lifetime_pages", "from its entry into the index", record.lifetime),
            ("page_idle_pages", "from its last use", record.idle),
        ):
            says = f"Of evicted pages: pages handed out {since} to its eviction."
            yield _in_powers_of_two(f"pando_worker_{name}", says, histogram)


def _in_powers_of_two(name: str, says: str, counted: PageCounts) -> Metric:
    """counts[i] are those in [2^(i-1), 2^i), so a bucket ends just below a power of two."""
    buckets, below = [], 0
    for bits, count in enumerate(list(counted.counts)[:-1]):
        below += count
        buckets.append((str(float(2**bits - 1)), below))
    buckets.append(("+Inf", below + counted.counts[-1]))
    return HistogramMetricFamily(name, says, buckets=buckets, sum_value=counted.total)


class LogCounts(Collector):
    """What became of the log's lines, read from their outlet at a scrape."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet

    def collect(self) -> Iterator[Metric]:
        """Yields the counter."""
        yield CounterMetricFamily(
            "pando_worker_log_lines_dropped",
            "Lines of the log that were dropped since nobody read it, or it could not be written.",
            self._outlet.num_dropped,
        )
