"""What was seen, by digests: parts of prompts as they followed one another, and how to find them.

    sights   owner + chain digest          the part that ends there, what came before and behind it
    leads    owner + a looser digest       the sight that had it last

Both are bounded, and the longest unused goes first; a sight that is gone leaves its links to
nothing. Owner is whose prompt it was: nobody finds another one's. A sight costs about 0.5 kB and
its shape 0.7 to 10 kB; a lead costs about 0.2 kB, and a part has up to five.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from gateway.doctor.shape import PartShape

# What a sight takes by itself, and what a lead takes, with their dictionaries' places.
SIGHT_BYTES = 512
LEAD_BYTES = 224
LEADS_PER_PART = 6


@dataclass(slots=True)
class Sight:
    """A part of a prompt behind all that came before it. Keys are of this memory; b"": none.

    before, behind: the part in front, and the one that followed it last. form: of the part alone.
    size: bytes of it. at: when it was seen last. worker, incarnation: who had it last.
    computed_at: when it had its last output; None: it never had one.
    """

    index: int
    name: str
    size: int
    at: float
    before: bytes = b""
    behind: bytes = b""
    shape: PartShape | None = None
    worker: str = ""
    incarnation: str = ""
    computed_at: float | None = None

    @property
    def form(self) -> bytes:
        """Names the part alone; b"" where nobody looked at it."""
        return self.shape.form if self.shape is not None else b""

    @property
    def cost(self) -> int:
        """Bytes that it takes, about."""
        return SIGHT_BYTES + (self.shape.cost if self.shape is not None else 0)


class Memory:
    """max_parts: sights at most; max_bytes: that they and the leads take, about."""

    def __init__(self, max_parts: int, max_bytes: int):
        self._max_parts = max_parts
        self._max_bytes = max_bytes
        self._sights: OrderedDict[bytes, Sight] = OrderedDict()
        self._leads: OrderedDict[bytes, bytes] = OrderedDict()
        self._sight_bytes = 0

    def __len__(self) -> int:
        """How many sights it holds."""
        return len(self._sights)

    @property
    def num_bytes(self) -> int:
        """What it takes, about."""
        return self._sight_bytes + LEAD_BYTES * len(self._leads)

    def get(self, key: bytes) -> Sight | None:
        """The sight of that key."""
        return self._sights.get(key)

    def use(self, keys: Iterable[bytes], now: float) -> None:
        """These were seen now, and go last; the last of them the very last."""
        for key in keys:
            sight = self._sights.get(key)
            if sight is not None:
                sight.at = now
                self._sights.move_to_end(key)

    def put(self, key: bytes, sight: Sight) -> None:
        """The sight is known from now on."""
        before = self._sights.pop(key, None)
        if before is not None:
            self._sight_bytes -= before.cost
        self._sights[key] = sight
        self._sight_bytes += sight.cost
        while len(self._sights) > self._max_parts or self.num_bytes > self._max_bytes:
            if not self._drop():
                break

    def lead(self, digest: bytes) -> bytes:
        """The key of the sight that the digest led to last; b"" for none."""
        return self._leads.get(digest, b"")

    def put_lead(self, digest: bytes, key: bytes) -> None:
        """The digest leads to the sight of the key."""
        self._leads[digest] = key
        self._leads.move_to_end(digest)
        if len(self._leads) > self._max_parts * LEADS_PER_PART:
            self._leads.popitem(last=False)

    def behind(self, key: bytes, limit: int) -> Iterator[Sight]:
        """What followed it, as it was last, at most so many parts."""
        for _ in range(limit):
            sight = self._sights.get(key)
            if sight is None or not sight.behind:
                return
            key = sight.behind
            if (following := self._sights.get(key)) is None:
                return
            yield following

    def _drop(self) -> bool:
        """The longest unused sight goes, and as many leads as one has."""
        if not self._sights:
            return False
        _, sight = self._sights.popitem(last=False)
        self._sight_bytes -= sight.cost
        if len(self._leads) > len(self._sights) * LEADS_PER_PART:
            for digest in list(islice(self._leads, LEADS_PER_PART)):
                del self._leads[digest]
        return True
