"""First come, first served: the plain order that others are compared with."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator

from worker.order.interface import Frontier
from worker.sequence import Sequence


class FirstCome:
    """By arrival alone; nobody passes anybody."""

    name = "first_come"
    tracks = False

    def __init__(self) -> None:
        self._waiting: list[Sequence] = []

    def add(self, sequence: Sequence, now: int) -> None:  # noqa: ARG002
        """Takes in a sequence at its place by arrival."""
        insort(self._waiting, sequence, key=_arrival)

    def remove(self, sequence: Sequence) -> None:
        """Forgets a waiting sequence."""
        self._waiting.remove(sequence)

    def begin(self, now: int) -> None:
        """Nothing changes with time."""

    def head(self) -> Sequence | None:
        """Returns the one that came first."""
        return self._waiting[0] if self._waiting else None

    def short_head(self) -> Sequence | None:
        """Nobody passes."""
        return None

    def goes_before(self, one: Sequence, other: Sequence) -> bool:
        """Whether it came earlier."""
        return one.spec.id < other.spec.id

    def charge(self, sequence: Sequence, num_tokens: int) -> None:
        """Nobody is charged."""

    def computes(self, sequence: Sequence, frontier: Frontier | None) -> None:
        """Nobody waits for it."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._waiting)


def _arrival(sequence: Sequence) -> int:
    return sequence.spec.id
