"""The curves: what was counted between two samples, apart, and never more than half an hour."""

from __future__ import annotations

import random

import pytest
from prometheus_client import CollectorRegistry

from gateway.request import Usage
from gateway.telemetry.metrics import Subject, Telemetry
from gateway.telemetry.totals import Spread, percentile
from gateway.ui.history import EVERY_S, SAMPLES, History
from tests.gateway.ui.scene import Clock

SUBJECT = Subject("acme", "tiny", "chat_completions")


def played(telemetry: Telemetry, clock: Clock, ttft: float, tpot: float, status: int = 200) -> None:
    """One request with eleven tokens."""
    record = telemetry.begin(SUBJECT)
    clock.now += ttft
    record.tokens(1)
    clock.now += 10 * tpot
    record.tokens(10)
    record.end(status, "finished")


def test_each_sample_tells_of_its_own_seconds_however_late_it_was_taken() -> None:
    clock = Clock()
    telemetry = Telemetry(CollectorRegistry(), clock)
    history = History(telemetry.totals, clock)
    for _ in range(10):
        played(telemetry, clock, ttft=0.5, tpot=0.02)
    telemetry.count_tokens(("acme", "tiny", "w0"), Usage(100, 75, 110))
    history.sample()
    clock.now += EVERY_S
    history.sample()
    played(telemetry, clock, ttft=4.0, tpot=0.2, status=502)
    telemetry.count_tokens(("acme", "tiny", "w0"), Usage(50, 10, 11))
    history.sample()
    curves = history.curves()
    assert curves.hit_rate == [0.75, None, 0.2]
    assert curves.ttft_p50[1] is curves.tpot_p95[1] is None
    assert [curves.ttft_p50[0], curves.ttft_p50[2]] == pytest.approx([0.5, 4.0], rel=0.1)
    assert [curves.tpot_p95[0], curves.tpot_p95[2]] == pytest.approx([0.02, 0.2], rel=0.1)
    assert curves.requests_per_s == pytest.approx([10 / 7, 0, 1 / 6])
    assert curves.failed_per_s == pytest.approx([0, 0, 1 / 6])
    assert curves.tokens_per_s == pytest.approx([110 / 7, 0, 11 / 6])


def test_no_more_than_half_an_hour_is_kept() -> None:
    clock = Clock()
    history = History(Telemetry(CollectorRegistry(), clock).totals, clock)
    for _ in range(SAMPLES + 50):
        clock.now += EVERY_S
        history.sample()
    assert len(history) == SAMPLES
    assert history.curves().ago_s[0] == (SAMPLES - 1) * EVERY_S == 1795.0


@pytest.mark.parametrize("share", [0.5, 0.95])
def test_percentiles_are_within_a_tenth(share: float) -> None:
    chance = random.Random(7)
    values = sorted(chance.lognormvariate(-2, 1.5) for _ in range(4000))
    spread = Spread()
    for value in values:
        spread.add(value)
    assert percentile(spread.counts, share) == pytest.approx(values[int(share * 4000)], rel=0.1)


def test_what_is_beyond_all_bounds_is_counted_too() -> None:
    spread = Spread()
    spread.add(0.0)
    spread.add(1e9)
    assert sum(spread.counts) == 2
    assert percentile(spread.counts, 0.99) == pytest.approx(419, rel=0.25)
