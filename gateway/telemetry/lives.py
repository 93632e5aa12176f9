"""The last requests that ended: their steps and times, where they went, and why. Bounded.

Nothing of a prompt is kept but the digests of its first boundaries and whose part lies in front of
each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from msgspec import Struct

from gateway.timing import Timing

MAX_LIVES = 1000
# Boundaries of a prompt that are kept.
MAX_DEPTH = 32


class Says(Protocol):
    """What was found of a prompt."""

    def header(self) -> str:
        """It in one line."""
        ...


class Sent(Struct, frozen=True, gc=False):
    """A request went to a worker. at: seconds of telemetry's clock.

    span_id: of its time there, where it is traced. over: when the worker's end of it came; None: it
    was taken back. timing: what the worker told with that, if it told any.
    """

    at: float
    worker: str
    span_id: int = 0
    over: float | None = None
    timing: Timing | None = None


class Beginning(Struct, frozen=True, gc=False):
    """How a prompt begins: digests of its first boundaries, and the roles in front of them."""

    digests: tuple[bytes, ...] = ()
    roles: tuple[str, ...] = ()


class Life(Struct, frozen=True, kw_only=True, gc=False):
    """One request from its acceptance to its end. Times are seconds of telemetry's clock.

    sent: to a worker, and to others behind it. explanation: why to the last one. finding: why its
    prompt came from a cache or did not. num_parts: prompts in it; the others' steps are not told.
    """

    request_id: str
    tenant: str
    model: str
    route: str
    began: float
    ended: float
    status: int
    outcome: str
    sent: tuple[Sent, ...] = ()
    first_output: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    explanation: str = ""
    finding: Says | None = None
    num_parts: int = 1
    beginning: Beginning = Beginning()


class Lives:
    """Runs write here when they end; the oldest are forgotten."""

    def __init__(self, limit: int = MAX_LIVES) -> None:
        self._lives: deque[Life] = deque(maxlen=limit)

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._lives)

    def __iter__(self) -> Iterator[Life]:
        """The newest first."""
        return reversed(self._lives)

    def add(self, life: Life) -> None:
        """A request ended."""
        self._lives.append(life)

    def find(self, request_id: str) -> Life | None:
        """The newest one of this id."""
        return next((life for life in self if life.request_id == request_id), None)
