"""One live request of a worker, the link that it came by, and how requests ended."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Protocol

from worker.cache.boundaries import BoundaryEvent
from worker.errors import RequestFailed
from worker.programs.desk import Desk
from worker.stream import RequestStream
from worker.submission import Output, Usage
from worker.text.turns import Opening, TurnIds
from worker.timing import Timer, Timing


class Outlet(Protocol):
    """One link, as the service sees it. Nothing here blocks or raises."""

    def output(self, request_id: int, output: Output) -> None:
        """New tokens of a request."""

    def done(self, request_id: int, usage: Usage, timing: Timing) -> None:
        """A request's end."""

    def failed(self, request_id: int, error: RequestFailed, timing: Timing) -> None:
        """A request's other end."""

    def flush(self, events: list[BoundaryEvent]) -> None:
        """One engine step is over: send what has gathered."""


@dataclass(eq=False, slots=True)
class LiveRequest:
    """assigned: what it adds to assigned_tokens now. begun: in the engine's hands, or beyond.

    opening: what its answers go on from, where they can be remembered. desk, task: of a program.
    """

    outlet: Outlet
    request_id: int
    trace_id: str
    tenant: str
    timer: Timer
    assigned: int = 0
    begun: bool = False
    stream: RequestStream | None = None
    opening: Opening | None = None
    desk: Desk | None = None
    task: asyncio.Task[None] | None = None
    ended: bool = False
    _told: bool = False

    def telling(self, output: Output) -> Output:
        """The output; the first one behind its admission also tells what the cache gave."""
        stream = self.stream
        if self._told or stream is None or not stream.is_admitted:
            return output
        self._told = True
        told = stream.usage
        return replace(output, prompt_tokens=told.prompt_tokens, cached_tokens=told.cached_tokens)

    def admitted(self, sequence_id: int, cached_tokens: int, began: float) -> None:
        """One of its sequences has its pages, and its first step began then."""
        self.timer.admitted(began)
        if self.desk is not None:
            self.desk.admitted(sequence_id, cached_tokens)
        elif self.stream is not None:
            self.begun = True
            self.stream.admitted(sequence_id, cached_tokens)

    @property
    def live_sequences(self) -> list[int]:
        """Those that may still be in the engine."""
        if self.desk is not None:
            return self.desk.live
        return [] if self.stream is None else self.stream.unfinished_ids


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """max_waiting: sequences that may be in the engine beyond max_running."""

    max_running: int
    max_waiting: int


@dataclass(slots=True)
class Tallies:
    """Ends by kind, for metrics: accepted == done + all failed + live, always.

    turns: chats with an answer in them, by whose ids it has.
    """

    accepted: int = 0
    done: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    turns: Counter[TurnIds] = field(default_factory=Counter)

    def ended(self, kind: str) -> None:
        """A request ended: `done`, or by the name of what ended it."""
        if kind == "done":
            self.done += 1
        else:
            self.failed[kind] = self.failed.get(kind, 0) + 1
