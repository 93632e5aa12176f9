"""What the scheduler asks of the order in which sequences are admitted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from worker.cache.scope import Root
from worker.sequence import Sequence

# Where a match ends: its last whole page, or the root of its tree; and the tokens of the next page.
Frontier = tuple[int | Root, bytes]


class Order(Protocol):
    """The waiting sequences. Members: `first_come`, `cache_aware`.

    now: tokens that the engine has computed so far, the clock of every order.
    """

    name: str
    # Whether it wants to know by `computes` what prefills will bring.
    tracks: bool

    def add(self, sequence: Sequence, now: int) -> None:
        """Takes in a sequence: a new one, or a preempted one at its old place."""

    def remove(self, sequence: Sequence) -> None:
        """Forgets a waiting sequence: it was admitted or is not wanted any more."""

    def begin(self, now: int) -> None:
        """A step is planned from here on."""

    def head(self) -> Sequence | None:
        """Who is next; it stays in the queue until `remove`."""

    def short_head(self) -> Sequence | None:
        """Who is next among those with little to compute, if this order lets them pass others."""

    def goes_before(self, one: Sequence, other: Sequence) -> bool:
        """Whether this waiting sequence comes before that one."""

    def charge(self, sequence: Sequence, num_tokens: int) -> None:
        """So many tokens are computed for the sequence: its account's turn moves back."""

    def computes(self, sequence: Sequence, frontier: Frontier | None) -> None:
        """What an admitted sequence will bring into the cache next; None: nothing more."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Sequence]: ...
