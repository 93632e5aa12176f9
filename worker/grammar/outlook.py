"""What may follow an answer's tokens, as its grammar has it. Plain values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from worker.errors import RequestFailed


@dataclass(frozen=True, slots=True)
class Outlook:
    """What comes next: first the forced tokens, all of them, and behind them one of four.

    mask: packed bits, lowest first, of the ids that may come; at least one is set, and none that
    ends a sequence. may_end: the answer may also end there. ended: nothing can come. failure: the
    grammar can't be followed any further. None of the four: more is forced, ask again.
    """

    forced: tuple[int, ...] = ()
    mask: bytes = b""
    may_end: bool = False
    ended: bool = False
    failure: RequestFailed | None = None

    @property
    def is_partial(self) -> bool:
        """Whether it says what is forced and no more."""
        return not (self.mask or self.ended or self.failure)


def single(token: int, num_bytes: int) -> bytes:
    """Returns the mask of one id."""
    mask = bytearray(num_bytes)
    mask[token >> 3] = 1 << (token & 7)
    return bytes(mask)


def opened(mask: bytes, ids: Iterable[int]) -> bytes:
    """Returns the mask with these ids open as well."""
    bits = bytearray(mask)
    for one in ids:
        if one >> 3 < len(bits):
            bits[one >> 3] |= 1 << (one & 7)
    return bytes(bits)


def closed(mask: bytes, ids: Iterable[int]) -> bytes:
    """Returns the mask with these ids closed."""
    bits = bytearray(mask)
    for one in ids:
        if one >> 3 < len(bits):
            bits[one >> 3] &= ~(1 << (one & 7))
    return bytes(bits)


def is_open(mask: bytes) -> bool:
    """Whether any id is open."""
    return mask.count(0) < len(mask)
