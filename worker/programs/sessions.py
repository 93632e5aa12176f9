"""What is kept of programs for those that go on from them: text, ids and values, for a while."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from worker.errors import SessionLost
from worker.programs.run import State

MAX_SESSIONS = 1024


@dataclass(frozen=True, slots=True)
class KeptState:
    """A state, and for how long it is kept each time."""

    state: State
    ttl_s: float


@dataclass(frozen=True, slots=True)
class _Kept:
    it: KeptState
    namespace: bytes
    until: float


class Sessions:
    """States by id, each in its tenant's namespace.

    Beyond `most`, the longest unused one of the namespace that has most of them gives way.

    Their pages are pinned by the engine, as far as there is room; others are computed again.
    """

    def __init__(self, clock: Callable[[], float], most: int = MAX_SESSIONS) -> None:
        self._clock = clock
        self._most = most
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, id_: str, namespace: bytes) -> KeptState:
        """Returns a session's state, which is not kept any more. Raises SessionLost."""
        self._expire()
        kept = self._kept.get(id_)
        if kept is None or kept.namespace != namespace:
            raise SessionLost
        del self._kept[id_]
        return kept.it

    def keep(self, id_: str, namespace: bytes, it: KeptState) -> None:
        """Keeps a state for so long from now."""
        self._expire()
        self._kept.pop(id_, None)
        self._kept[id_] = _Kept(it, namespace, self._clock() + it.ttl_s)
        while len(self._kept) > self._most:
            del self._kept[self._least_due()]

    def _least_due(self) -> str:
        """The longest unused session of whoever keeps most: nobody's flood ends another's."""
        counts = Counter(kept.namespace for kept in self._kept.values())
        most = max(counts.values())
        return next(id_ for id_, kept in self._kept.items() if counts[kept.namespace] == most)

    def _expire(self) -> None:
        now = self._clock()
        for id_ in [id_ for id_, kept in self._kept.items() if kept.until <= now]:
            del self._kept[id_]
