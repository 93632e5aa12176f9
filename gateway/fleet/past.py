"""What is remembered of workers that left: how they failed, and which models they served."""

from __future__ import annotations

from collections import OrderedDict

from gateway.config import BreakerConfig
from gateway.fleet.breaker import Breaker

# Names, of pods say, come and go for ever.
_MAX_NAMES = 4096
# A model that nobody served for so long is unknown.
_FORGET_MODEL_S = 600.0


class Past:
    """Times are seconds of one clock. grace_s: how long a lone worker's return is waited for."""

    def __init__(self, config: BreakerConfig, grace_s: float):
        self._config = config
        self._grace_s = grace_s
        self._breakers: OrderedDict[str, tuple[str, Breaker]] = OrderedDict()
        self._left_at: dict[str, float] = {}

    def breaker_of(self, name: str, incarnation: str) -> Breaker:
        """The breaker of a worker that joins; it begins closed for a new process."""
        before, breaker = self._breakers.pop(name, ("", None))
        if breaker is None:
            breaker = Breaker(self._config)
        elif before != incarnation:
            breaker.reset()
        self._breakers[name] = incarnation, breaker
        if len(self._breakers) > _MAX_NAMES:
            self._breakers.popitem(last=False)
        return breaker

    def served(self, model: str) -> None:
        """A worker serves the model."""
        self._left_at.pop(model, None)

    def unserved(self, model: str, now: float) -> None:
        """Its last worker takes nothing any more, or left then."""
        self._left_at[model] = now

    def knows(self, model: str, now: float) -> bool:
        """Whether the model was served not long ago."""
        left_at = self._left_at.get(model)
        if left_at is None:
            return False
        if now - left_at < _FORGET_MODEL_S:
            return True
        del self._left_at[model]
        return False

    def may_return(self, model: str, now: float) -> bool:
        """Whether the last worker left so lately that another one is waited for."""
        left_at = self._left_at.get(model)
        return left_at is not None and now - left_at < self._grace_s
