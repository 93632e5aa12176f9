"""Keeps requests away from a worker that fails one after the other. Pure: the time is passed in.

    closed ── `failures` in a row ──▶ open for open_s ──▶ half open: one request, and one more
       ▲                                ▲                 for each success
       │                                │                     │            │
       └──────── `successes` in a row ──┼─────────────────────┘            │
                                        └───── a failure: twice as long ───┘

A link that broke is one failure, as is a step that could not be computed; a first output is a
success.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.config import BreakerConfig


@dataclass(slots=True)
class Breaker:
    """Stands for one worker's name, through all its links; a new process of it begins closed."""

    config: BreakerConfig
    _num_failures: int = 0
    _num_successes: int = 0
    _open_until: float | None = None
    _open_s: float = field(default=0.0)

    @property
    def state(self) -> str:
        """`closed`, or not: `open` (half open included)."""
        return "closed" if self._open_until is None else "open"

    def allows(self, now: float, in_flight: int) -> bool:
        """Whether the worker may have one more request; in_flight: how many it has."""
        if self._open_until is None:
            return True
        return now >= self._open_until and in_flight <= self._num_successes

    def succeeded(self) -> None:
        """A request of the worker had its first output."""
        self._num_failures = 0
        if self._open_until is None:
            return
        self._num_successes += 1
        if self._num_successes >= self.config.successes:
            self.reset()

    def failed(self, now: float) -> None:
        """The link broke, or a request ended by the worker's fault."""
        self._num_successes = 0
        self._num_failures += 1
        if self._open_until is not None and now >= self._open_until:
            self._trip(now, min(2 * self._open_s, self.config.max_open_s))
        elif self._open_until is None and self._num_failures >= self.config.failures:
            self._trip(now, self.config.open_s)

    def reset(self) -> None:
        """It is another process now, or has proved itself."""
        self._num_failures = self._num_successes = 0
        self._open_until = None

    def _trip(self, now: float, open_s: float) -> None:
        self._open_s = open_s
        self._open_until = now + open_s
