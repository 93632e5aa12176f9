from __future__ import annotations

from prometheus_client import CollectorRegistry

from worker.cache.record import EvictionRecord
from worker.engine import Load, StepReport
from worker.live import Tallies
from worker.progress import Counters
from worker.stopwatch import Durations, Stopwatch
from worker.telemetry import PageHistory, RequestCounts, Telemetry


def test_totals_become_counters_and_sizes_gauges() -> None:
    registry = CollectorRegistry()
    telemetry = Telemetry(registry)
    for generated in (3, 7):
        load = Load(running=2, used_pages=5, counters=Counters(generated_tokens=generated))
        telemetry.observe(StepReport(load, step_s=0.01, step_tokens=generated))
    assert registry.get_sample_value("pando_worker_generated_tokens_total") == 7
    assert registry.get_sample_value("pando_worker_running_sequences") == 2
    assert registry.get_sample_value("pando_worker_kv_used_pages") == 5
    assert registry.get_sample_value("pando_worker_step_tokens_sum") == 10


def test_a_report_without_a_step_counts_as_none() -> None:
    registry = CollectorRegistry()
    Telemetry(registry).observe(StepReport(Load(), failed=[1, 2]))
    assert registry.get_sample_value("pando_worker_step_tokens_count") == 0
    assert registry.get_sample_value("pando_worker_failed_sequences_total") == 2


def test_accepted_and_ended_requests_are_those_of_the_service() -> None:
    registry, tallies = CollectorRegistry(), Tallies()
    registry.register(RequestCounts(tallies))
    tallies.accepted, tallies.done, tallies.failed["Cancelled"] = 5, 3, 1
    name = "pando_worker_ended_requests_total"
    assert registry.get_sample_value("pando_worker_accepted_requests_total") == 5
    assert registry.get_sample_value(name, {"outcome": "done"}) == 3
    assert registry.get_sample_value(name, {"outcome": "Cancelled"}) == 1


def test_sequences_times_are_those_of_their_steps() -> None:
    watch = Stopwatch()
    for number, came in ((1, 0.0), (2, 1.0), (3, 2.0)):
        watch.came(number, came)
    watch.planned([1, 2], 3.0)
    watch.planned([1, 2], 4.0)
    watch.token(1, 5.0, is_last=False)
    watch.token(1, 6.0, is_last=False)
    watch.token(1, 9.0, is_last=True)
    watch.token(2, 9.0, is_last=True)
    watch.gone(3)
    watch.gone(99)
    assert watch.take() == Durations([3.0, 2.0], [2.0, 6.0], [5.0, 8.0], [2.0])
    assert watch.take() == Durations()
    assert len(watch) == 0


def test_evicted_pages_are_told_by_pressure_and_age() -> None:
    registry, record = CollectorRegistry(), EvictionRecord()
    registry.register(PageHistory(record))
    for victim, pressing in ((b"a", b"a"), (b"a", b"b"), (b"b", b"a")):
        record.note(victim, pressing)
    for value in (0, 1, 3, 4, 1 << 60):
        record.lifetime.note(value)
    name = "pando_worker_evictions_total"
    assert registry.get_sample_value(name, {"by": "own"}) == 1
    assert registry.get_sample_value(name, {"by": "another"}) == 2
    bucket = "pando_worker_page_lifetime_pages_bucket"
    counts = [registry.get_sample_value(bucket, {"le": le}) for le in ("0.0", "1.0", "3.0", "7.0")]
    assert counts == [1, 2, 3, 4]
    assert registry.get_sample_value(bucket, {"le": "+Inf"}) == 5


def test_no_series_comes_twice() -> None:
    registry = CollectorRegistry()
    Telemetry(registry)
    names = [sample.name for family in registry.collect() for sample in family.samples]
    assert "pando_worker_step_seconds_sum" in names
    assert not [name for name in names if name.endswith("_created")]
