"""Finds stop strings in text that arrives in pieces (step 11 of a request's path).

What leaves is what a search of the whole text would keep: everything before the earliest match,
of several matches there the longest. Only the longest suffix that could still begin a stop string
is held back:

    stops ("END", "\\n\\n"), pushed "a EN" ->  released "a "        held "EN"
                            pushed "D b"  ->  released ""          stopped by "END"
"""

from __future__ import annotations

from dataclasses import dataclass

from worker.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Released:
    """Text that may leave, and the stop string that ended it (then nothing more may)."""

    text: str
    stop: str | None = None


class StopMatcher:
    """One sequence's stop strings. `include`: the stop string is part of the text."""

    def __init__(self, stops: tuple[str, ...], include: bool) -> None:
        if not all(stops):
            raise InvalidRequest("stop", "A stop string must not be empty.")
        # The longest first, so that the first one that matches somewhere is the longest there.
        self._stops = tuple(sorted(set(stops), key=len, reverse=True))
        self._include = include
        self._longest = len(self._stops[0]) if self._stops else 0
        self._held = ""
        self._stopped = False

    def push(self, text: str) -> Released:
        """Returns what `text` sets free. After a stop: nothing, whatever is pushed."""
        if self._stopped:
            return Released("")
        if not self._stops:
            return Released(text)
        held = self._held + text
        match = self._match(held)
        begin = self._possible_begin(held)
        if match is not None and match < begin:
            return self._stop(held, match)
        self._held = held[begin:]
        return Released(held[:begin])

    def flush(self) -> Released:
        """Returns what was held back, now that nothing follows."""
        if self._stopped:
            return Released("")
        held, self._held = self._held, ""
        match = self._match(held)
        return Released(held) if match is None else self._stop(held, match)

    def _match(self, held: str) -> int | None:
        """The earliest position where a stop string stands whole."""
        found = [place for stop in self._stops if (place := held.find(stop)) >= 0]
        return min(found, default=None)

    def _possible_begin(self, held: str) -> int:
        """The earliest position from which all that's left could grow into a stop string."""
        for begin in range(max(0, len(held) - self._longest + 1), len(held)):
            tail = held[begin:]
            if any(len(stop) > len(tail) and stop.startswith(tail) for stop in self._stops):
                return begin
        return len(held)

    def _stop(self, held: str, match: int) -> Released:
        stop = next(stop for stop in self._stops if held.startswith(stop, match))
        self._held = ""
        self._stopped = True
        end = match + len(stop) if self._include else match
        return Released(held[:end], stop)
