"""Times functions in turns, so that a busy machine slows all alike."""

from __future__ import annotations

import time
from collections.abc import Callable

# OpenMP's threads spin for milliseconds when their work is done, on the cores of who comes next.
REST_S = 0.02
# Threads that slept need a while until all of them run at full speed.
TURN_S = 0.03


def contest(sides: list[Callable[[], object]], rounds: int = 7) -> list[float]:
    """Returns each side's best wall time in seconds. A side's turn is a rest, then calls."""
    found = [float("inf")] * len(sides)
    for _ in range(rounds):
        for side, function in enumerate(sides):
            time.sleep(REST_S)
            found[side] = min(found[side], _turn(function))
    return found


def _turn(function: Callable[[], object]) -> float:
    """Seconds of the best of its calls, for a while; the first does not count."""
    function()
    end, best_s = time.perf_counter() + TURN_S, float("inf")
    while best_s == float("inf") or time.perf_counter() < end:
        begin = time.perf_counter()
        function()
        best_s = min(best_s, time.perf_counter() - begin)
    return best_s


def best(function: Callable[[], object], rounds: int = 7) -> float:
    """Returns the function's best wall time in seconds."""
    return contest([function], rounds)[0]
