"""Sums over all tenants, for the page: what would take a pass over all series of the metrics.

A spread counts seconds in buckets that grow by a fifth each, so a percentile of it is within a
tenth of the true one where many were counted, and within a fifth of it where few were.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

_STEPS_PER_DOUBLING = 4
# From 0.1 ms to about seven minutes.
BOUNDS = tuple(0.0001 * 2 ** (step / _STEPS_PER_DOUBLING) for step in range(89))


class Spread:
    """How often something took how long. counts: one per bound, and one for all above."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)

    def add(self, seconds: float) -> None:
        """It took so long once more."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1


class Totals:
    """Only Telemetry and its records write here; each number only grows."""

    __slots__ = (
        "cached_tokens",
        "completion_tokens",
        "ended",
        "failed",
        "prompt_tokens",
        "tpot_s",
        "ttft_s",
    )

    def __init__(self) -> None:
        self.ended = self.failed = 0
        self.prompt_tokens = self.cached_tokens = self.completion_tokens = 0
        self.ttft_s = Spread()
        self.tpot_s = Spread()


def percentile(counts: Sequence[int], share: float) -> float | None:
    """The seconds below which the share of all lies; None: nothing was counted."""
    total = sum(counts)
    if not total:
        return None
    wanted, passed = share * total, 0
    for bucket, count in enumerate(counts):
        if count and passed + count >= wanted:
            inside = (wanted - passed) / count
            upper = min(bucket, len(BOUNDS) - 1)
            return BOUNDS[upper] * math.exp2((inside - 1) / _STEPS_PER_DOUBLING)
        passed += count
    return BOUNDS[-1]
