"""Times functions in turns, so that a busy machine slows all alike."""

from __future__ import annotations

import time
from collections.abc import Callable


def contest(sides: list[Callable[[], object]], rounds: int = 7) -> list[float]:
    """Returns each side's best wall time in seconds: one round to warm up, then in turns."""
    found = [float("inf")] * len(sides)
    for measured in (False, *[True] * rounds):
        for side, function in enumerate(sides):
            begin = time.perf_counter()
            function()
            if measured:
                found[side] = min(found[side], time.perf_counter() - begin)
    return found


def best(function: Callable[[], object], rounds: int = 7) -> float:
    """Returns the function's best wall time in seconds."""
    return contest([function], rounds)[0]
