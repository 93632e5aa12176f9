"""What every worker was lately given to compute: tokens, of which half are forgotten in a while.

Our own count when they are sent, other gateways' when the worker tells that it computed them.

Queues alone leave work uneven: a worker with long conversations is seldom queued and always busy.
One mean for the fleet tells who did more than his share. Who joins counts as having done the mean,
so that a newcomer isn't flooded to make up for what was before.
"""

from __future__ import annotations

# The weights of new work grow with time in place of all old work shrinking; up to here.
_MAX_WEIGHT = 2.0**32


class Work:
    """Tokens by worker name. Times are seconds of one clock that only goes forward."""

    def __init__(self, half_life_s: float):
        self._half_life_s = half_life_s
        self._began: float | None = None
        self._by_name: dict[str, float] = {}
        self._sum = 0.0

    def follow(self, names: frozenset[str]) -> None:
        """Exactly these workers are counted; those who are new begin with the mean."""
        kept = {name: tokens for name, tokens in self._by_name.items() if name in names}
        mean = sum(kept.values()) / len(kept) if kept else 0.0
        self._by_name = {name: kept.get(name, mean) for name in names}
        self._sum = sum(self._by_name.values())

    def add(self, name: str, tokens: int, now: float) -> None:
        """A worker was assigned so many tokens."""
        if name in self._by_name:
            weighed = tokens * self._weight(now)
            self._by_name[name] += weighed
            self._sum += weighed

    def at(self, now: float) -> Reading:
        """How it stands now; good until the next `add`."""
        weight = self._weight(now)
        mean = self._sum / len(self._by_name) if self._by_name else 0.0
        return Reading(self._by_name, mean, weight)

    def _weight(self, now: float) -> float:
        """How much a token of now weighs against one of the beginning."""
        if self._began is None:
            self._began = now
        weight: float = 2.0 ** ((now - self._began) / self._half_life_s)
        if weight <= _MAX_WEIGHT:
            return weight
        self._began = now
        self._by_name = {name: tokens / weight for name, tokens in self._by_name.items()}
        self._sum /= weight
        return 1.0


class Reading:
    """Work as of one moment."""

    __slots__ = ("_by_name", "_mean", "_weight")

    def __init__(self, by_name: dict[str, float], mean: float, weight: float):
        self._by_name = by_name
        self._mean = mean
        self._weight = weight

    def total(self, name: str) -> float:
        """Tokens that the worker was lately assigned."""
        return self._by_name.get(name, 0.0) / self._weight

    @property
    def mean(self) -> float:
        """Tokens that a worker of the fleet was lately assigned, on the average."""
        return self._mean / self._weight

    def excess(self, name: str) -> float:
        """How much that is beyond the mean; below it: 0."""
        beyond = self._by_name.get(name, 0.0) - self._mean
        return beyond / self._weight if beyond > 0 else 0.0


class Account:
    """What other gateways had one worker compute: what it tells, less what was before and ours."""

    __slots__ = ("_before", "_others")

    def __init__(self) -> None:
        self._before: int | None = None
        self._others = 0

    def grown(self, computed_tokens: int, own_tokens: int) -> int:
        """How much it is more than last time.

        computed_tokens: since the worker's start, as it tells. own_tokens: that we ever sent it;
        they are counted before they are computed, so the difference lags, and never goes back.
        """
        if self._before is None:
            if not computed_tokens:
                return 0
            self._before = max(computed_tokens - own_tokens, 0)
        others = computed_tokens - self._before - own_tokens
        grown = max(others - self._others, 0)
        self._others += grown
        return grown
