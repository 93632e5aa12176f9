"""A finite prefix cache at the grain of message boundaries: least recently used leaves go first.

A chain is a whole prompt: every piece by the content up to its end, with the tokens up to there
and, where the gateway named the place, its digest. A piece is matched only behind all that come
before. What the gateway named is told when it enters and when it leaves, as the real caches tell.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Mark:
    """The end of a piece. content: names all up to here. name: the gateway's, or empty."""

    content: bytes
    num_tokens: int
    name: bytes = b""


@dataclass(frozen=True, slots=True)
class Change:
    """One numbered event of a cache: the gateway's name for a place, and the tokens up to it."""

    sequence: int
    kind: Literal["stored", "evicted"]
    name: bytes
    num_tokens: int


@dataclass(slots=True)
class _Piece:
    """What is held: so many tokens since the piece before, named or not."""

    num_tokens: int
    size: int
    name: bytes = b""


class FakeCache:
    """Holds pieces of at most `capacity` tokens in all."""

    def __init__(self, capacity: int):
        self._capacity = capacity
        self._held: OrderedDict[bytes, _Piece] = OrderedDict()
        self._tokens = 0
        self.sequence = 0
        self._changes: list[Change] = []

    def admit(self, chain: Sequence[Mark]) -> int:
        """The chain is used and held from now on; returns how many of its tokens were held."""
        depth = 0
        while depth < len(chain) and chain[depth].content in self._held:
            depth += 1
        matched = before = chain[depth - 1].num_tokens if depth else 0
        for mark in chain[depth:]:
            if mark.content in self._held:  # behind a gap: it cannot be used, and is held anew
                self._drop(mark.content)
            self._held[mark.content] = _Piece(mark.num_tokens, mark.num_tokens - before)
            self._tokens += mark.num_tokens - before
            before = mark.num_tokens
        # The deepest first, so that what others build on is the most recently used.
        for mark in reversed(chain):
            self._held.move_to_end(mark.content)
        for mark in chain:
            self._name(mark)
        while self._tokens > self._capacity and self._held:
            self._drop(next(iter(self._held)))
        return matched

    def snapshot(self) -> list[tuple[bytes, int]]:
        """All that is held and has a name: the name, and the tokens up to it."""
        return [(piece.name, piece.num_tokens) for piece in self._held.values() if piece.name]

    def take_changes(self) -> list[Change]:
        """The events since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def _name(self, mark: Mark) -> None:
        piece = self._held[mark.content]
        if mark.name and not piece.name:
            piece.name = mark.name
            self._tell("stored", piece)

    def _drop(self, content: bytes) -> None:
        piece = self._held.pop(content)
        self._tokens -= piece.size
        if piece.name:
            self._tell("evicted", piece)

    def _tell(self, kind: Literal["stored", "evicted"], piece: _Piece) -> None:
        self.sequence += 1
        self._changes.append(Change(self.sequence, kind, piece.name, piece.num_tokens))


class NoCache(FakeCache):
    """Holds nothing and tells nothing: a worker whose prefix cache is off."""

    def __init__(self) -> None:
        super().__init__(0)

    def admit(self, chain: Sequence[Mark]) -> int:  # noqa: ARG002
        """Nothing of the chain was held, and nothing is."""
        return 0
