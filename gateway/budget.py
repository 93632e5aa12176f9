"""How many retries a gateway allows itself, so that a failing fleet does not multiply its load."""

from __future__ import annotations

from collections.abc import Callable

from gateway.config import RetryConfig


class RetryBudget:
    """A bucket of retries: filled by every accepted request and by time, emptied by retries."""

    def __init__(self, config: RetryConfig, clock: Callable[[], float]):
        self._config = config
        self._clock = clock
        self._left = float(config.burst)
        self._filled_at = clock()

    def accepted(self) -> None:
        """A request was accepted."""
        self._fill(self._config.per_request)

    def take(self) -> bool:
        """Whether one more retry is allowed; it counts as made."""
        now = self._clock()
        self._fill((now - self._filled_at) * self._config.per_s)
        self._filled_at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def _fill(self, retries: float) -> None:
        self._left = min(float(self._config.burst), self._left + retries)
