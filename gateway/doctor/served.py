"""A prompt that was seen and did not come from a cache: where it went. Pure.

What the fleet knows is asked through `Fleetwide`; an analysis of a log answers for an ideal cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.doctor.finding import Reason
from gateway.fleet.departures import Departure


class Fleetwide(Protocol):
    """What is known of the workers' caches."""

    def incarnation(self, worker: str) -> str | None:
        """Which process of that name lives; None: none does."""
        ...

    def holds(self, worker: str, digest: bytes) -> bool:
        """Whether the worker is known to hold the boundary now."""
        ...

    def num_tokens(self, worker: str, digest: bytes) -> int | None:
        """Prompt tokens up to a boundary, as the worker told."""
        ...

    def departure(self, worker: str, digest: bytes) -> Departure | None:
        """When the boundary left the worker's cache last, if that is remembered."""
        ...


# A prompt without an output for so long was given up, and brings nothing.
MAX_COMPUTING_S = 120.0


@dataclass(frozen=True, slots=True)
class Served:
    """A prompt's first output. route: why it went to that worker. has_cache: whether it has one."""

    prompt_tokens: int
    cached_tokens: int
    worker: str = ""
    incarnation: str = ""
    route: str = ""
    has_cache: bool = True


@dataclass(frozen=True, slots=True)
class Seen:
    """Who had the beginning last, and when. computed_at: of its last output; None: it had none."""

    worker: str
    incarnation: str
    at: float
    computed_at: float | None


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Why what was seen did not come from a cache. age_s: since it left, else since it was seen."""

    reason: Reason
    detail: str = ""
    age_s: float = 0.0


def whereabouts(
    seen: Seen, digests: Sequence[bytes], served: Served, fleet: Fleetwide, now: float
) -> Whereabouts:
    """Where a beginning is that did not come from the cache. digests: its boundaries, in order."""
    age_s = now - seen.at
    lives = fleet.incarnation(seen.worker) if seen.worker else seen.incarnation
    moved = seen.worker and seen.worker != served.worker
    if lives != seen.incarnation:
        detail = "has_left" if lives is None else "began_anew"
        return Whereabouts(Reason.RESTARTED, detail, age_s)
    if moved and fleet.holds(seen.worker, digests[-1]):
        return Whereabouts(Reason.OTHER_WORKER, served.route, age_s)
    # Who asked since then brought it back only with an output.
    since = seen.at if seen.computed_at is None else seen.computed_at
    left = _departure((seen.worker, served.worker), since, digests, fleet)
    if left is not None:
        detail = "by_another" if left.by_another else "by_own"
        return Whereabouts(Reason.EVICTED, detail, now - left.at)
    if seen.computed_at is not None:
        reason = Reason.OTHER_WORKER if moved else Reason.UNEXPLAINED
        return Whereabouts(reason, served.route if moved else "", age_s)
    if age_s > MAX_COMPUTING_S:
        return Whereabouts(Reason.NEVER_SEEN, "never_computed", age_s)
    return Whereabouts(Reason.STILL_COMPUTING, age_s=age_s)


def _departure(
    workers: Sequence[str], since: float, digests: Sequence[bytes], fleet: Fleetwide
) -> Departure | None:
    """The departure of the deepest boundary that left one of the workers since."""
    for worker in dict.fromkeys(workers):
        for digest in reversed(digests):
            left = fleet.departure(worker, digest)
            if left is not None and left.at >= since:
                return left
    return None
