"""What the scheduler asks of a prefix cache, and the two values that travel between them.

A sequence's tokens are packed int32 `bytes`; token i lies at [4 * i, 4 * i + 4).

    tokens    |<------- len(pages) * page_size ------->|<- tail_len ->|<- to compute ->|
              |<- page 0 ->|<- page 1 ->| ...          |
              whole pages, shared                       copied from tail_page

A scope's public tokens are shared under one root by everybody, whole pages only; what lies behind
them under a root of the namespace's own, whose name holds a digest of the public pages:

    tokens    |<- num_public * page_size ->|<- public, but straddling, and private ... ->|
              the public root's tree         the private root's tree

Life of a sequence's pages:

    match -> hold (shares the whole pages) -> allocate more -> commit (as soon as a page's tokens
    are scheduled) -> settle after each step -> finish (the partial last page is kept too)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from worker.cache.boundaries import BoundaryTags
from worker.cache.pages import PagePool
from worker.cache.scope import CacheScope, Root

TOKEN_BYTES = 4

# Told of a run that entered the index: the page before it, or the root if it is first in its tree;
# and the packed tokens of its first page.
GrowthListener = Callable[[int | Root, bytes], None]


@dataclass(frozen=True, slots=True)
class Match:
    """Longest cached prefix: whole pages to share, then tail_len tokens of tail_page to copy."""

    pages: list[int] = field(default_factory=list)
    tail_page: int | None = None
    tail_len: int = 0


@dataclass(slots=True)
class SequencePages:
    """The pages that one sequence holds a reference on. Written by scheduler and cache only.

    pages[i] carries positions [i * page_size, (i + 1) * page_size). The first num_committed are
    in the index, as it was in that generation. duplicates: (i, canonical page) pairs found at
    commit; the reference on the canonical one is already held, `settle` swaps it in after the
    step. tail_source: the match's page to copy from, with a reference until the copy is made; it
    goes back before the pages in front of it, as eviction demands. num_public: how many of the
    sequence's pages belong into the public tree. own_root, once known, and cursor are the cache's.
    """

    scope: CacheScope
    generation: int = 0
    pages: list[int] = field(default_factory=list)
    num_committed: int = 0
    duplicates: list[tuple[int, int]] = field(default_factory=list)
    tail_source: int | None = None
    cursor: object | None = None
    num_public: int = 0
    own_root: Root | None = None

    def canonical(self, index: int) -> int:
        """The page that the index knows for a committed position."""
        for duplicate, page in self.duplicates:
            if duplicate == index:
                return page
        return self.pages[index]

    def settle(self, pool: PagePool) -> None:
        """Swaps the canonical pages in for the duplicates that a step has computed.

        The page that was copied from goes back.
        """
        if self.tail_source is not None:
            pool.release([self.tail_source])
            self.tail_source = None
        for index, canonical in self.duplicates:
            pool.release([self.pages[index]])
            self.pages[index] = canonical
        self.duplicates.clear()

    def release(self, pool: PagePool) -> None:
        """Drops all references, from the tail."""
        self.settle(pool)
        pool.release(reversed(self.pages))
        self.pages.clear()
        self.num_committed = 0
        self.cursor = None


class PrefixCache(Protocol):
    """An index from token prefixes to pages. Members: `radix`, `block_hash`, `off`."""

    name: str
    pool: PagePool
    tags: BoundaryTags
    # Called in `commit`, once for each run of pages that is appended in a tree, when it can be
    # matched already. It may match, but it must not hold, commit or finish.
    on_grown: GrowthListener | None

    def match(self, scope: CacheScope, tokens: bytes) -> Match:
        """Returns the longest cached prefix of tokens; references nothing, changes nothing."""

    def match_pages(self, scope: CacheScope, tokens: bytes) -> tuple[int, int | Root]:
        """Returns the number of whole pages that `match` finds, and where `on_grown` continues it.

        That is the last of those pages, or the root of the tree that the next page would begin.
        For ordering: it collects no pages and looks for no tail.
        """

    def hold(self, scope: CacheScope, pages: list[int]) -> SequencePages:
        """Returns a sequence's pages: the whole pages of a match, with a reference on each.

        Nothing may happen to the cache between `match` and `hold`.
        """

    def commit(self, held: SequencePages, tokens: bytes, num_tokens: int) -> None:
        """Makes the whole pages below num_tokens matchable.

        Called when their tokens are scheduled, so that others in the same step share them.
        """

    def finish(self, held: SequencePages, tokens: bytes, num_tokens: int) -> None:
        """Releases a sequence's pages; those of its first num_tokens tokens stay cached.

        Only tokens whose K/V is computed may be counted.
        """

    def is_fresh(self, page: int) -> bool:
        """Whether only the step under way fills the page: it may be read, and not copied from."""

    def step_done(self) -> None:
        """Whatever was committed is computed: it may be copied from now on."""

    def step_failed(self) -> None:
        """Forgets what was committed since the last step: its content was never computed."""

    def reset(self) -> None:
        """Forgets everything: cached pages become free, held ones can't be matched any more."""

    def check(self) -> None:
        """Asserts the index's own invariants and the pool's."""
