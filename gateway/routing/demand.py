"""How many prompts part at a boundary: what many go on from is worth having on many workers.

A conversation is gone on from once at each of its boundaries; a system prompt, again and again. To
compute one of those once more costs its tokens a single time, and pays for all who follow. So what
a worker lacks of it is weighed less the more prompts part there: by num_workers / count.

Counts halve in time and are bounded; what was longest without a prompt is forgotten.
"""

from __future__ import annotations

from itertools import islice

HALF_LIFE_S = 600.0
MAX_BOUNDARIES = 65_536


class Demand:
    """Prompts by the deepest boundary that any worker held of them. Times are seconds."""

    def __init__(self, max_boundaries: int = MAX_BOUNDARIES, half_life_s: float = HALF_LIFE_S):
        self._max_boundaries = max_boundaries
        self._half_life_s = half_life_s
        self._counts: dict[bytes, tuple[float, float]] = {}

    def __len__(self) -> int:
        """How many boundaries are counted."""
        return len(self._counts)

    def add(self, digest: bytes, now: float) -> None:
        """A prompt parts here from what is held."""
        count = self.count(digest, now) + 1
        self._counts.pop(digest, None)
        self._counts[digest] = (count, now)
        if len(self._counts) > self._max_boundaries:
            # Several at once: a dictionary finds its first entry slowly where many went before it.
            for oldest in list(islice(self._counts, 1 + self._max_boundaries // 64)):
                del self._counts[oldest]

    def count(self, digest: bytes, now: float) -> float:
        """How many lately did."""
        count, at = self._counts.get(digest, (0.0, now))
        return count if at == now else count * 2.0 ** ((at - now) / self._half_life_s)

    def share(self, digest: bytes, num_workers: int, now: float) -> float:
        """Of the tokens up to the boundary, how much a worker's lack of them counts."""
        count = self.count(digest, now)
        return 1.0 if count <= num_workers else num_workers / count
