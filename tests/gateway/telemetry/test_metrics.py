"""Numbers of one request, and log lines that stay lines."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.fleet.workers import Worker, WorkerInfo, WorkerLoad
from gateway.request import Usage
from gateway.telemetry.log import EventLog
from gateway.telemetry.metrics import Subject, Telemetry
from tests.gateway.conftest import NoDoor

SUBJECT = Subject("acme", "tiny", "completions")


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def telemetry(clock: Clock) -> Telemetry:
    return Telemetry(CollectorRegistry(), clock)


def sample(telemetry: Telemetry, name: str, **labels: str) -> float | None:
    value: float | None = telemetry.registry.get_sample_value(f"pando_gateway_{name}", labels)
    return value


def test_times_are_taken_from_acceptance_and_per_token_after_the_first(
    telemetry: Telemetry, clock: Clock
) -> None:
    record = telemetry.begin(SUBJECT)
    clock.now += 1
    record.submitted()
    clock.now += 2
    record.tokens(1)
    clock.now += 4
    record.tokens(8)
    clock.now += 1
    record.end(200, "finished")
    who = {"tenant": "acme", "model": "tiny"}
    assert sample(telemetry, "queue_seconds_sum", **who) == 1
    assert sample(telemetry, "ttft_seconds_sum", **who) == 3
    assert sample(telemetry, "tpot_seconds_sum", **who) == 0.5
    assert sample(telemetry, "e2e_seconds_sum", **who) == 8


def test_a_request_ends_once(telemetry: Telemetry) -> None:
    record = telemetry.begin(SUBJECT)
    assert sample(telemetry, "requests_in_flight", tenant="acme") == 1
    record.end(499, "client_closed")
    assert sample(telemetry, "requests_in_flight", tenant="acme") == 0
    assert sample(telemetry, "ended_requests_total", outcome="client_closed") == 1
    with pytest.raises(AssertionError):
        record.end(200, "finished")


def test_every_metric_has_a_sentence_and_our_prefix(telemetry: Telemetry) -> None:
    telemetry.watch_workers(list)
    for family in telemetry.families().collect():
        assert family.name.startswith("pando_gateway_")
        assert family.documentation.endswith(".")


def test_the_first_retries_are_an_increase_and_no_beginning(telemetry: Telemetry) -> None:
    for code in ("worker_lost", "overloaded", "draining"):
        assert sample(telemetry, "retries_total", code=code) == 0
        assert sample(telemetry, "continuations_total", code=code) == 0


async def test_a_workers_own_account_is_shown_by_its_name(telemetry: Telemetry) -> None:
    load = WorkerLoad(used_pages=7, preemptions_total=3, evicted_pages_total=11)
    info = WorkerInfo("w0", "first", "tiny")
    worker = Worker(info, NoDoor(), load=load, in_flight=2, expected_tokens=50, others_tokens=7)
    telemetry.watch_workers(lambda: [(worker.name, worker.gauges())])
    text = (await telemetry.exposition()).decode()
    for line in (
        'pando_gateway_worker_leases{worker="w0"} 2.0',
        'pando_gateway_worker_queued_tokens{worker="w0"} 57.0',
        'pando_gateway_worker_used_pages{worker="w0"} 7.0',
        'pando_gateway_worker_preemptions_total{worker="w0"} 3.0',
        'pando_gateway_worker_evicted_pages_total{worker="w0"} 11.0',
    ):
        assert line in text.splitlines()


async def test_metrics_are_written_beside_the_loop_by_one_thread_for_all(
    telemetry: Telemetry,
) -> None:
    loops_thread, seen = threading.get_ident(), []

    def workers() -> list[tuple[str, dict[str, int]]]:
        seen.append(threading.get_ident())
        return []

    telemetry.watch_workers(workers)
    slow = Slow()
    telemetry.registry.register(slow)
    work = asyncio.gather(*(telemetry.exposition() for _ in range(20)))
    async with asyncio.timeout(20):
        while not slow.threads:  # noqa: ASYNC110 - another thread tells
            await asyncio.sleep(0.001)
    slow.may_end.set()
    texts = await work
    assert len(set(texts)) == 1
    assert seen == [loops_thread]
    assert len(slow.threads) == 1
    assert slow.threads != [loops_thread]
    assert b"slow" in texts[0]
    await telemetry.exposition()
    assert len(seen) == 2


class Slow(Collector):
    """As long as it must. threads: who rendered."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.may_end = threading.Event()

    def describe(self) -> Iterator[Metric]:
        yield from ()

    def collect(self) -> Iterator[Metric]:
        self.threads.append(threading.get_ident())
        self.may_end.wait(10)
        yield GaugeMetricFamily("slow", "It takes its time.", value=1)


def series(telemetry: Telemetry) -> set[str]:
    return {
        sample.labels["worker"]
        for family in telemetry.families().collect()
        for sample in family.samples
        if "worker" in sample.labels
    }


def test_the_series_of_a_worker_that_was_given_up_go_after_a_while(
    telemetry: Telemetry, clock: Clock
) -> None:
    for name in ("w0", "w1", "w2"):
        telemetry.worker_stands(name, True)
        telemetry.link_breaks.labels(name, "silence").inc()
        telemetry.counter(telemetry.routes, name, "cost", "cached").inc()
        telemetry.count_tokens(("acme", "tiny", name), Usage(5, 2, 1))
    for name in ("w0", "w1"):
        telemetry.worker_stands(name, False)
        telemetry.worker_given_up(name)
    telemetry.worker_given_up("w2")  # by a link that was, while another stands
    clock.now += 500
    assert series(telemetry) == {"w0", "w1", "w2"}
    telemetry.worker_expected("w1")
    clock.now += 500
    assert series(telemetry) == {"w1", "w2"}
    telemetry.count_tokens(("acme", "tiny", "w0"), Usage(7, 0, 0))
    whence = {"tenant": "acme", "model": "tiny", "worker": "w0"}
    assert sample(telemetry, "prompt_tokens_total", **whence) == 7


def test_series_of_names_that_are_gone_are_bounded(telemetry: Telemetry) -> None:
    for number in range(3000):
        telemetry.link_breaks.labels(f"10.0.0.{number}:1", "unreachable").inc()
        telemetry.worker_given_up(f"10.0.0.{number}:1")
    assert len(series(telemetry)) == 1024


def test_an_event_is_one_line_whatever_its_fields_hold(caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog(logging.getLogger("gateway")).bind(worker="w0")
    with caplog.at_level(logging.INFO, "gateway"):
        log.info(
            "request_ended",
            detail='two\nlines "quoted"',
            seconds=0.123456789,
            tenant="a b",
            nothing=None,
        )
    assert caplog.messages == [
        'request_ended worker=w0 detail="two\\nlines \\"quoted\\"" seconds=0.123457 tenant="a b"'
    ]


async def test_no_series_comes_twice(telemetry: Telemetry) -> None:
    telemetry.begin(SUBJECT).end(200, "finished")
    exposition = (await telemetry.exposition()).decode()
    assert "pando_gateway_ended_requests_total" in exposition
    assert "_created" not in exposition
