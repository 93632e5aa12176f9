"""Which of the gateway's prefix boundaries are in the cache, told as a numbered list of events.

A boundary (a digest made by the gateway, and a number of tokens) is tied to the last whole page
that it covers. It is stored when that page becomes matchable and evicted with it.
"""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass

MAX_TAGS_PER_PAGE = 64


class EventKind(enum.Enum):
    """What happened to a boundary."""

    STORED = "stored"
    EVICTED = "evicted"
    CLEARED = "cleared"


@dataclass(frozen=True, slots=True)
class BoundaryEvent:
    """One change; sequence numbers count from 1 without gaps.

    by_another: of what was evicted, whether another account's need took it.
    """

    sequence: int
    kind: EventKind
    digest: bytes = b""
    num_tokens: int = 0
    by_another: bool = False


class BoundaryTags:
    """Boundaries by page, and the events since the last `take_events`.

    The engine's thread writes; a snapshot may be taken from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.sequence = 0
        self._by_page: dict[int, dict[bytes, int]] = {}
        self._page_of: dict[bytes, int] = {}
        self._events: list[BoundaryEvent] = []

    def store(self, page: int, digest: bytes, num_tokens: int) -> None:
        """Ties a boundary to a page; the same digest elsewhere moves here."""
        known = self._page_of.get(digest)
        if known == page:
            return
        with self._lock:
            tags = self._by_page.setdefault(page, {})
            if len(tags) >= MAX_TAGS_PER_PAGE:
                return
            if known is not None:
                self._by_page[known].pop(digest)
            tags[digest] = num_tokens
            self._page_of[digest] = page
            self._emit(EventKind.STORED, digest, num_tokens)

    def evict(self, page: int, *, by_another: bool = False) -> None:
        """Forgets the boundaries of a page; by_another: for another account's need."""
        if page not in self._by_page:
            return
        with self._lock:
            for digest, num_tokens in self._by_page.pop(page).items():
                del self._page_of[digest]
                self._emit(EventKind.EVICTED, digest, num_tokens, by_another=by_another)

    def clear(self) -> None:
        """Forgets all boundaries."""
        with self._lock:
            self._by_page.clear()
            self._page_of.clear()
            self._emit(EventKind.CLEARED, b"", 0)

    def take_events(self) -> list[BoundaryEvent]:
        """Returns the events since the last call, in order."""
        events, self._events = self._events, []
        return events

    def snapshot(self) -> tuple[list[BoundaryEvent], int]:
        """Returns every boundary in the cache as a stored event, and the last event's number."""
        with self._lock:
            stored = [
                BoundaryEvent(self.sequence, EventKind.STORED, digest, num_tokens)
                for tags in self._by_page.values()
                for digest, num_tokens in tags.items()
            ]
            return stored, self.sequence

    def _emit(
        self, kind: EventKind, digest: bytes, num_tokens: int, *, by_another: bool = False
    ) -> None:
        self.sequence += 1
        self._events.append(BoundaryEvent(self.sequence, kind, digest, num_tokens, by_another))
