"""Block-hash prefix cache: a table from the digest of a whole prefix to its last page.

    key of page i = H(root | tokens[start : (i + 1) * page_size])

start is where the root's tree begins: token 0, or behind the public pages.

A sequence holds every page before the last one that it holds, and releases from the tail, so a
page is never given up before the pages that continue it: if page i is in the table, so are pages
0..i-1. The longest match is therefore found by bisection (8 probes for 256 pages), and xxh3 runs at
memory speed over each probe's prefix. A hit is believed only when every page's tokens, the
chain of parents, and the root agree, so a collision costs a hit and never an answer.

Source: vLLM's hashed blocks (parent hash + tokens + salt in the first block); changed: one digest
of the whole prefix in place of a chain, and tokens and parents are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import xxhash

from worker.cache.boundaries import BoundaryTags
from worker.cache.interface import TOKEN_BYTES, GrowthListener, Match, SequencePages
from worker.cache.pages import PagePool
from worker.cache.scope import PUBLIC, CacheScope, Root
from worker.cache.stems import Stems


class PrefixHash(Protocol):
    """A running hash, like those of hashlib and xxhash."""

    def update(self, data: bytes, /) -> None:
        """Takes in more of the prefix."""

    def digest(self) -> bytes:
        """Returns the key of everything taken in."""


class BlockHashCache:
    """Whole pages by prefix digest; O(1) per page to store and to evict.

    start_hash: begins a running hash; replaceable so that tests can make every key collide.
    """

    name = "block"

    def __init__(
        self, pool: PagePool, start_hash: Callable[[bytes], PrefixHash] = xxhash.xxh3_128
    ) -> None:
        self.pool = pool
        self.tags = BoundaryTags()
        self.on_grown: GrowthListener | None = None
        self._stems = Stems(pool)
        self._hash = start_hash
        self._generation = 0
        self._page_bytes = pool.page_size * TOKEN_BYTES
        self._page_of: dict[bytes, int] = {}
        # By page id, meaningful while the page is in the table. The parent of a first page is its
        # root.
        self._key: list[bytes] = [b""] * pool.num_pages
        self._tokens: list[bytes] = [b""] * pool.num_pages
        self._parent: list[int | Root] = [Root()] * pool.num_pages
        # Committed since the last step, in order.
        self._fresh: dict[int, None] = {}
        pool.bind(self._forget)

    def match(self, scope: CacheScope, tokens: bytes) -> Match:
        """Returns the longest run of whole cached pages that tokens begin with."""
        return Match(self._pages_of(scope, tokens)[0])

    def match_pages(self, scope: CacheScope, tokens: bytes) -> tuple[int, int | Root]:
        """Returns how many whole pages match, and the last one or the root of the next one."""
        pages, root = self._pages_of(scope, tokens)
        own = len(pages) - (0 if root.public else scope.num_public_pages(self.pool.page_size))
        return len(pages), pages[-1] if own else root

    def hold(self, scope: CacheScope, pages: list[int]) -> SequencePages:
        """Returns a sequence's pages: the match's, with a reference on each."""
        self.pool.touch(scope)
        self.pool.share(pages)
        return SequencePages(
            scope,
            self._generation,
            list(pages),
            num_committed=len(pages),
            num_public=scope.num_public_pages(self.pool.page_size),
        )

    def commit(self, held: SequencePages, tokens: bytes, num_tokens: int) -> None:
        """Stores the whole pages below num_tokens, or notes the ones stored already."""
        full = num_tokens // self.pool.page_size
        if full <= held.num_committed or held.generation != self._generation:
            return
        self.pool.touch(held.scope)
        if held.num_committed < held.num_public:
            self._store(held, tokens, held.scope.public_root, min(full, held.num_public))
        if held.num_public <= held.num_committed < full:
            self._store(held, tokens, self._stems.own_root(held, tokens), full)

    def finish(self, held: SequencePages, tokens: bytes, num_tokens: int) -> None:
        """Stores the whole pages of the computed tokens and releases everything."""
        self.commit(held, tokens, num_tokens)
        self.pool.touch(held.scope)
        held.release(self.pool)

    def is_fresh(self, page: int) -> bool:
        """As PrefixCache.is_fresh."""
        return page in self._fresh

    def step_done(self) -> None:
        """Whatever was committed is computed."""
        self._fresh.clear()

    def step_failed(self) -> None:
        """Forgets what was committed since the last step."""
        for page in reversed(list(self._fresh)):
            self._forget(page)
            self.pool.unindex(page)

    def reset(self) -> None:
        """Forgets everything; sequences that run now store nothing more."""
        self._generation += 1
        for page in self._page_of.values():
            self.pool.unindex(page)
        self._page_of.clear()
        self._fresh.clear()
        self._stems.clear()
        self.tags.clear()

    def check(self) -> None:
        """Asserts that the table and the pool agree and every page's parent is stored too."""
        self.pool.check()
        for key, page in self._page_of.items():
            assert self._key[page] == key
            assert self.pool.is_indexed(page)
            parent = self._parent[page]
            assert isinstance(parent, Root) or self._page_of[self._key[parent]] == parent
        indexed = sum(self.pool.is_indexed(page) for page in range(self.pool.num_pages))
        assert indexed == len(self._page_of)

    def _pages_of(self, scope: CacheScope, tokens: bytes) -> tuple[list[int], Root]:
        """Returns the cached pages that tokens begin with, and the root of the tree they end in."""
        num_public = scope.num_public_pages(self.pool.page_size)
        if not num_public:
            root = scope.private_root()
            return self._pages_in(root, tokens, 0), root
        stem = tokens[: num_public * self._page_bytes]
        pages = self._pages_in(scope.public_root, stem, 0)
        if len(pages) < num_public:
            return pages, scope.public_root
        root = self._stems.root_behind(scope, stem, pages[-1])
        return pages + self._pages_in(root, tokens, len(stem)), root

    def _pages_in(self, root: Root, tokens: bytes, offset: int) -> list[int]:
        """Returns the longest run of one tree that the tokens from offset on begin with.

        Its last page is found by bisection over its length.
        """
        if not self._page_of:
            return []
        size, salt, find = self._page_bytes, root.salt, self._page_of.get
        found, low, high = None, 0, (len(tokens) - offset) // size
        while low < high:
            middle = (low + high + 1) // 2
            page = find(self._hash(salt + tokens[offset : offset + middle * size]).digest())
            if page is None:
                high = middle - 1
            else:
                found, low = page, middle
        return [] if found is None else self._verified(found, root, tokens, offset)

    def _verified(self, page: int, root: Root, tokens: bytes, offset: int) -> list[int]:
        """Returns the pages from the root to page, as far as they carry the tokens from offset."""
        chain: list[int] = []
        step: int | Root = page
        while not isinstance(step, Root):
            chain.append(step)
            step = self._parent[step]
        chain.reverse()
        if step != root:
            return []
        size, stored = self._page_bytes, self._tokens
        if b"".join([stored[one] for one in chain]) == tokens[offset : offset + len(chain) * size]:
            return chain
        for depth, one in enumerate(chain):
            if stored[one] != tokens[offset + depth * size : offset + (depth + 1) * size]:
                return chain[:depth]
        return chain

    def _store(self, held: SequencePages, tokens: bytes, root: Root, full: int) -> None:
        """Stores pages of one tree, up to depth full."""
        size, start = self._page_bytes, held.num_committed
        first = 0 if root.public else held.num_public
        before: int | Root = held.canonical(start - 1) if start > first else root
        state = self._hash(root.salt + tokens[first * size : start * size])
        keys, runs, parents, find = self._key, self._tokens, self._parent, self._page_of.setdefault
        stored = list[int]()
        for depth in range(start, full):
            run = tokens[depth * size : (depth + 1) * size]
            state.update(run)
            key, own = state.digest(), held.pages[depth]
            page = find(key, own)
            if page == own:
                keys[own], runs[own], parents[own] = key, run, before
                stored.append(own)
            elif runs[page] == run and parents[page] == before:
                self.pool.share((page,))
                held.duplicates.append((depth, page))
            else:
                break  # another prefix has this key: what follows can't be found either
            before = page
        else:
            depth = full
        held.num_committed = depth
        if stored:
            self._stored(stored, held.scope)

    def _stored(self, pages: list[int], scope: CacheScope) -> None:
        """Notes new pages that continue one another, on the account of the page before them."""
        before = self._parent[pages[0]]
        if isinstance(before, Root):
            self.pool.index(pages, PUBLIC if before.public else scope.account)
        else:
            self.pool.index(pages, self.pool.account_of(before))
        self._fresh.update(dict.fromkeys(pages))
        if self.on_grown is not None:
            self.on_grown(before, self._tokens[pages[0]])

    def _forget(self, page: int, by_another: bool = False) -> None:
        del self._page_of[self._key[page]]
        self._fresh.pop(page, None)
        self.tags.evict(page, by_another=by_another)
        self._stems.forget(page)
