"""Block-hash prefix cache: a table from the digest of a whole prefix to its last page.

    key of page i = H(namespace | tokens[0 : (i + 1) * page_size])

A sequence holds every page before the last one that it holds, and releases from the tail, so a
page is never given up before the pages that continue it: if page i is in the table, so are pages
0..i-1. The longest match is therefore found by bisection (8 probes for 256 pages), and xxh3 runs at
memory speed over each probe's prefix. A hit is believed only when every page's tokens, the
chain of parents, and the namespace agree, so a collision costs a hit and never an answer.

Source: vLLM's hashed blocks (parent hash + tokens + salt in the first block); changed: one digest
of the whole prefix in place of a chain, and tokens and parents are compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

import xxhash

from worker.cache.boundaries import BoundaryTags
from worker.cache.interface import TOKEN_BYTES, Match, SequencePages
from worker.cache.pages import PagePool


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
        self._hash = start_hash
        self._generation = 0
        self._page_bytes = pool.page_size * TOKEN_BYTES
        self._page_of: dict[bytes, int] = {}
        # By page id, meaningful while the page is in the table. The parent of a first page is its
        # namespace.
        self._key: list[bytes] = [b""] * pool.num_pages
        self._tokens: list[bytes] = [b""] * pool.num_pages
        self._parent: list[int | bytes] = [b""] * pool.num_pages
        # Committed since the last step, in order.
        self._fresh: dict[int, None] = {}
        pool.bind(self._forget)

    def match(self, namespace: bytes, tokens: bytes) -> Match:
        """Returns the longest run of whole cached pages that tokens begin with."""
        if not self._page_of:
            return Match()
        last = self._deepest(_salt(namespace), tokens)
        return Match() if last is None else Match(self._verified(last, namespace, tokens))

    def hold(self, namespace: bytes, pages: list[int]) -> SequencePages:
        """Returns a sequence's pages: the match's, with a reference on each."""
        self.pool.share(pages)
        return SequencePages(namespace, self._generation, list(pages), len(pages))

    def commit(self, held: SequencePages, tokens: bytes, num_tokens: int) -> None:
        """Stores the whole pages below num_tokens, or notes the ones stored already."""
        full = num_tokens // self.pool.page_size
        if full <= held.num_committed or held.generation != self._generation:
            return
        size, pages, stored = self._page_bytes, held.pages, list[int]()
        start = held.num_committed
        parent: int | bytes = held.canonical(start - 1) if start else held.namespace
        state = self._hash(_salt(held.namespace) + tokens[: start * size])
        keys, runs, parents, find = self._key, self._tokens, self._parent, self._page_of.setdefault
        for depth in range(start, full):
            run = tokens[depth * size : (depth + 1) * size]
            state.update(run)
            key = state.digest()
            own = pages[depth]
            page = find(key, own)
            if page == own:
                keys[own], runs[own], parents[own] = key, run, parent
                stored.append(own)
            elif runs[page] == run and parents[page] == parent:
                self.pool.share((page,))
                held.duplicates.append((depth, page))
            else:
                break  # another prefix has this key: what follows can't be found either
            parent = page
        else:
            depth = full
        held.num_committed = depth
        self.pool.index(stored)
        self._fresh.update(dict.fromkeys(stored))

    def finish(self, held: SequencePages, tokens: bytes, num_tokens: int) -> None:
        """Stores the whole pages of the computed tokens and releases everything."""
        self.commit(held, tokens, num_tokens)
        held.release(self.pool)

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
        self.tags.clear()

    def check(self) -> None:
        """Asserts that the table and the pool agree and every page's parent is stored too."""
        self.pool.check()
        for key, page in self._page_of.items():
            assert self._key[page] == key
            assert self.pool.is_indexed(page)
            parent = self._parent[page]
            assert isinstance(parent, bytes) or self._page_of[self._key[parent]] == parent
        indexed = sum(self.pool.is_indexed(page) for page in range(self.pool.num_pages))
        assert indexed == len(self._page_of)

    def _deepest(self, salt: bytes, tokens: bytes) -> int | None:
        """Finds the last page of the longest prefix in the table, by bisection over its length."""
        size, table = self._page_bytes, self._page_of
        found, low, high = None, 0, len(tokens) // size
        while low < high:
            middle = (low + high + 1) // 2
            page = table.get(self._hash(salt + tokens[: middle * size]).digest())
            if page is None:
                high = middle - 1
            else:
                found, low = page, middle
        return found

    def _verified(self, page: int, namespace: bytes, tokens: bytes) -> list[int]:
        """Returns the pages from the namespace's root to page, as far as they carry tokens."""
        chain: list[int] = []
        step: int | bytes = page
        while not isinstance(step, bytes):
            chain.append(step)
            step = self._parent[step]
        chain.reverse()
        if step != namespace:
            return []
        size, stored = self._page_bytes, self._tokens
        if b"".join([stored[one] for one in chain]) == tokens[: len(chain) * size]:
            return chain
        for depth, one in enumerate(chain):
            if not tokens.startswith(stored[one], depth * size) or depth * size >= len(tokens):
                return chain[:depth]
        return chain

    def _forget(self, page: int) -> None:
        del self._page_of[self._key[page]]
        self._fresh.pop(page, None)
        self.tags.evict(page)


def _salt(namespace: bytes) -> bytes:
    """A digest of fixed length, so that no namespace runs into the tokens behind it."""
    return hashlib.blake2b(namespace, digest_size=16).digest()
