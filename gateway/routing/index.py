"""Which workers hold a boundary: the views of a model's workers, inverted.

One look-up per boundary of a prompt, not one per boundary and worker. Holders are the bits of an
integer; a bit is a seat, taken when a view joins and given up when it leaves or is cleared. What a
given-up seat still has in the index is swept out little by little, then the seat is free again.

    digest of [system]            0b1011    seats 0, 1 and 3
    digest of [system][user 7]    0b0010    seat 1
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Generic, TypeVar

from gateway.fleet.view import View

Owner = TypeVar("Owner")

# From so many members on, a set is read as a whole and not bit by bit.
_DENSE = 24
_BITS = bytes.maketrans(b"01", b"\0\1")


class Index(Generic[Owner]):
    """Digests to the owners of the views that hold them. `live`: the bits of all owners."""

    def __init__(self) -> None:
        self.live = 0
        self._owners: list[Owner | None] = []
        self._holders: dict[bytes, int] = {}
        self._free: list[int] = []
        self._leaving: deque[tuple[int, dict[bytes, int]]] = deque()

    def __len__(self) -> int:
        """How many boundaries somebody holds, those not swept out yet included."""
        return len(self._holders)

    def join(self, owner: Owner, view: View) -> Seat[Owner]:
        """The view's boundaries are found from now on, under its owner."""
        seat = Seat(self, owner)
        view.watch(seat)
        return seat

    def holders(self, digest: bytes) -> int:
        """The seats that hold the boundary, as bits; of live owners only."""
        return self._holders.get(digest, 0) & self.live

    def deepest(self, chain: Sequence[bytes], among: int) -> Iterator[tuple[int, int]]:
        """From the deepest boundary up: how deep, and the seats of `among` that hold no deeper one.

        Ends with depth 0 and those that hold nothing of the chain.
        """
        holders = self._holders
        for depth in range(len(chain), 0, -1):
            held = holders.get(chain[depth - 1], 0) & among
            if held:
                yield depth, held
                among &= ~held
                if not among:
                    return
        yield 0, among

    def owners(self, seats: int) -> list[Owner]:
        """Who sits there."""
        if seats.bit_count() >= _DENSE:
            chosen = format(seats, "b").encode().translate(_BITS)[::-1]
            return [owner for owner in compress(self._owners, chosen) if owner is not None]
        found = []
        while seats:
            lowest = seats & -seats
            seats ^= lowest
            owner = self._owners[lowest.bit_length() - 1]
            if owner is not None:
                found.append(owner)
        return found

    def sweep(self, limit: int) -> bool:
        """Take out up to so many entries of seats given up; False when none are left."""
        while limit > 0 and self._leaving:
            bit, digests = self._leaving[0]
            if not digests:
                self._leaving.popleft()
                self._free.append(bit.bit_length() - 1)
                continue
            digest, _ = digests.popitem()
            self.drop(digest, bit)
            limit -= 1
        return bool(self._leaving)

    # ------------------------------------------------------------ seats write here

    def seat(self, owner: Owner) -> int:
        """The bit of a seat that nobody had."""
        position = self._free.pop() if self._free else len(self._owners)
        if position == len(self._owners):
            self._owners.append(None)
        self._owners[position] = owner
        bit = 1 << position
        self.live |= bit
        return bit

    def give_up(self, bit: int, digests: dict[bytes, int]) -> None:
        """Nobody sits there any more; `digests` is what has to be swept out."""
        self.live &= ~bit
        self._owners[bit.bit_length() - 1] = None
        self._leaving.append((bit, digests))

    def add(self, digest: bytes, bit: int) -> None:
        """The seat holds the boundary."""
        self._holders[digest] = self._holders.get(digest, 0) | bit

    def drop(self, digest: bytes, bit: int) -> None:
        """The seat holds it no more."""
        rest = self._holders.get(digest, 0) & ~bit
        if rest:
            self._holders[digest] = rest
        else:
            self._holders.pop(digest, None)


class Seat(Generic[Owner]):
    """One view in the index, and who it belongs to."""

    def __init__(self, index: Index[Owner], owner: Owner):
        self._index = index
        self.owner = owner
        self.bit = index.seat(owner)

    def held(self, digest: bytes) -> None:
        """The view holds it from now on."""
        self._index.add(digest, self.bit)

    def gone(self, digest: bytes) -> None:
        """The view holds it no more."""
        self._index.drop(digest, self.bit)

    def emptied(self, digests: dict[bytes, int]) -> None:
        """The view begins anew, on another seat: the old one is swept out later."""
        self._index.give_up(self.bit, digests)
        self.bit = self._index.seat(self.owner)

    def leave(self, view: View) -> None:
        """The view is gone for good; it must not be written any more."""
        self._index.give_up(self.bit, view.detach())
