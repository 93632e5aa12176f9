"""Keeps requests away from a worker that has no memory for them. Pure: the time is passed in.

    free ── it refuses one for want of memory ──▶ held for 1 s ──▶ one request may try
     ▲                                             ▲                  │           │
     │                                             └─ refused again: twice as long, up to 10 s
     └───────────────── it has a first output ────────────────────────┘

What it runs goes on. It refuses at once, so it looks idle: without the hold it would draw request
after request. It is not broken either, so nothing of this counts for its breaker, and it ends by
itself. A full queue is no want of memory and holds nothing: credit keeps requests from that.
After Envoy's outlier detection, whose ejections grow and end alike.
"""

from __future__ import annotations

_FIRST_S = 1.0
_MAX_S = 10.0


class Hold:
    """Stands for one worker, for as long as one link to it lasts. Only the fleet writes it."""

    __slots__ = ("_hold_s", "_is_tried", "_until")

    def __init__(self) -> None:
        self._hold_s = 0.0
        self._until = 0.0
        self._is_tried = False

    @property
    def is_on(self) -> bool:
        """Whether it refused one for want of memory and has not proved itself since."""
        return self._hold_s > 0

    def allows(self, now: float) -> bool:
        """Whether the worker may have one more request."""
        return not self._hold_s or now >= self._until

    def tried(self, now: float) -> None:
        """It was given one all the same; the next one waits for what becomes of it, or as long."""
        if self._hold_s:
            self._is_tried = True
            self._until = max(self._until, now + self._hold_s)

    def refused(self, now: float) -> None:
        """It had no memory for one. Several that were under way together count as one."""
        if self._hold_s and not self._is_tried and now < self._until:
            return
        self._hold_s = min(2 * self._hold_s, _MAX_S) or _FIRST_S
        self._until = now + self._hold_s
        self._is_tried = False

    def succeeded(self, now: float) -> None:
        """One had its first output; while it is held, of those from before, that proves nothing."""
        if self._is_tried or now >= self._until:
            self._hold_s = 0.0
            self._is_tried = False
