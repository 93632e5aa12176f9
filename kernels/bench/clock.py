"""Times two functions in turns, so that a busy machine slows both alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Duel:
    """Best wall times of both sides, in seconds."""

    ours_s: float
    theirs_s: float

    @property
    def ratio(self) -> float:
        """How many times faster ours is."""
        return self.theirs_s / self.ours_s


def duel(ours: Callable[[], object], theirs: Callable[[], object], rounds: int = 7) -> Duel:
    """Runs both once to warm up, then in turns, and keeps each one's best time."""
    best = [float("inf"), float("inf")]
    for measured in (False, *[True] * rounds):
        for side, function in enumerate((ours, theirs)):
            begin = time.perf_counter()
            function()
            if measured:
                best[side] = min(best[side], time.perf_counter() - begin)
    return Duel(*best)
