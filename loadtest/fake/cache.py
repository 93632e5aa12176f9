"""A finite prefix cache at the grain of message boundaries: least recently used leaves go first.

A chain is what a request names: digests with the prompt tokens up to each. A boundary holds the
tokens since the one before it, and is matched only behind all that come before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Mark:
    """A boundary of a prompt, and the tokens up to it."""

    digest: bytes
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Change:
    """One numbered event of a cache."""

    sequence: int
    kind: Literal["stored", "evicted"]
    mark: Mark


class FakeCache:
    """Holds boundaries of at most `capacity` tokens in all."""

    def __init__(self, capacity: int):
        self._capacity = capacity
        self._held: OrderedDict[bytes, tuple[Mark, int]] = OrderedDict()
        self._tokens = 0
        self.sequence = 0
        self._changes: list[Change] = []

    def admit(self, chain: Sequence[Mark]) -> int:
        """The chain is used and held from now on; returns how many of its tokens were held."""
        matched = 0
        depth = 0
        for mark in chain:
            if mark.digest not in self._held:
                break
            matched, depth = mark.num_tokens, depth + 1
        before = matched
        for mark in chain[depth:]:
            if mark.digest in self._held:  # behind a gap: it cannot be used, and is held anew
                self._drop(mark.digest)
            self._put(mark, mark.num_tokens - before)
            before = mark.num_tokens
        # The deepest first, so that what others build on is the most recently used.
        for mark in reversed(chain):
            if mark.digest in self._held:
                self._held.move_to_end(mark.digest)
        while self._tokens > self._capacity and self._held:
            self._drop(next(iter(self._held)))
        return matched

    def snapshot(self) -> list[Mark]:
        """All that is held."""
        return [mark for mark, _ in self._held.values()]

    def take_changes(self) -> list[Change]:
        """The events since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def _put(self, mark: Mark, size: int) -> None:
        self._held[mark.digest] = mark, size
        self._tokens += size
        self._tell("stored", mark)

    def _drop(self, digest: bytes) -> None:
        mark, size = self._held.pop(digest)
        self._tokens -= size
        self._tell("evicted", mark)

    def _tell(self, kind: Literal["stored", "evicted"], mark: Mark) -> None:
        self.sequence += 1
        self._changes.append(Change(self.sequence, kind, mark))
