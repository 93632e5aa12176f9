"""The hits of a least-recently-used prefix cache of every size at once, in one pass.

A cache that gives up what was used longest ago, and of one prompt the end before the beginning,
holds at each moment the first C units of one list, whatever C is:

    newest request, from its beginning to its end │ what only the one before used │ ...

So a unit is a hit exactly where its place in that list is at most C (Mattson et al., 1970; the
list's pieces are whole stretches here). More room never loses a hit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from loadtest.analysis.tree import Stretch


@dataclass(frozen=True, slots=True)
class Curve:
    """Hits by size: straight between `places`, where its slope changes. Units."""

    places: tuple[int, ...]
    hits: tuple[int, ...]
    slopes: tuple[int, ...]

    def at(self, size: int) -> int:
        """Units that come from a cache of that size."""
        number = bisect_right(self.places, size) - 1
        if number < 0:
            return 0
        return self.hits[number] + self.slopes[number] * (size - self.places[number])

    @property
    def most(self) -> int:
        """Units that come from a cache that never gives anything up."""
        return self.hits[-1] if self.hits else 0

    def size_for(self, share: float) -> int:
        """The least size with that share of the hits of an unlimited cache."""
        wanted = share * self.most
        for place, hits, slope in zip(self.places, self.hits, self.slopes, strict=True):
            if hits >= wanted:
                return place
            if slope and hits + slope * (self._next(place) - place) >= wanted:
                return place + -int((hits - wanted) // slope)
        return self.places[-1] if self.places else 0

    def _next(self, place: int) -> int:
        number = bisect_right(self.places, place)
        return self.places[number] if number < len(self.places) else place


class Recency:
    """Requests go by. page: units that are held or given up together; 1: each by itself."""

    def __init__(self, page: int, max_requests: int):
        self._page = page
        # What only request t used last: from there to its end, in pages.
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._sums = _Sums(max_requests)
        self._changes: dict[int, int] = {}

    def add(self, stretches: Sequence[Stretch], length: int, usable: int) -> int:
        """One more request; returns its units that an unlimited cache has.

        usable: how many of its units may come from a cache at all.
        """
        limit, hits = usable // self._page, 0
        before = [
            Stretch(one.last, one.begin // self._page, one.end // self._page) for one in stretches
        ]
        for one in before:
            newer = self._sums.total - self._sums.up_to(one.last)
            counted = min(one.end, limit) - one.begin
            if counted > 0:
                self._changes[newer] = self._changes.get(newer, 0) + 1
                end = newer + counted
                self._changes[end] = self._changes.get(end, 0) - 1
                hits += counted
        for one in before:
            assert self._begins[one.last] == one.begin, "it is used from its beginning on"
            self._sums.add(one.last, one.begin - one.end)
            self._begins[one.last] = one.end
        self._begins.append(0)
        self._ends.append(length // self._page)
        self._sums.add(len(self._ends) - 1, self._ends[-1])
        return hits * self._page

    def curve(self) -> Curve:
        """The hits by size, of all requests so far."""
        places = sorted(place for place, change in self._changes.items() if change)
        slopes = list(accumulate(self._changes[place] for place in places))
        rises = (
            slope * (end - begin)
            for slope, begin, end in zip(slopes, places, places[1:], strict=False)
        )
        hits = list(accumulate(rises, initial=0)) if places else []
        page = self._page
        return Curve(
            tuple(place * page for place in places),
            tuple(one * page for one in hits),
            tuple(slopes),
        )


class _Sums:
    """Numbers by place, and their sum up to a place (Fenwick, 1994)."""

    def __init__(self, size: int):
        self._tree = [0] * (size + 1)
        self.total = 0

    def add(self, place: int, amount: int) -> None:
        self.total += amount
        place += 1
        while place < len(self._tree):
            self._tree[place] += amount
            place += place & -place

    def up_to(self, place: int) -> int:
        """Of all places to this one."""
        place, found = place + 1, 0
        while place:
            found += self._tree[place]
            place -= place & -place
        return found
