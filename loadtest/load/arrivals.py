"""When conversations begin: an open loop draws times, a closed loop keeps so many under way.

The times of an open loop come from gaps of mean 1 (gamma; with burstiness 1 exponential, that is
Poisson arrivals), bent so that the rate goes evenly from its first to its last value.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from loadtest.errors import LoadTestError


@dataclass(frozen=True, slots=True)
class Open:
    """rate: conversations begun per second; rate_end: at the end of a ramp.

    burstiness: the gamma distribution's shape, as in vLLM: 1 is Poisson, below 1 comes in bursts,
    above 1 is more even.
    """

    rate: float
    rate_end: float | None = None
    burstiness: float = 1.0


@dataclass(frozen=True, slots=True)
class Closed:
    """So many conversations at a time: the next one begins when one ends."""

    concurrency: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """As recorded, so many times as fast."""

    speed: float = 1.0


Arrival: TypeAlias = Open | Closed | Replayed


def starts(arrival: Open, count: int, rng: random.Random) -> list[float]:
    """Returns when each of so many conversations begins, in seconds, in order."""
    shape = arrival.burstiness
    sums = accumulate(rng.gammavariate(shape, 1 / shape) for _ in range(count))
    end = arrival.rate if arrival.rate_end is None else arrival.rate_end
    # So long does it take until `count` are expected.
    length = 2 * count / (arrival.rate + end)
    slope = (end - arrival.rate) / length
    return [_when(expected, arrival.rate, slope) for expected in sums]


def _when(expected: float, rate: float, slope: float) -> float:
    """Solves rate * t + slope * t ** 2 / 2 = expected for the earliest t.

    Behind the end of a falling ramp the last rate that still rises counts on.
    """
    under_root = rate * rate + 2 * slope * expected
    if under_root <= 0:
        peak = -rate / slope
        return peak + (expected - rate * peak / 2) / (rate / 2)
    return 2 * expected / (rate + math.sqrt(under_root))


def parsed_ramp(words: str, burstiness: float = 1.0) -> Open:
    """Returns the ramp that `FROM:TO` names. Raises LoadTestError."""
    first, found, last = words.partition(":")
    try:
        ramp = Open(float(first), float(last), burstiness)
    except ValueError:
        ramp = None
    if not found or ramp is None or not (ramp.rate > 0 and (ramp.rate_end or 0) > 0):
        raise LoadTestError(f"--ramp {words}: FROM:TO, two rates above 0, as 1:8")
    return ramp
