"""What left the workers' caches lately: which boundary, when, and for whose need. Bounded.

Sessions write it with every EVICTED event; who asks why a prompt was computed again reads it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

MAX_DEPARTURES = 50_000


@dataclass(frozen=True, slots=True)
class Departure:
    """at: seconds of the writer's clock. by_another: for the need of another account."""

    at: float
    by_another: bool


class Departures:
    """The last ones, by worker and boundary. limit 0: nothing is kept."""

    def __init__(self, limit: int = MAX_DEPARTURES):
        self._limit = limit
        self._kept: OrderedDict[tuple[str, bytes], Departure] = OrderedDict()

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._kept)

    def note(self, worker: str, digest: bytes, departure: Departure) -> None:
        """The boundary is not in the worker's cache any more."""
        key = (worker, digest)
        self._kept[key] = departure
        self._kept.move_to_end(key)
        if len(self._kept) > self._limit:
            self._kept.popitem(last=False)

    def last(self, worker: str, digest: bytes) -> Departure | None:
        """When the boundary left the worker's cache last."""
        return self._kept.get((worker, digest))
