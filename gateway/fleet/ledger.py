"""A worker's cache events by number: each is applied once and in order, or a snapshot is due.

    last = 7    step(sequence 9, 2 events)   events 8, 9    in order: applied, last = 9
                step(sequence 9, 3 events)   7, 8, 9        7 is known: 8 and 9 are applied
                step(sequence 7, 1 event)    7              a duplicate: nothing happens
                step(sequence 9, 1 event)    9              8 is missing: lost until a snapshot

The view then equals the worker's truth, whatever was dropped, repeated or came late.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gateway.fleet.view import View

# A resync that is not answered for so many steps is asked for again.
ASK_AGAIN_AFTER = 64


class Change(enum.Enum):
    """What a cache event says."""

    STORED = "stored"
    EVICTED = "evicted"
    CLEARED = "cleared"


@dataclass(frozen=True, slots=True)
class CacheEvent:
    """One change of a worker's cache; digest is empty where all is gone.

    by_another: of what was evicted, whether another account needed the room.
    """

    change: Change
    digest: bytes = b""
    num_tokens: int = 0
    by_another: bool = False


class Ledger:
    """Writes a view by numbered events. One per link, like the view."""

    def __init__(self, view: View):
        self._view = view
        self._last = 0
        self._num_passed = 0

    def open(self, sequence: int, snapshot: Iterable[tuple[bytes, int]]) -> None:
        """Take a snapshot as of event `sequence`: the hello's, or the answer to a resync.

        One that is older than what is known changes nothing, unless events are missing since.
        """
        if sequence < self._last and not self._view.is_lost:
            return
        self._view.replace(snapshot)
        self._last = sequence

    def take(self, sequence: int, events: Sequence[CacheEvent]) -> bool:
        """Apply a step's events, of which `sequence` is the last one; False: a resync is due.

        While a snapshot is waited for, events are passed over. The first ones of a worker that
        was silent show that what was guessed of it may be wrong.
        """
        if self._view.is_lost:
            self._num_passed += 1
            return self._num_passed % ASK_AGAIN_AFTER != 0
        before = sequence - len(events)
        if before > self._last or (events and self._view.is_silent):
            self._view.is_lost, self._num_passed = True, 0
            return False
        for event in events[max(self._last - before, 0) :]:
            self._apply(event)
        self._last = max(self._last, sequence)
        return True

    def _apply(self, event: CacheEvent) -> None:
        if event.change is Change.STORED:
            self._view.store(event.digest, event.num_tokens)
        elif event.change is Change.EVICTED:
            self._view.evict(event.digest)
        else:
            self._view.clear()
