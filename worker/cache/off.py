"""No prefix cache: every page is free again as soon as its sequence ends."""

from __future__ import annotations

from worker.cache.boundaries import BoundaryTags
from worker.cache.interface import GrowthListener, Match, SequencePages
from worker.cache.pages import PagePool
from worker.cache.scope import CacheScope, Root


class NoCache:
    """Matches nothing and keeps nothing."""

    name = "off"

    def __init__(self, pool: PagePool) -> None:
        self.pool = pool
        self.tags = BoundaryTags()
        self.on_grown: GrowthListener | None = None

    def match(self, scope: CacheScope, tokens: bytes) -> Match:  # noqa: ARG002
        """Returns an empty match."""
        return Match()

    def match_pages(self, scope: CacheScope, tokens: bytes) -> tuple[int, int | Root]:  # noqa: ARG002
        """Returns no pages."""
        is_public = scope.num_public_pages(self.pool.page_size) > 0
        return 0, scope.public_root if is_public else scope.private_root()

    def hold(self, scope: CacheScope, pages: list[int]) -> SequencePages:  # noqa: ARG002
        """Returns a sequence's pages, none yet."""
        return SequencePages(scope)

    def commit(self, held: SequencePages, tokens: bytes, num_tokens: int) -> None:
        """Keeps nothing."""

    def finish(self, held: SequencePages, tokens: bytes, num_tokens: int) -> None:  # noqa: ARG002
        """Releases a sequence's pages."""
        held.release(self.pool)

    def is_fresh(self, page: int) -> bool:  # noqa: ARG002
        """As PrefixCache.is_fresh."""
        return False

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
