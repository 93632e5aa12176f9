"""The slice of a worker that has just come: some of what no cache decides, never the flood.

A newcomer is idle, holds nothing and has done least, so every rule would send it everything that
is new. For its first seconds it gets at most a share of that: with 0.25, one of four starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gateway.fleet.workers import Worker


class _Slice:
    """What a young worker was given, of the starts since it came."""

    __slots__ = ("given", "seen")

    def __init__(self) -> None:
        self.seen = 0
        self.given = 0


class WarmUp:
    """Counts starts while somebody is young. A fleet of newcomers alone is not held back."""

    def __init__(self, young_s: float, share: float):
        self._young_s = young_s
        self._share = share
        self._slices: dict[Worker, _Slice] = {}
        self._num_workers = 0

    def follow(self, workers: Iterable[Worker], now: float) -> None:
        """Exactly these workers serve now."""
        workers = list(workers)
        self._num_workers = len(workers)
        self._slices = {
            worker: self._slices.get(worker) or _Slice()
            for worker in workers
            if self._is_young(worker, now)
        }

    def gate(self, now: float) -> Callable[[Worker], bool]:
        """Tells of a worker whether it may have one more start now."""
        if not self._slices:
            return _anybody
        for worker in [one for one in self._slices if not self._is_young(one, now)]:
            del self._slices[worker]
        return self._may if len(self._slices) < self._num_workers else _anybody

    def started(self, worker: Worker) -> None:
        """The worker was given a request that no cache decided."""
        for young, part in self._slices.items():
            part.seen += 1
            part.given += young is worker

    def _may(self, worker: Worker) -> bool:
        part = self._slices.get(worker)
        return part is None or part.given + 1 <= self._share * (part.seen + 1)

    def _is_young(self, worker: Worker, now: float) -> bool:
        return now - worker.joined_at < self._young_s


def _anybody(_: Worker) -> bool:
    return True
