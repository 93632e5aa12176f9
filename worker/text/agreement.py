"""How far two texts, or two runs of token ids, agree."""

from __future__ import annotations

from collections.abc import Sequence


def common_length(first: Sequence[object], second: Sequence[object]) -> int:
    """How many leading members are the same: found by halves, each compared at once."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
