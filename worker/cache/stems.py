"""What stands in front of private trees: digests of public prefixes, by their last page."""

from __future__ import annotations

from worker.cache.interface import TOKEN_BYTES, SequencePages
from worker.cache.pages import PagePool
from worker.cache.scope import CacheScope, Root, digest_of


class Stems:
    """Names the private roots. A digest is remembered as long as its last page is in the index.

    A page in the index stands for one exact prefix, so the digest need not be made again.
    """

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self._digest_of: dict[int, bytes] = {}

    def root_behind(self, scope: CacheScope, stem: bytes, last: int) -> Root:
        """Returns the private root behind a scope's public tokens, of which last is the page."""
        digest = self._digest_of.get(last)
        if digest is None:
            digest = digest_of(stem)
            if self._pool.is_indexed(last):
                self._digest_of[last] = digest
        return scope.private_root(digest)

    def own_root(self, held: SequencePages, tokens: bytes) -> Root:
        """Returns a sequence's private root; its public pages must be committed."""
        if held.own_root is None:
            if held.num_public:
                stem = tokens[: held.num_public * self._pool.page_size * TOKEN_BYTES]
                last = held.canonical(held.num_public - 1)
                held.own_root = self.root_behind(held.scope, stem, last)
            else:
                held.own_root = held.scope.private_root()
        return held.own_root

    def forget(self, page: int) -> None:
        """Notes that a page leaves the index."""
        self._digest_of.pop(page, None)

    def clear(self) -> None:
        """Notes that all pages have left the index."""
        self._digest_of.clear()
