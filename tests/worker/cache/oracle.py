"""A cache driven without tensors: every slot remembers the exact prefix that it holds.

Reading a slot that remembers anything but the reader's own prefix is the bug that no accounting
check can see.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from worker.cache.interface import PrefixCache, SequencePages

POISON = ("poison",)


def pack(tokens: list[int]) -> bytes:
    return struct.pack(f"<{len(tokens)}i", *tokens)


@dataclass(eq=False)
class Sequence:
    namespace: bytes
    tokens: list[int]
    held: SequencePages
    computed: int
    planned: int = 0


class Oracle:
    """Runs sequences over a cache the way the scheduler does, and checks what they would read."""

    def __init__(self, cache: PrefixCache) -> None:
        self.cache = cache
        self.pool = cache.pool
        self.size = cache.pool.page_size
        self.memory: list[object] = [POISON] * (cache.pool.num_pages * self.size)
        self.running: list[Sequence] = []
        self.seen_shared = self.seen_copied = self.seen_remapped = 0

    def admit(self, namespace: bytes, tokens: list[int]) -> Sequence | None:
        """Matches and holds; the pages for all tokens are allocated. None: it does not fit."""
        match = self.cache.match(namespace, pack(tokens)[:-4])
        assert len(match.pages) * self.size + match.tail_len < len(tokens)
        held = self.cache.hold(namespace, match.pages)
        if match.tail_page is not None:
            self.pool.share([match.tail_page])
            held.tail_source = match.tail_page
        wanted = -(-len(tokens) // self.size) - len(held.pages)
        fresh = self.pool.allocate(wanted)
        if fresh is None:
            held.release(self.pool)
            return None
        self._poison_freed()
        computed = len(match.pages) * self.size + match.tail_len
        sequence = Sequence(namespace, list(tokens), held, computed)
        held.pages += fresh
        self.seen_copied += held.tail_source is not None
        self.seen_shared += len(match.pages)
        self.running.append(sequence)
        return sequence

    def grow(self, sequence: Sequence, tokens: list[int]) -> bool:
        """Appends tokens (a sampled one, or a fork's own continuation)."""
        wanted = -(-(len(sequence.tokens) + len(tokens)) // self.size) - len(sequence.held.pages)
        fresh = self.pool.allocate(max(wanted, 0))
        if fresh is None:
            return False
        self._poison_freed()
        sequence.held.pages += fresh
        sequence.tokens += tokens
        return True

    def plan(self, sequence: Sequence, count: int) -> None:
        sequence.planned = min(count, len(sequence.tokens) - sequence.computed)
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
        held = {page for one in self.running for page in one.held.pages}
        held |= {page for one in self.running for _index, page in one.held.duplicates}
        sources = [one.held.tail_source for one in self.running]
        held |= {source for source in sources if source is not None}
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

    def _content(self, sequence: Sequence, position: int) -> tuple[bytes, tuple[int, ...]]:
        return (sequence.namespace, tuple(sequence.tokens[: position + 1]))

    def _poison_freed(self) -> None:
        for page in self.pool.take_freed():
            for offset in range(self.size):
                self.memory[page * self.size + offset] = POISON
