"""The series that carry a worker's name: kept for a while after it was given up, and then not.

Names and addresses of pods come and go for ever. What they counted must be read once more, and may
then be forgotten; a worker that comes back later begins at zero, as a process does.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from prometheus_client import Counter, Gauge

# Long enough for whoever reads the metrics to see the last values.
_KEEP_S = 600.0
_MAX_GONE = 1024


class WorkerSeries:
    """Forgets series by their label `worker`. clock: seconds that only go forward."""

    def __init__(self, metrics: Iterable[Counter | Gauge], clock: Callable[[], float]):
        self._metrics = tuple(metrics)
        self._clock = clock
        self._standing: set[str] = set()
        self._gone: OrderedDict[str, float] = OrderedDict()

    def expected(self, name: str) -> None:
        """Somebody looks for the worker again."""
        self._gone.pop(name, None)

    def stands(self, name: str, stands: bool) -> None:
        """Its link stands from now on, or does not; its series are kept either way."""
        if stands:
            self.expected(name)
            self._standing.add(name)
        else:
            self._standing.discard(name)

    def given_up(self, name: str) -> None:
        """Nobody looks for it any more, unless another link to it stands."""
        if name and name not in self._standing:
            self._gone.setdefault(name, self._clock())

    def prune(self) -> bool:
        """What was given up long ago is forgotten; whether anything was."""
        latest, pruned = self._clock() - _KEEP_S, False
        while self._gone:
            name, since = next(iter(self._gone.items()))
            if since > latest and len(self._gone) <= _MAX_GONE:
                break
            del self._gone[name]
            for metric in self._metrics:
                metric.remove_by_labels({"worker": name})
            pruned = True
        return pruned
