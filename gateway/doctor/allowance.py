"""How many prompts may be examined: so many a second, and as many at once. Time is a parameter."""

from __future__ import annotations


class Allowance:
    """num_taken, num_refused: since the start."""

    def __init__(self, per_s: float):
        self._per_s = per_s
        self._left = max(per_s, 1.0) if per_s else 0.0
        self._at: float | None = None
        self.num_taken = 0
        self.num_refused = 0

    def take(self, now: float) -> bool:
        """Whether one more may be examined now."""
        if self._at is not None:
            most = max(self._per_s, 1.0)
            self._left = min(self._left + (now - self._at) * self._per_s, most)
        self._at = now
        if self._left < 1.0:
            self.num_refused += 1
            return False
        self._left -= 1.0
        self.num_taken += 1
        return True
