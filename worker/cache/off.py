"""No prefix cache: every page is free again as soon as its sequence ends."""

from __future__ import annotations

from worker.cache.boundaries import BoundaryTags
from worker.cache.interface import Match, SequencePages
from worker.cache.pages import PagePool


class NoCache:
    """Matches nothing and keeps nothing."""

    name = "off"

    def __init__(self, pool: PagePool) -> None:
        self.pool = pool
        self.tags = BoundaryTags()

    def match(self, namespace: bytes, tokens: bytes) -> Match:  # noqa: ARG002
        """Returns an empty match."""
        return Match()

    def hold(self, namespace: bytes, pages: list[int]) -> SequencePages:  # noqa: ARG002
        """Returns a sequence's pages, none yet."""
        return SequencePages(namespace)

    def commit(self, held: SequencePages, tokens: bytes, num_tokens: int) -> None:
        """Keeps nothing."""

    def finish(self, held: SequencePages, tokens: bytes, num_tokens: int) -> None:  # noqa: ARG002
        """Releases a sequence's pages."""
        held.release(self.pool)

    def step_done(self) -> None:
        """Nothing was committed."""

    def step_failed(self) -> None:
        """Nothing was committed."""

    def reset(self) -> None:
        """Nothing is kept."""

    def check(self) -> None:
        """Asserts that nothing is cached and the pool is whole."""
        assert self.pool.num_cached == 0
        self.pool.check()
