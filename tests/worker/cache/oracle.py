"""A cache driven without tensors: every slot remembers the exact prefix that it holds.

Reading a slot that remembers anything but the reader's own prefix, in the reader's own region, is
the bug that no accounting check can see.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from worker.cache.interface import Match, PrefixCache, SequencePages
from worker.cache.scope import CacheScope, Root

POISON = ("poison",)


def pack(tokens: list[int]) -> bytes:
    return struct.pack(f"<{len(tokens)}i", *tokens)


@dataclass(eq=False)
class Watcher:
    """Somebody who waits with a match, as the cache-aware order does, and listens at a frontier."""

    scope: CacheScope
    tokens: bytes
    count: int = 0
    frontier: tuple[int | Root, bytes] | None = None
    told: bool = False


@dataclass(eq=False)
class Sequence:
    scope: CacheScope
    tokens: list[int]
    held: SequencePages
    computed: int
    planned: int = 0


class Oracle:
    """Runs sequences over a cache the way the scheduler does, and checks what they would read."""

    def __init__(self, cache: PrefixCache, *, keys_differ: bool = True) -> None:
        self.cache = cache
        self.keys_differ = keys_differ
        self.pool = cache.pool
        self.size = cache.pool.page_size
        self.memory: list[object] = [POISON] * (cache.pool.num_pages * self.size)
        self.running: list[Sequence] = []
        self.seen_shared = self.seen_copied = self.seen_remapped = 0
        self.watchers: list[Watcher] = []
        self.active_at: dict[bytes, int] = {}
        self.pinned: Callable[[], Iterable[int]] = tuple
        cache.on_grown = self._grown

    def admit(self, scope: CacheScope, tokens: list[int]) -> Sequence | None:
        """Matches and holds; the pages for all tokens are allocated. None: it does not fit."""
        match = self.cache.match(scope, pack(tokens)[:-4])
        self._same_count(match, scope, pack(tokens)[:-4])
        self._is_active(scope)
        assert len(match.pages) * self.size + match.tail_len < len(tokens)
        held = self.cache.hold(scope, match.pages)
        if match.tail_page is not None:
            self.pool.share([match.tail_page])
            held.tail_source = match.tail_page
        wanted = -(-len(tokens) // self.size) - len(held.pages)
        fresh = self.pool.allocate(wanted, scope.account)
        if fresh is None:
            held.release(self.pool)
            return None
        self._poison_freed()
        computed = len(match.pages) * self.size + match.tail_len
        sequence = Sequence(scope, list(tokens), held, computed)
        held.pages += fresh
        self.seen_copied += held.tail_source is not None
        self.seen_shared += len(match.pages)
        self.running.append(sequence)
        return sequence

    def grow(self, sequence: Sequence, tokens: list[int]) -> bool:
        """Appends tokens (a sampled one, or a fork's own continuation)."""
        wanted = -(-(len(sequence.tokens) + len(tokens)) // self.size) - len(sequence.held.pages)
        fresh = self.pool.allocate(max(wanted, 0), sequence.scope.account)
        if fresh is None:
            return False
        self._poison_freed()
        sequence.held.pages += fresh
        sequence.tokens += tokens
        return True

    def plan(self, sequence: Sequence, count: int) -> None:
        sequence.planned = min(count, len(sequence.tokens) - sequence.computed)
        self._look_again()
        self.cache.commit(
            sequence.held, pack(sequence.tokens), sequence.computed + sequence.planned
        )

    def run(self, *, fail: bool = False) -> None:
        """One step over everything planned: copies, then writes, then reads."""
        for sequence in self.running:
            self._copy(sequence)
        if fail:
            self.cache.step_failed()
            for sequence in list(self.running):
                if sequence.planned:
                    self.finish(sequence)
            return
        for sequence in self.running:
            self._write(sequence)
        for sequence in self.running:
            if sequence.planned:
                sequence.computed += sequence.planned
                sequence.planned = 0
                self.read(sequence)
        for sequence in self.running:
            self.seen_remapped += len(sequence.held.duplicates)
            sequence.held.settle(self.pool)
        self.cache.step_done()
        self._poison_freed()
        for sequence in self.running:
            self.read(sequence)

    def finish(self, sequence: Sequence) -> None:
        """Ends a sequence, which gives back what was computed before the step under way."""
        computed = sequence.computed
        if sequence.held.tail_source is not None:
            computed -= computed % self.size
        self.running.remove(sequence)
        self._is_active(sequence.scope)
        self.cache.finish(sequence.held, pack(sequence.tokens), computed)
        self._poison_freed()

    def abort_in_the_step(self, sequence: Sequence) -> None:
        """Ends a sequence that is planned; the runner computes its rows all the same."""
        self._copy(sequence)
        self._write(sequence)
        self.finish(sequence)

    def read(self, sequence: Sequence) -> None:
        for position in range(sequence.computed):
            found = self.memory[self._slot(sequence, position)]
            assert found == self._content(sequence, position), (
                f"position {position} of {sequence.tokens} reads {found}"
            )

    def check(self) -> None:
        self.cache.check()
        self._look_again()
        held = {page for one in self.running for page in one.held.pages}
        held |= {page for one in self.running for _index, page in one.held.duplicates}
        sources = [one.held.tail_source for one in self.running]
        held |= {source for source in sources if source is not None}
        held |= set(self.pinned())
        assert self.pool.num_used == len(held)

    def _copy(self, sequence: Sequence) -> None:
        if sequence.held.tail_source is None:
            return
        source = sequence.held.tail_source * self.size
        target = sequence.held.pages[sequence.computed // self.size] * self.size
        self.memory[target : target + self.size] = self.memory[source : source + self.size]

    def _write(self, sequence: Sequence) -> None:
        for position in range(sequence.computed, sequence.computed + sequence.planned):
            self.memory[self._slot(sequence, position)] = self._content(sequence, position)

    def _slot(self, sequence: Sequence, position: int) -> int:
        return sequence.held.pages[position // self.size] * self.size + position % self.size

    def _content(self, sequence: Sequence, position: int) -> object:
        scope = sequence.scope
        is_public = position < scope.public_tokens // self.size * self.size
        whose = "public" if is_public else scope.namespace
        return (whose, scope.adapter, tuple(sequence.tokens[: position + 1]))

    def _is_active(self, scope: CacheScope) -> None:
        self.active_at[scope.account.name] = self.pool.allocated_total
        if scope.num_public_pages(self.size):
            self.active_at[b""] = self.pool.allocated_total

    def _same_count(self, match: Match, scope: CacheScope, tokens: bytes) -> None:
        """`match_pages` must say what `match` says."""
        count, at = self.cache.match_pages(scope, tokens)
        assert count == len(match.pages)
        num_public = scope.num_public_pages(self.size)
        if count in {0, num_public}:
            assert isinstance(at, Root)
            assert at.public == (count < num_public)
            assert at.public or at.namespace == scope.namespace
        else:
            assert at == match.pages[-1]

    def watch(self, scope: CacheScope, tokens: list[int]) -> None:
        self.watchers = self.watchers[-5:]
        self.watchers.append(Watcher(scope, pack(tokens)))
        self._look(self.watchers[-1])

    def _look(self, watcher: Watcher) -> None:
        watcher.count, at = self.cache.match_pages(watcher.scope, watcher.tokens)
        start = watcher.count * self.size * 4
        following = watcher.tokens[start : start + self.size * 4]
        watcher.frontier, watcher.told = (at, following), False

    def _grown(self, before: int | Root, tokens: bytes) -> None:
        for watcher in self.watchers:
            watcher.told |= watcher.frontier == (before, tokens)

    def _look_again(self) -> None:
        """A match grows only where its watcher was told; that it falls he finds out himself.

        Where keys collide, one prefix hides another: that grows when it goes.
        """
        for watcher in self.watchers if self.keys_differ else ():
            count, _ = self.cache.match_pages(watcher.scope, watcher.tokens)
            assert watcher.told or count <= watcher.count, "a match grew and nobody was told"
            if watcher.told or count != watcher.count:
                self._look(watcher)

    def _poison_freed(self) -> None:
        self._look_again()
        for page in self.pool.take_freed():
            for offset in range(self.size):
                self.memory[page * self.size + offset] = POISON
