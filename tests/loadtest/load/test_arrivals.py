"""Arrivals come at the rates that were asked for, as far as a fixed seed can show."""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import mean, stdev

import pytest

from loadtest.errors import LoadTestError
from loadtest.load.arrivals import Open, parsed_ramp, starts

COUNT = 20_000


def gaps(arrival: Open, seed: int = 0) -> list[float]:
    times = starts(arrival, COUNT, random.Random(seed))
    assert times == sorted(times)
    return [later - earlier for earlier, later in pairwise([0.0, *times])]


def test_the_same_seed_gives_the_same_times() -> None:
    assert gaps(Open(3.0)) == gaps(Open(3.0))
    assert gaps(Open(3.0)) != gaps(Open(3.0), seed=1)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_rates_mean_and_the_spread_of_their_burstiness(burstiness: float) -> None:
    found = gaps(Open(5.0, burstiness=burstiness))
    error = 4 * (1 / burstiness**0.5) / COUNT**0.5
    assert mean(found) * 5.0 == pytest.approx(1.0, abs=error)
    # A gamma distribution of shape k has a coefficient of variation of 1 / sqrt(k).
    assert stdev(found) / mean(found) == pytest.approx(1 / burstiness**0.5, rel=0.06)


def test_poisson_counts_vary_as_much_as_their_mean() -> None:
    times = starts(Open(10.0), COUNT, random.Random(3))
    counts = [0] * int(times[-1])
    for time in times:
        if time < len(counts):
            counts[int(time)] += 1
    assert mean(counts) == pytest.approx(10.0, rel=0.05)
    assert stdev(counts) ** 2 == pytest.approx(10.0, rel=0.12)


@pytest.mark.parametrize(("first", "last"), [(1.0, 9.0), (9.0, 1.0), (4.0, 4.0)])
def test_a_ramp_goes_evenly_from_its_first_rate_to_its_last(first: float, last: float) -> None:
    length = 2 * COUNT / (first + last)
    times = starts(Open(first, last), COUNT, random.Random(1))
    tenths = [0] * 10
    for time in times:
        if time < length:
            tenths[int(10 * time / length)] += 1
    for number, count in enumerate(tenths):
        rate = first + (last - first) * (number + 0.5) / 10
        expected = rate * length / 10
        assert abs(count - expected) < 5 * expected**0.5


def test_a_falling_ramp_has_times_for_all_even_behind_its_end() -> None:
    times = starts(Open(9.0, 0.001), 50, random.Random(2))
    assert len(times) == 50
    assert times == sorted(times)


def test_a_ramp_is_two_rates() -> None:
    assert parsed_ramp("1:8.5", 0.5) == Open(1.0, 8.5, 0.5)
    for words in ("1", "1:", "a:b", "0:3", "3:0", "-1:2"):
        with pytest.raises(LoadTestError, match="two rates above 0"):
            parsed_ramp(words)
