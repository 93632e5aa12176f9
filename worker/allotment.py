"""Pages for sequences, between scheduler and cache (steps 8 and 9 of a request's path).

    admit -> (grow, commit) ... -> give_back

`admit` takes the pages of all tokens that are known, what the cache has of them included, or
nothing. `commit` makes whole pages matchable as soon as their tokens are scheduled, and ties the
gateway's boundaries to them.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from worker.cache.interface import TOKEN_BYTES, Match, PrefixCache
from worker.cache.pins import Pins
from worker.cache.scope import CacheScope
from worker.cache.scores import PageScores
from worker.order.interface import Frontier
from worker.request import UNSCORED, TokenScore
from worker.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Admitted:
    """What came of an admission. copy: (source page, target page), to be made by the step."""

    copy: tuple[int, int] | None = None


class Allotment:
    """Works on one cache and its pool. pinned_share: of all pages, how many may be kept pinned.

    What is pinned gives way before a sequence is refused pages.
    """

    def __init__(
        self,
        cache: PrefixCache,
        pinned_share: float = 0.25,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cache = cache
        self._clock = clock
        self._pins = Pins(cache.pool, pinned_share, clock)
        self.expire = self._pins.expire
        self.lease_s = self._pins.left_s
        self._pool = cache.pool
        self._page_size = cache.pool.page_size
        self._scores = PageScores(cache.pool.page_size)

    def pin(self, key: bytes, scope: CacheScope, tokens: bytes, ttl_s: float) -> None:
        """Keeps the whole pages of a prefix for so long, if they fit; 0: no longer."""
        if ttl_s:
            pages = self._cache.match(scope, tokens).pages
            self._pins.pin(key, pages, self._clock() + ttl_s)
        else:
            self._pins.unpin(key)

    def admit(self, sequence: Sequence, spare: int) -> Admitted | None:
        """Gives a sequence the pages of all its known tokens; None: they can't be had.

        spare: pages that must be left for those that run.
        """
        known = bytes(sequence.tokens[:-TOKEN_BYTES])
        match = self._cache.match(sequence.spec.scope, known)
        if sequence.wants_scores:
            match = self._scored(sequence, match)
        return self._admit(sequence, match, spare)

    def _scored(self, sequence: Sequence, match: Match) -> Match:
        """As much of the match as has the prompt's scores with it; the sequence gets them.

        What lies behind is computed again, in pages of its own.
        """
        tail = [] if match.tail_page is None else [match.tail_page]
        pages, page_size = [*match.pages, *tail], self._page_size
        tokens = array("i", sequence.spec.prompt)
        limit = len(match.pages) * page_size + match.tail_len
        unscored = sequence.spec.scored_from - 1
        known = self._scores.known(pages, tokens, unscored)[:limit]
        whole, rest = divmod(len(known), page_size)
        if rest and self._cache.is_fresh(pages[whole]):
            known, rest = known[: whole * page_size], 0
        sequence.scores = known + [UNSCORED] * (unscored - len(known))
        return Match(pages[:whole], pages[whole] if rest else None, rest)

    def _admit(self, sequence: Sequence, match: Match, spare: int) -> Admitted | None:
        scope = sequence.spec.scope
        held = self._cache.hold(scope, match.pages)
        if match.tail_page is not None:
            self._pool.share([match.tail_page])
            held.tail_source = match.tail_page
        wanted = self.pages_for(sequence.num_tokens) - len(match.pages)
        fresh = None
        if self._has_room(wanted + spare):
            fresh = self._pool.allocate(wanted, scope.account)
        if fresh is None:
            held.release(self._pool)
            if match.tail_page is None or spare:
                return None
            # Alone and still too large: the page to copy from is the one that is missing.
            return self._admit(sequence, Match(match.pages), spare)
        self._scores.forget(fresh)
        held.pages += fresh
        sequence.held = held
        sequence.computed = len(match.pages) * self._page_size + match.tail_len
        return Admitted(None if match.tail_page is None else (match.tail_page, fresh[0]))

    def grow(self, sequence: Sequence) -> bool:
        """Gets the pages that known tokens still need, if any; False: they can't be had."""
        missing = self.missing(sequence)
        if missing > 0:
            held = sequence.held
            assert held is not None
            self._has_room(missing)
            fresh = self._pool.allocate(missing, sequence.spec.scope.account)
            if fresh is None:
                return False
            self._scores.forget(fresh)
            held.pages += fresh
        return True

    def _has_room(self, num_pages: int) -> bool:
        """Whether so many pages can be had, pinned ones given back as far as it takes."""
        while num_pages > self._pool.num_available:
            if not self._pins.release_next():
                return False
        return True

    def missing(self, sequence: Sequence) -> int:
        """How many pages its known tokens need beyond those that it holds."""
        assert sequence.held is not None
        return max(self.pages_for(sequence.num_tokens) - len(sequence.held.pages), 0)

    def give_back(self, sequence: Sequence) -> None:
        """Releases the pages; what is computed of them stays cached."""
        held, sequence.held = sequence.held, None
        assert held is not None
        computed = sequence.exact(sequence.computed)
        if held.tail_source is not None:  # the copy may not have been made
            computed -= computed % self._page_size
        self._cache.finish(held, bytes(sequence.tokens), computed)

    def commit(self, sequence: Sequence, end: int) -> list[int]:
        """Makes the whole pages below `end` matchable; returns the page table up to there.

        Pages with tokens that were not computed exactly stay the sequence's own.
        """
        held = sequence.held
        assert held is not None
        exact = sequence.exact(end)
        if exact // self._page_size > held.num_committed:
            self._cache.commit(held, bytes(sequence.tokens), exact)
        self._tag(sequence)
        return held.pages[: self.pages_for(end)]

    def settle(self, sequence: Sequence) -> None:
        """A step is over: canonical pages take the place of duplicates."""
        if sequence.held is not None:
            sequence.held.settle(self._pool)

    def score(self, sequence: Sequence, start: int, scores: list[TokenScore]) -> None:
        """Keeps the scores that a step computed from position start on, for others too."""
        sequence.scores[start:] = scores
        held = sequence.held
        if held is None:
            return
        following = array("i", sequence.spec.prompt)[start + 1 :]
        for position, token, score in zip(count(start), following, scores, strict=False):
            page, slot = divmod(position, self._page_size)
            self._scores.put(held.pages[page], slot, token, score)

    def frontier(self, sequence: Sequence, end: int) -> Frontier | None:
        """What the next whole page behind `end` will continue; None: nobody can share that page.

        Everything below `end` has been committed.
        """
        page_bytes = self._page_size * TOKEN_BYTES
        num_pages = end // self._page_size
        following = bytes(sequence.tokens[num_pages * page_bytes : (num_pages + 1) * page_bytes])
        if end == sequence.num_tokens or len(following) < page_bytes:
            return None
        so_far = bytes(sequence.tokens[: num_pages * page_bytes])
        num_matched, at = self._cache.match_pages(sequence.spec.scope, so_far)
        return (at, following) if num_matched == num_pages else None

    def pages_for(self, num_tokens: int) -> int:
        """Pages that so many tokens take."""
        return -(-num_tokens // self._page_size)

    def _tag(self, sequence: Sequence) -> None:
        """Ties the gateway's boundaries to the pages that have become matchable."""
        held, boundaries = sequence.held, sequence.spec.boundaries
        assert held is not None
        while sequence.num_boundaries_stored < len(boundaries):
            boundary = boundaries[sequence.num_boundaries_stored]
            num_pages = boundary.num_tokens // self._page_size
            if num_pages > held.num_committed:
                return
            if num_pages:
                page = held.canonical(num_pages - 1)
                self._cache.tags.store(page, boundary.digest, boundary.num_tokens)
            sequence.num_boundaries_stored += 1
