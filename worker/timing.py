"""Where a request's time went in its worker: what is marked on its way, and told with its end.

    came ├─ prepare ─┤ prepared ├─ wait ─┤ admitted ├─ prefill ─┤ first token ├─ decode ─┤ ended

All times are of one clock of this process. Of several sequences, what comes first counts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds since the request came, in the order in which they happen; None: not come so far.

    num_preemptions: of all its sequences.
    """

    ended_s: float
    prepared_s: float | None = None
    admitted_s: float | None = None
    first_token_s: float | None = None
    num_preemptions: int = 0


@dataclass(slots=True)
class Timer:
    """One request's marks, each set once, on the asyncio side. came, now: seconds of the clock."""

    came: float
    _prepared: float | None = None
    _admitted: float | None = None
    _first_token: float | None = None
    _num_preemptions: int = 0

    def prepared(self, now: float) -> None:
        """A sequence goes to the engine."""
        if self._prepared is None:
            self._prepared = now - self.came

    def admitted(self, now: float) -> None:
        """A sequence's first step began then."""
        if self._admitted is None:
            self._admitted = now - self.came

    def token(self, now: float) -> None:
        """A token, or values, were there then."""
        if self._first_token is None:
            self._first_token = now - self.came

    def preempted(self) -> None:
        """A sequence gave its pages back."""
        self._num_preemptions += 1

    def read(self, now: float) -> Timing:
        """What is told of a request that ends now."""
        return Timing(
            now - self.came,
            self._prepared,
            self._admitted,
            self._first_token,
            self._num_preemptions,
        )
